"""The server of a broker's listeners, which admits connections and enforces their limits.

Once a second it closes connections that are idle or do not complete their request. When memory is
short, it also closes connections that do not read their answers. Requests are not logged. Lines
that a client can cause are limited to ten a minute.
"""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from ...runtime.rate_limited_log import LimitedLog
from ...wire.frame_memory import FrameMemory
from ..config.broker_config import BrokerConfig
from ..config.listeners import Listener
from ..environment import end_lost_connections, listening_socket
from .answer_times import AnswerTimes
from .connection import Connection
from .connection_limits import ConnectionLimits
from .creation_rate import AddressRates, CreationRate, wait_ms
from .dispatch import Dispatcher, RequestContext
from .memory_budget import MemoryBudget
from .muting import Mute
from .protection import Protection
from .sasl.guard import GuardedDispatcher
from .sasl.login import Login
from .tls.transport import RECEIVE_BYTES, TlsTransport
from .unserved_requests import UnservedRequests

if TYPE_CHECKING:
    from ..services import BrokerServices

# libuv accepts one connection per turn from each descriptor of a listening socket. With a single
# descriptor, a client behind two hundred new connections would wait for seconds.
ACCEPTED_A_TURN = 16
SWEEP_INTERVAL_S = 1.0
SWEPT_AT_ONCE = 100  # the connections that are checked, and perhaps closed, in one turn
CLOSING_MAX_S = 5.0  # how long a closing connection may send its last bytes
RATE_UNLIMITED = 2**31 - 1
LOOKED_AT_MAX = 1_000  # how many connections are compared to find the idlest one
RESERVED_PLACES = 20  # the minimum number of places for the listener of the brokers
STALLED_MAX_S = 5.0  # how long an answer may stay unsent when memory is short


class KafkaServer:
    """The server that accepts clients and answers them through a dispatcher."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        services: "BrokerServices",
        log: logging.Logger,
        listen: Callable[[str, int, int], Any] = listening_socket,
        protection: Protection | None = None,
    ) -> None:
        self.dispatcher = dispatcher
        self.config = services.config
        self.frame_memory = FrameMemory()  # shared by all connections
        self._limits = ConnectionLimits(services.state, services.config)
        self.budget = MemoryBudget(self.config.queued_max_request_bytes)
        self.loop = asyncio.get_running_loop()
        self.share = services.work.share
        self.times = AnswerTimes(self.share.clock)
        self.now_s = self.loop.time()
        self._protection = protection or Protection()
        self._tls = self._protection.tls
        self._settings: dict[str, BrokerConfig] = {}  # by listener name
        self._received = memoryview(bytearray(RECEIVE_BYTES if self._tls else 0))
        self._refreshing: asyncio.Future[None] | None = None
        self.ports: dict[str, int] = {}  # by listener name
        self.is_stopping = False
        self._services = services
        self._listen = listen
        self._log = log
        self._limited_log = LimitedLog(log)
        self.unserved = UnservedRequests(log)
        self._connections: dict[Connection, None] = {}  # in the order of acceptance
        # Connections without a valid request, in the order of acceptance.
        self._silent: dict[Connection, None] = {}
        # Connections whose clients send nothing more, in the order of these ends.
        self._ended: dict[Connection, None] = {}
        self._per_host: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        self._reserved = ""  # the name of the listener that has RESERVED_PLACES
        self._own_rate = self._rate_of(self.config)
        self._address_rates = AddressRates(services.state, self._burst_ms(self.config))
        self._rates: dict[str, list[CreationRate]] = {}  # the rates that apply to a listener
        self._servers: list[asyncio.Server] = []
        self._sweep_timer: asyncio.Handle | None = None

    @property
    def connection_count(self) -> int:
        """The number of connected clients."""
        return len(self._connections)

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return next(iter(self.ports.values()), 0)

    async def start(self, listeners: Sequence[Listener]) -> None:
        """Listen on all listeners, and set `ports`, in which the kernel's choice replaces port 0.

        Raises OSError, which says why, when an address cannot be bound.
        """
        if len(listeners) > 1:
            self._reserved = self.config.inter_broker_listener_name.upper()
        for listener in listeners:
            self.ports[listener.name] = await self._listen_on(listener)
        self._sweep_timer = self.loop.call_later(SWEEP_INTERVAL_S, self._sweep)

    async def _listen_on(self, listener: Listener) -> int:
        self._settings[listener.name] = self.config.of_listener(listener)
        is_reserved = listener.name == self._reserved
        self._rates[listener.name] = [] if is_reserved else list(self._own_rate)
        if "max_connection_creation_rate" in listener.overrides:
            self._rates[listener.name] += self._rate_of(self._settings[listener.name])
        (host, port), backlog = listener.bind, self.config.socket_listen_backlog_size
        try:
            bound = self._listen(host, port, backlog)
        except OSError as error:
            raise OSError(
                error.errno, f"Cannot listen on {host}:{port}: {error.strerror}"
            ) from error
        sockets = [bound]
        # The simulator's sockets accept all connections themselves.
        if isinstance(bound, socket.socket):
            end_lost_connections(bound, self.config.connections_max_idle_ms // 1000)
            sockets += [bound.dup() for _ in range(ACCEPTED_A_TURN - 1)]
        for each in sockets:
            server = self.loop.create_server(
                lambda: self._protocol(listener), sock=each, backlog=backlog
            )
            self._servers.append(await server)
        return bound.getsockname()[1]

    def _rate_of(self, config: BrokerConfig) -> list[CreationRate]:
        rate = config.max_connection_creation_rate
        return [] if rate == RATE_UNLIMITED else [CreationRate(rate, self._burst_ms(config))]

    @staticmethod
    def _burst_ms(config: BrokerConfig) -> int:
        return (config.quota_window_num - 1) * config.quota_window_size_seconds * 1000

    def _protocol(self, listener: Listener) -> asyncio.BaseProtocol:
        connection = Connection(self, listener)
        credentials = self._tls.get(listener.name)
        if credentials is None:
            return connection
        return TlsTransport(
            connection, credentials.context, credentials.principal_of, self.share, self._received
        )

    async def stop(self, deadline_s: float = 5.0) -> None:
        """Accept no more clients, answer the received requests, and end within deadline_s."""
        self.is_stopping = True
        for server in self._servers:
            server.close()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for connection in list(self._connections):
            connection.stop_reading()
        give_up_s = self.loop.time() + deadline_s
        while any(c.has_requests for c in self._connections) and self.loop.time() < give_up_s:
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.close("the broker stops")
        while self._connections and self.loop.time() < give_up_s:
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.abort()
        for server in self._servers:
            await server.wait_closed()

    # -- called by connections

    def admit(self, connection: Connection) -> RequestContext | None:
        """Return the context of a new connection, or None if the connection exceeds a limit.

        When a limit is reached, a connection that its client has closed is closed first, so that
        such connections do not exclude clients. The next one is the oldest connection that has not
        sent a request, if `max.connections` of the broker or of the listener is reached. If there
        is none, a new connection on the listener of inter.broker.listener.name replaces the idlest
        connection of another listener, as in Kafka, while its own listener has fewer than
        RESERVED_PLACES connections.
        """
        host, listener = connection.peer_host, connection.listener
        of_host = self._limits.of_address(host)
        if of_host is not None and self._per_host[host] >= of_host:
            self._displace_ended(lambda each: each.peer_host == host)
        if of_host is not None and self._per_host[host] >= of_host:
            self._log_limited(
                "too many of one",
                "closed a connection from %s: max.connections.per.ip is reached",
                host,
            )
            return None
        rates, now_ms = self._rates[listener.name], self.loop.time() * 1000
        rates = [*rates, *self._address_rates.of(host)]
        pause_ms = wait_ms(rates, now_ms)
        if pause_ms is None:
            self._log_limited(
                "too fast", "closed a connection from %s: the creation rate is exceeded", host
            )
            return None
        if self._is_full():
            self._displace_ended(lambda _: True)
        if self._is_full():
            self._displace_silent()
        own_max = listener.overrides.get("max_connections", self._limits.in_all)
        if self._per_listener[listener.name] >= own_max:
            self._displace_ended(lambda each: each.listener is listener)
        if self._per_listener[listener.name] >= own_max:
            self._displace_silent(listener)
        is_full = self._per_listener[listener.name] >= own_max
        if not is_full and self._is_full():
            is_full = (
                listener.name != self._reserved
                or self._per_listener[listener.name] >= RESERVED_PLACES
            )
            if not is_full:
                self._displace_idlest()
        if self.is_stopping or is_full:
            self._log_limited(
                "too many",
                "closed a connection from %s: max.connections is reached, or the broker stops",
                host,
            )
            return None
        self._connections[connection] = self._silent[connection] = None
        self._per_host[host] += 1
        self._per_listener[listener.name] += 1
        for rate in rates:
            rate.note(now_ms)
        login = self._login(listener)
        if login is not None:
            now_ms = self._services.clock.monotonic_ms
            connection.dispatcher = GuardedDispatcher(self.dispatcher, login, now_ms)
        context = RequestContext(
            broker=self._services,
            connection_id=self._services.connection_ids.next(),
            peer_host=host,
            listener=listener.name,
            table=self.dispatcher.table,
            budget=self.budget,
            connected_at_ms=self._services.clock.monotonic_ms(),
            login=login,
            resume=connection.advance_soon,
        )
        if pause_ms:
            context.mute = Mute(context)
            context.mute.begin(pause_ms)
            # The pause does not count as the client's silence.
            connection.silent_since_s = self.now_s + pause_ms / 1000
        return context

    def _login(self, listener: Listener) -> Login | None:
        mechanisms = self._protection.mechanisms.get(listener.name)
        if mechanisms is None:
            return None
        settings = self._settings[listener.name]
        return Login(mechanisms, settings.connections_max_reauth_ms, settings.sessions_ms)

    def request_bytes_max(self, listener: Listener) -> int:
        """Return the size limit of a connection's first requests, which is lower before a login."""
        if listener.name in self._protection.mechanisms:
            return self._settings[listener.name].sasl_server_max_receive_size
        return self.config.socket_request_max_bytes

    def _is_full(self) -> bool:
        return len(self._connections) >= self._limits.in_all

    def _displace_ended(self, is_meant: Callable[[Connection], bool]) -> None:
        """Close one connection that its client has closed already, if `is_meant` is true for it.

        Such a connection only waits for its last answers. The search ends after LOOKED_AT_MAX
        connections.
        """
        ended = islice(self._ended, LOOKED_AT_MAX)
        found = next((each for each in ended if is_meant(each) and each.is_dispensable), None)
        if found is not None:
            self._displace(found, "all places are taken, and its client has closed it")

    def _displace_silent(self, listener: Listener | None = None) -> None:
        """Close the oldest connection that has sent no valid request, on one listener or on all.

        On all listeners, connections of inter.broker.listener.name are spared while they are at
        most RESERVED_PLACES.
        """
        spared = self._per_listener[self._reserved] <= RESERVED_PLACES
        silent = next(
            (
                each
                for each in self._silent
                if not each.has_requests
                and (
                    not (spared and each.listener.name == self._reserved)
                    if listener is None
                    else each.listener is listener
                )
            ),
            None,
        )
        if silent is not None:
            self._displace(silent, "all places are taken, and it has sent no request")

    def _displace_idlest(self) -> None:
        """Close the idlest connection of the listeners other than inter.broker.listener.name.

        Connections without a request in progress come first. Only LOOKED_AT_MAX connections are
        compared.
        """
        others = (each for each in self._connections if each.listener.name != self._reserved)
        idlest = min(
            islice(others, LOOKED_AT_MAX),
            key=lambda each: (each.has_requests, each.last_active_s),
            default=None,
        )
        if idlest is not None:
            self._displace(idlest, "all places are taken, and administration needs one")

    def _displace(self, connection: Connection, reason: str) -> None:
        self.note_closed(connection, reason)
        connection.abort()
        self.removed(connection)

    def heard_first(self, connection: Connection) -> None:
        """Note a connection's first valid request, after which the connection is not silent."""
        self._silent.pop(connection, None)

    def client_ended(self, connection: Connection) -> None:
        """Note that the client of a connection sends nothing more."""
        self._ended[connection] = None

    def removed(self, connection: Connection) -> None:
        self._silent.pop(connection, None)
        self._ended.pop(connection, None)
        if connection in self._connections:
            del self._connections[connection]
            self._per_listener[connection.listener.name] -= 1
            self._per_host[connection.peer_host] -= 1
            if not self._per_host[connection.peer_host]:
                del self._per_host[connection.peer_host]

    def note_closed(self, connection: Connection, reason: str) -> None:
        """Log that the broker has closed a connection."""
        if not self.is_stopping:
            self._log_limited("closed connections", "closed %s: %s", connection.peer_host, reason)

    # -- once a second

    def _sweep(self) -> None:
        """Check all connections, SWEPT_AT_ONCE in each turn of the event loop."""
        before_s, now_s = self.now_s, self.loop.time()
        self.now_s = now_s
        # The time in which the broker itself was stalled.
        stalled_for_s = max(0.0, now_s - before_s - SWEEP_INTERVAL_S)
        self._sweep_next(iter(list(self._connections)), stalled_for_s)

    def _sweep_next(self, unchecked: Iterator[Connection], stalled_for_s: float) -> None:
        checked = 0
        for connection in islice(unchecked, SWEPT_AT_ONCE):
            checked += 1
            self._check(connection, stalled_for_s)
        if checked == SWEPT_AT_ONCE:
            self._sweep_timer = self.loop.call_soon(self._sweep_next, unchecked, stalled_for_s)
            return
        if (overdue := self.budget.check()) is not None:
            overdue.close("memory is short, and its request waits")
            overdue.abort()
        files = self._tls or self._protection.tokens
        if files and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = self.loop.run_in_executor(None, self._protection.refresh)
        self._sweep_timer = self.loop.call_later(SWEEP_INTERVAL_S, self._sweep)

    def _check(self, connection: Connection, stalled_for_s: float) -> None:
        """Close a connection that is idle, late, stalled, or whose client has gone."""
        now_s, config = self.now_s, self.config
        self.budget.look_at(connection)
        idle_max_s = config.connections_max_idle_ms / 1000
        first_request_timeout_s = config.first_request_timeout_ms / 1000
        connection.last_active_s += stalled_for_s
        if connection.silent_since_s is not None:
            connection.silent_since_s += stalled_for_s
        if connection.closing_since_s is not None:
            if now_s - connection.closing_since_s > CLOSING_MAX_S:
                connection.abort()
        elif connection.stalled_since_s is not None:
            connection.shorten_stall()
            stalled_s = now_s - connection.stalled_since_s
            is_due = self.budget.is_short and stalled_s > STALLED_MAX_S
            is_due = is_due or connection.is_silent(now_s, first_request_timeout_s)
            if stalled_s > idle_max_s or is_due:
                connection.close("it does not take its answers")
                connection.abort()
        elif connection.is_deserted(now_s):
            self.note_closed(connection, "its client has gone")
            connection.abort()
        elif connection.is_late(now_s, config.request_receive_timeout_ms / 1000):
            connection.close("a request was not finished in time")
        elif connection.is_silent(now_s, first_request_timeout_s):
            connection.close("no request came in time")
        elif connection.is_idle(now_s, idle_max_s):
            connection.close("idle")

    def _log_limited(self, kind: str, message: str, *arguments: object) -> None:
        self._limited_log.log(logging.INFO, kind, self.loop.time(), message, *arguments)
