"""The proxy in its event loop, with listeners, connections, rules, events, and held frames."""

import asyncio
import contextlib
import inspect
import itertools
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from .brokers import LOOPBACK, Address, Brokers, Ports
from .connection import ProxiedConnection
from .events import Answer, Event, FaultMade, Request
from .rules import Act, Ending, Hold, Rule, RuleBook
from .subjects import TopicNames
from .two_ends import ProxyTls, TwoEnds

CONNECTIONS_MAX = 4_000
HOLDS_MAX = 64
BACKLOG = 128
CLOSE_TIMEOUT_S = 2.0
WAIT_S = 0.01
Listener = Callable[[Event], None]


class Hub:
    """The state of a proxy that its connections share.

    Methods run in the proxy's event loop, but any thread may add rules, which have a lock.
    """

    def __init__(
        self,
        bootstrap: Iterable[Address],
        listeners: Iterable[Listener],
        transaction_timeout_ms: int,
        tls: ProxyTls | None = None,
    ) -> None:
        self.transaction_timeout_ms, self.tls = transaction_timeout_ms, tls
        self.login_lifetime_ms = 0
        self.topic_names = TopicNames()
        self.brokers = Brokers(bootstrap)
        self.ports = Ports(self.brokers, self._listen)
        self.connections: dict[int, TwoEnds] = {}
        self.problem: BaseException | None = None  # the first one from code of others
        # connections by instance, before and after their TLS handshakes
        self.accepted, self.begun = Counter[str](), Counter[str]()
        self._listeners = tuple(listeners)
        self._rules, self._lock = RuleBook(), threading.RLock()
        self._numbers = itertools.count(1)
        self._servers: list[asyncio.Server] = []
        self._starting: set[asyncio.Task[None]] = set()
        self._holds = 0
        self._is_closing = False

    async def close(self) -> None:
        """Close all listeners and connections, and end calls of `wait`."""
        self._is_closing = True
        await asyncio.gather(*self._starting, return_exceptions=True)
        for server in self._servers:
            server.close()
        for connection in tuple(self.connections.values()):
            connection.close("the proxy was closed", is_abrupt=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                while self.connections:  # their ends are reported to listeners, too
                    await asyncio.sleep(0.001)

    # -- rules; from any thread

    def add(self, rule: Rule) -> None:
        with self._lock:
            self._rules.add(rule)

    def remove(self, rule: Rule) -> None:
        with self._lock:
            self._rules.remove(rule)

    def made(self, rule: Rule) -> int:
        with self._lock:
            return self._rules.made(rule)

    def wait(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `holds` returns True, which is called each WAIT_S.

        Returns False at the timeout, or when the proxy is closed. A Condition would leave its lock
        held if a signal handler raised in it.
        """
        end_s = time.monotonic() + timeout_s
        while not holds():
            if self._is_closing or (left_s := end_s - time.monotonic()) <= 0:
                return False
            time.sleep(min(WAIT_S, left_s))
        return True

    # -- what connections need

    def now_s(self) -> float:
        return time.monotonic()

    def emit(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception as problem:
                self._met(problem)

    def decide(self, request: Request) -> Rule | None:
        try:
            with self._lock:
                return self._rules.decide(request)
        except Exception as problem:  # of a `where`
            self._met(problem)
            return None

    def give_back(self, rule: Rule) -> None:
        with self._lock:
            self._rules.give_back(rule)

    def has_acted(self, event: FaultMade) -> None:
        self.emit(event)
        with self._lock:
            self._rules.has_acted(event.rule)

    def targets(self, broker_id: int | None) -> list[Address]:
        return self.brokers.targets(broker_id)

    def broker_at(self, address: Address) -> int | None:
        return self.brokers.id_of(address)

    def began(self, connection: TwoEnds) -> None:
        self.connections[connection.info.id] = connection
        self.begun[connection.info.instance] += 1
        if self._is_closing:  # its TLS handshake took longer
            connection.close("the proxy was closed", is_abrupt=True)

    def ended(self, connection: TwoEnds) -> None:
        self.connections.pop(connection.info.id, None)

    async def hold(self, hold: Hold, request: Request, answer: Answer | None) -> tuple[Ending, str]:
        """Hold a frame until the rule's `act` returns, or until the rule's deadline.

        Returns the result of `act`, or None at the deadline or after an error, and text with the
        duration. Beyond HOLDS_MAX held frames a frame is not held, and the proxy records an error.
        """
        if self._holds >= HOLDS_MAX:
            self._met(RuntimeError(f"more than {HOLDS_MAX} frames are held at once"))
            return None, "not held"
        began_s = time.monotonic()
        ending: Ending = None
        words = "held for {:.1f} s"
        self._holds += 1
        try:
            async with asyncio.timeout(hold.deadline_s):
                ending = await _call(hold.act, request, answer)
            if not isinstance(ending, Ending):
                self._met(TypeError(f"an act returned {ending!r}: see Act in rules"))
                ending = None
        except TimeoutError:
            words = "let go at its deadline, after {:.1f} s"
        except Exception as problem:
            self._met(problem)
        finally:
            self._holds -= 1
        return ending, words.format(time.monotonic() - began_s)

    def _met(self, problem: BaseException) -> None:
        self.problem = self.problem or problem

    # -- listeners

    def _listen(self, instance: str, broker_id: int | None) -> int:
        listening = socket.create_server((LOOPBACK, 0), backlog=BACKLOG)
        task = asyncio.get_running_loop().create_task(self._serve(listening, instance, broker_id))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)
        return listening.getsockname()[1]

    async def _serve(self, listening: socket.socket, instance: str, broker_id: int | None) -> None:
        proxied = partial(self.ports.proxied, instance)

        def accept() -> asyncio.BaseProtocol:
            number = next(self._numbers)
            if self._is_closing or len(self.connections) >= CONNECTIONS_MAX:
                return _Refused()
            self.accepted[instance] += 1
            return ProxiedConnection(self, number, instance, broker_id, proxied).client

        loop = asyncio.get_running_loop()
        tls = self.tls and self.tls.to_clients
        server = await loop.create_server(accept, sock=listening, backlog=BACKLOG, ssl=tls)
        self._servers.append(server)
        if self._is_closing:
            server.close()


class _Refused(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        transport.abort()


async def _call(act: Act, request: Request, answer: Answer | None) -> Ending:
    """Await a coroutine function, or call a function in a separate thread.

    The end of the proxy does not wait for that thread.
    """
    if inspect.iscoroutinefunction(act):
        return await act(request, answer)
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def tell(result: Any, problem: BaseException | None) -> None:
        if done.done():
            return
        if problem is None:
            done.set_result(result)
        else:
            done.set_exception(problem)

    def call() -> None:
        result, problem = None, None
        try:
            result = act(request, answer)
        except BaseException as raised:
            problem = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, result, problem)

    threading.Thread(target=call, name="held frame", daemon=True).start()
    result = await done
    return await result if inspect.isawaitable(result) else result
