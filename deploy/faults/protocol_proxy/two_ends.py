"""The two ends of a proxied connection, from connecting the broker to closing both."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from .brokers import Address
from .events import (
    Answer,
    Connection,
    ConnectionClosed,
    ConnectionOpened,
    Event,
    FaultMade,
    Request,
)
from .in_flight import InFlight
from .rules import Ending, Hold, Rule
from .side import FULL, TLS, Side
from .subjects import TopicNames

REQUEST_BYTES_MAX = 128 * 1024 * 1024
ANSWER_BYTES_MAX = 256 * 1024 * 1024
CONNECT_TIMEOUT_S = 5.0
CONNECTING, MANY_IN_FLIGHT = "no broker yet", "many are not answered"
NOT_READ = "it does not read the proxy's own answers"
TLS_REFUSED = (
    "the client uses TLS, but the proxy does not. Give the client security.protocol=PLAINTEXT"
)
TLS_OF_BROKER = "the broker speaks TLS, which is not understood here: name a plaintext listener"


@dataclass(frozen=True, slots=True)
class ProxyTls:
    """The TLS contexts of a proxy, as a server for clients and as a client of brokers.

    load: a function that loads the proxy's certificate into a context, valid or expired.
    """

    to_clients: ssl.SSLContext
    to_brokers: ssl.SSLContext
    load: Callable[[ssl.SSLContext, bool], object]

    def present(self, is_expired: bool) -> None:
        """Present the valid or the expired certificate to new connections."""
        self.load(self.to_clients, is_expired)


class Services(Protocol):
    """The methods of the proxy that its connections call."""

    tls: ProxyTls | None

    transaction_timeout_ms: int  # timeouts are lowered to this; 0 changes none
    login_lifetime_ms: int  # lifetimes of logins are lowered to this; 0 changes none
    topic_names: TopicNames

    def now_s(self) -> float: ...
    def emit(self, event: Event) -> None: ...
    def decide(self, request: Request) -> Rule | None: ...
    def give_back(self, rule: Rule) -> None: ...
    def has_acted(self, event: FaultMade) -> None: ...
    def hold(
        self, hold: Hold, request: Request, answer: Answer | None
    ) -> Coroutine[Any, Any, tuple[Ending, str]]: ...
    def targets(self, broker_id: int | None) -> list[Address]: ...
    def broker_at(self, address: Address) -> int | None: ...
    def began(self, connection: "TwoEnds") -> None: ...
    def ended(self, connection: "TwoEnds") -> None: ...


class TwoEnds:
    """The client's end and the broker's end of a proxied connection.

    Subclasses handle the frames.
    """

    def __init__(
        self, services: Services, connection_id: int, instance: str, broker_id: int | None
    ) -> None:
        self.info = Connection(connection_id, instance, broker_id, 0)
        self._services = services
        self._in_flight = InFlight()
        self._reason, self._is_refusal = "", False
        self._is_open = self._has_ended = False
        self._is_silent = False  # only the client's end is kept, and it gets nothing
        self._connecting: asyncio.Task[None] | None = None
        self._silence: asyncio.TimerHandle | None = None
        self.client = Side(
            REQUEST_BYTES_MAX,
            self._on_request,
            on_made=self._accepted,
            on_malformed=self._client_is_malformed,
            on_full=self._client_is_full,
            on_drained=self._client_is_gone,
        )
        self.broker = Side(
            ANSWER_BYTES_MAX,
            self._on_answer,
            on_made=lambda: None,
            on_malformed=self._broker_is_malformed,
            on_full=lambda is_full: _pause(self.client, is_full),
            on_drained=self._broker_is_gone,
        )
        self.client.pause(CONNECTING)

    def _on_request(self, frame: memoryview) -> Coroutine[Any, Any, None] | None:
        raise NotImplementedError

    def _on_answer(self, frame: memoryview) -> Coroutine[Any, Any, None] | None:
        raise NotImplementedError

    def close(self, reason: str, is_abrupt: bool = False, is_refusal: bool = False) -> None:
        """Close both ends, after written bytes are sent unless `is_abrupt`.

        `reason` and `is_refusal` are for the event ConnectionClosed. Those of the first call count.
        """
        if not self._reason:
            self._reason, self._is_refusal = reason, is_refusal
        if self._connecting is not None and is_abrupt:
            self._connecting.cancel()
        for side in (self.client, self.broker):
            if is_abrupt:
                side.abort()
            else:
                side.close()

    # -- beginning and end

    def _accepted(self) -> None:
        assert self.client.transport is not None
        peer = self.client.transport.get_extra_info("peername")
        port: int = peer[1] if isinstance(peer, tuple) else 0
        self.info = Connection(self.info.id, self.info.instance, self.info.broker_id, port)
        self._services.began(self)
        if not self._reason:  # it was closed at once
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        problem = ""
        for address in self._services.targets(self.info.broker_id):
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    await self._connect_to(address)
                break
            except Exception as error:  # also of an invalid name or port
                problem = f"no broker at {address[0]}:{address[1]} ({str(error) or 'no answer'})"
        else:
            self._begin(self.info.broker_id)
            self.close(problem, is_abrupt=True, is_refusal=True)
            self._end_when_both_are_gone()
            return
        if self.info.broker_id is None:
            self._begin(self._services.broker_at(address))
        else:
            self._begin(self.info.broker_id)
        self.client.resume(CONNECTING)

    async def _connect_to(self, address: Address) -> None:
        loop, tls = asyncio.get_running_loop(), self._services.tls
        try:
            await loop.create_connection(lambda: self.broker, *address, ssl=tls and tls.to_brokers)
        except asyncio.CancelledError:
            if self.broker.transport is not None:
                # Cancelled after it was connected: uvloop closes without a connection_lost.
                self.broker.connection_lost(None)
            raise

    def _begin(self, broker_id: int | None) -> None:
        one = self.info
        self.info = Connection(one.id, one.instance, broker_id, one.client_port)
        self._is_open = True
        self._services.emit(ConnectionOpened(self.info, self._services.now_s()))

    def _client_is_full(self, is_full: bool) -> None:
        _pause(self.broker, is_full)
        if not is_full:
            self.client.resume(NOT_READ)

    def _client_is_gone(self) -> None:
        """Close both ends. Everything that the client sent was forwarded before."""
        self._reason = self._reason or "the client closed it"
        if self._connecting is not None:
            self._connecting.cancel()
        self.broker.resume(FULL)
        self.broker.close()
        self._end_when_both_are_gone()

    def _broker_is_gone(self) -> None:
        """Close both ends. Everything that the broker sent was forwarded before."""
        if self._is_silent and not self.client.is_lost:
            return
        self._reason = self._reason or "the broker closed it"
        self.client.resume(FULL)
        self.client.resume(MANY_IN_FLIGHT)
        self.client.close()
        self._end_when_both_are_gone()

    def _end_when_both_are_gone(self) -> None:
        has_broker = self.broker.transport is not None
        if self._has_ended or not self.client.is_lost or (has_broker and not self.broker.is_lost):
            return
        self._has_ended = True
        if self._silence is not None:
            self._silence.cancel()
        for exchange in self._in_flight.abandon():
            if exchange.rule is not None and exchange.action is not None:
                self._services.give_back(exchange.rule)
        if self._is_refusal and not self._is_open:  # the mistake came before there was a broker
            self._begin(self.info.broker_id)
        if self._is_open:
            now_s = self._services.now_s()
            self._services.emit(ConnectionClosed(self.info, now_s, self._reason, self._is_refusal))
        self._services.ended(self)

    def _client_is_malformed(self, problem: str) -> None:
        words = f"the client sent no request of Kafka: {problem}"
        self.close(TLS_REFUSED if problem == TLS else words, is_refusal=True)

    def _broker_is_malformed(self, problem: str) -> None:
        words = f"an answer cannot be passed on: {problem}"
        self.close(TLS_OF_BROKER if problem == TLS else words, is_refusal=True)


def _pause(side: Side, is_full: bool) -> None:
    if is_full:
        side.pause(FULL)
    else:
        side.resume(FULL)
