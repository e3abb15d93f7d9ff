"""A client's connection through the proxy, to one broker: a shell, what it does others decide."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Protocol

from ....wire.framing import decode_request_header
from ....wire.messages.api_keys import METADATA
from ....wire.primitives import MalformedFrame
from .bodies import CORRELATION_ID_BYTES, expects_answer
from .brokers import Address
from .error_answers import error_answer
from .events import (
    Answer,
    Connection,
    ConnectionClosed,
    ConnectionOpened,
    Event,
    FaultMade,
    Request,
)
from .in_flight import Exchange, InFlight
from .rewriting import Proxied, rewritten_answer
from .rules import (
    Action,
    AnswerError,
    Delay,
    Disconnect,
    Ending,
    Hold,
    HoldPoint,
    LoseAnswer,
    LoseRequest,
    Rule,
)
from .side import FULL, Side
from .subjects import TopicNames
from .timeouts import with_lower_timeouts

REQUEST_BYTES_MAX = 128 * 1024 * 1024
ANSWER_BYTES_MAX = 256 * 1024 * 1024
IN_FLIGHT_MAX = 1_000
CONNECT_TIMEOUT_S = 5.0
CONNECTING, MANY_IN_FLIGHT, HELD = "no broker yet", "many are not answered", "a rule holds it"
TLS_REFUSED = (
    "the client speaks TLS, which is not understood here: give it security.protocol=PLAINTEXT"
)
TLS_OF_BROKER = "the broker speaks TLS, which is not understood here: name a plaintext listener"


class Services(Protocol):
    """What a connection needs of its proxy."""

    lowers_timeouts: bool
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
    def ended(self, connection: "ProxiedConnection") -> None: ...


class ProxiedConnection:
    """Two ends and what is between them."""

    def __init__(
        self,
        services: Services,
        connection_id: int,
        instance: str,
        broker_id: int | None,
        proxied: Proxied,
    ) -> None:
        self.info = Connection(connection_id, instance, broker_id, 0)
        self._services = services
        self._proxied = proxied
        self._in_flight = InFlight()
        self._reason = ""
        self._is_open = False
        self._is_silent = False
        self._silence: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._holding: set[asyncio.Task[None]] = set()
        self.client = Side(
            REQUEST_BYTES_MAX, self._on_request, on_made=self._accepted,
            on_malformed=self._client_is_malformed, on_full=lambda is_full: self._pause(
                self.broker, is_full), on_drained=self._client_is_gone,
        )  # fmt: skip
        self.broker = Side(
            ANSWER_BYTES_MAX, self._on_answer, on_made=lambda: None,
            on_malformed=self._broker_is_malformed, on_full=lambda is_full: self._pause(
                self.client, is_full), on_drained=self._broker_is_gone,
        )  # fmt: skip
        self.client.pause(CONNECTING)

    def close(self, reason: str, is_abrupt: bool = False) -> None:
        """End both ways: what was written is still sent, unless it is abrupt."""
        self._reason = self._reason or reason
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
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        problem = ""
        for address in self._services.targets(self.info.broker_id):
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    await loop.create_connection(lambda: self.broker, *address)
                break
            except (OSError, TimeoutError) as error:
                problem = f"no broker at {address[0]}:{address[1]} ({error or 'no answer'})"
        else:
            self._begin(self.info.broker_id)
            self.close(problem, is_abrupt=True)
            self._end_when_both_are_gone()
            return
        if self.info.broker_id is None:
            self._begin(self._services.broker_at(address))
        else:
            self._begin(self.info.broker_id)
        self.client.resume(CONNECTING)

    def _begin(self, broker_id: int | None) -> None:
        one = self.info
        self.info = Connection(one.id, one.instance, broker_id, one.client_port)
        self._is_open = True
        self._services.emit(ConnectionOpened(self.info, self._services.now_s()))

    def _client_is_gone(self) -> None:
        """All that it sent has been passed on."""
        self._reason = self._reason or "the client closed it"
        if self._connecting is not None:
            self._connecting.cancel()
        self.broker.resume(FULL)
        self.broker.close()
        self._end_when_both_are_gone()

    def _broker_is_gone(self) -> None:
        """All that it answered has been passed on."""
        if self._is_silent and not self.client.is_lost:
            return
        self._reason = self._reason or "the broker closed it"
        self.client.resume(FULL)
        self.client.resume(MANY_IN_FLIGHT)
        self.client.close()
        self._end_when_both_are_gone()

    def _end_when_both_are_gone(self) -> None:
        has_broker = self.broker.transport is not None
        if not self.client.is_lost or (has_broker and not self.broker.is_lost):
            return
        for exchange in self._in_flight.abandon():
            if exchange.rule is not None and exchange.action is not None:
                self._services.give_back(exchange.rule)
        if self._silence is not None:
            self._silence.cancel()
        if self._is_open:
            self._is_open = False
            self._services.emit(ConnectionClosed(self.info, self._services.now_s(), self._reason))
        self._services.ended(self)

    def _client_is_malformed(self, problem: str) -> None:
        is_tls = problem == "it speaks TLS"
        self.close(TLS_REFUSED if is_tls else f"the client sent no request of Kafka: {problem}")

    def _broker_is_malformed(self, problem: str) -> None:
        is_tls = problem == "it speaks TLS"
        self.close(TLS_OF_BROKER if is_tls else f"an answer cannot be passed on: {problem}")

    def _pause(self, side: Side, is_full: bool) -> None:
        if is_full:
            side.pause(FULL)
        else:
            side.resume(FULL)

    # -- requests

    def _on_request(self, frame: memoryview) -> Coroutine[Any, Any, None] | None:
        if self._is_silent or self._reason:
            return None
        header = decode_request_header(frame)
        services = self._services
        request = Request(self.info, header, frame, services.now_s(), services.topic_names)
        travels: bytes | memoryview = frame
        if services.lowers_timeouts:
            travels, lowered = with_lower_timeouts(request, frame)
            request.lowered = (lowered,) if lowered else ()
        services.emit(request)
        rule = services.decide(request)
        if rule is None:
            self._forward(request, travels)
            return None
        if isinstance(rule.action, Hold) and rule.action.at is HoldPoint.BEFORE_REQUEST:
            return self._hold_request(rule, rule.action, request, travels)
        return self._act(rule, rule.action, request, travels)

    def _forward(
        self,
        request: Request,
        frame: bytes | memoryview,
        rule: Rule | None = None,
        action: Action | None = None,
    ) -> None:
        if expects_answer(request.api_key, request.version, memoryview(frame), request.body_offset):
            self._in_flight.add(Exchange(request, rule, action))
            if len(self._in_flight) >= IN_FLIGHT_MAX:
                self.client.pause(MANY_IN_FLIGHT)
        elif rule is not None and action is not None:
            self._services.give_back(rule)
        self.broker.write(frame)

    def _act(
        self, rule: Rule, action: Action, request: Request, frame: bytes | memoryview
    ) -> Coroutine[Any, Any, None] | None:
        match action:
            case AnswerError(error):
                self._tell(rule, request, error_answer(request, error), error.name, frame)
            case LoseRequest(silence_max_s):
                self._made(rule, request, "its request was lost; nothing comes back any more")
                self._fall_silent(silence_max_s)
            case Disconnect("before"):
                self._made(rule, request, "disconnected before the broker saw it")
                self.close("a rule closed it")
            case Disconnect():
                self._forward(request, frame)
                self._made(rule, request, "passed on, then disconnected")
                self.close("a rule closed it")
            case Delay(seconds, "request"):
                return self._delay_request(rule, seconds, request, frame)
            case _:
                self._forward(request, frame, rule, action)
        return None

    async def _delay_request(
        self, rule: Rule, seconds: float, request: Request, frame: bytes | memoryview
    ) -> None:
        await asyncio.sleep(seconds)
        self._made(rule, request, f"its request came {seconds:g} s later")
        self._forward(request, frame)

    async def _hold_request(
        self, rule: Rule, hold: Hold, request: Request, frame: bytes | memoryview
    ) -> None:
        ending, words = await self._services.hold(hold, request, None)
        self._made(rule, request, f"{words} {hold.at.value}")
        if ending is None:
            self._forward(request, frame)
        elif (later := self._act(rule, ending, request, frame)) is not None:
            await later

    def _tell(
        self, rule: Rule, request: Request, made: bytes, error: str, frame: bytes | memoryview
    ) -> None:
        self._made(rule, request, f"answered {error}; the broker did not see it")
        if not expects_answer(
            request.api_key, request.version, memoryview(frame), request.body_offset
        ):  # acks=0: a broker can only hang up
            self.close("a rule closed it")
            return
        answer = Answer(request, memoryview(made), self._services.now_s(), False, "delivered")
        self._in_flight.add(Exchange(request, made=answer, made_frame=made))
        if self.broker.is_idle:
            self._send_made()

    def _fall_silent(self, silence_max_s: float) -> None:
        self._is_silent = True
        self.broker.close()
        reason = f"a rule lost a request, and {silence_max_s:g} s have passed"
        self._silence = asyncio.get_running_loop().call_later(silence_max_s, self.close, reason)

    # -- answers

    def _on_answer(self, frame: memoryview) -> Coroutine[Any, Any, None] | None:
        if self._is_silent or (self._reason and self.client.is_lost):
            return None
        if len(frame) < CORRELATION_ID_BYTES:
            raise MalformedFrame(f"it has {len(frame)} bytes")
        correlation_id = int.from_bytes(frame[:CORRELATION_ID_BYTES], signed=True)
        exchange = self._in_flight.answered(correlation_id)
        if len(self._in_flight) < IN_FLIGHT_MAX:
            self.client.resume(MANY_IN_FLIGHT)
        now_s = self._services.now_s()
        answer = Answer(exchange.request, frame, now_s, True, "delivered")
        if exchange.request.api_key == METADATA:
            with contextlib.suppress(MalformedFrame):
                self._services.topic_names.learn(answer.body.topics)
        rule, action = exchange.rule, exchange.action
        if rule is None or action is None or self._is_refused(rule, action, answer):
            self._services.emit(answer)
            self._deliver(answer, frame)
            return None
        if isinstance(action, LoseAnswer):
            self._lose(rule, answer, "its answer was lost; the broker has executed it")
            return None
        self._services.emit(answer)
        if isinstance(action, Hold) and action.at is HoldPoint.AFTER_ANSWER:
            self._deliver(answer, frame)
            self._hold_client(rule, action, answer)
            return None
        return self._answer_later(rule, action, answer, frame)

    def _is_refused(self, rule: Rule, action: Action, answer: Answer) -> bool:
        """Whether the rule lets this answer pass, since it tells an error."""
        if not isinstance(action, LoseAnswer | Hold) or action.also_errors:
            return False
        try:
            is_refused = answer.error_code != 0
        except MalformedFrame:
            is_refused = False  # of a version that is not known here
        if is_refused:
            self._services.give_back(rule)
        return is_refused

    def _deliver(self, answer: Answer, frame: memoryview) -> None:
        self.client.write(rewritten_answer(answer, frame, self._proxied))
        self._send_made()

    def _send_made(self) -> None:
        for exchange in self._in_flight.take_made():
            assert exchange.made is not None
            self._services.emit(exchange.made)
            self.client.write(exchange.made_frame)

    def _lose(self, rule: Rule, answer: Answer, what: str) -> None:
        answer.fate = "lost"
        self._services.emit(answer)
        self._made(rule, answer.request, what)
        self.close("a rule closed it")

    async def _answer_later(
        self, rule: Rule, action: Action, answer: Answer, frame: memoryview
    ) -> None:
        ending: Action | None = None
        if isinstance(action, Delay):
            await asyncio.sleep(action.seconds)
            what = f"its answer came {action.seconds:g} s later"
        else:
            assert isinstance(action, Hold)
            ending, words = await self._services.hold(action, answer.request, answer)
            what = f"{words} {action.at.value}"
        if isinstance(ending, Delay):
            await asyncio.sleep(ending.seconds)
        if isinstance(ending, LoseAnswer | LoseRequest | Disconnect):
            answer.fate = "lost"
            self._made(rule, answer.request, f"{what}, which was lost then")
            self.close("a rule closed it")
            return
        self._made(rule, answer.request, what)
        self._deliver(answer, frame)

    def _hold_client(self, rule: Rule, hold: Hold, answer: Answer) -> None:
        async def held() -> None:
            await asyncio.sleep(0)  # uvloop sends at the end of a turn
            try:
                ending, words = await self._services.hold(hold, answer.request, answer)
                self._made(rule, answer.request, f"{words} {hold.at.value}")
                if isinstance(ending, Delay):
                    await asyncio.sleep(ending.seconds)
                elif ending is not None:
                    self.close("a rule closed it")
            finally:
                self.client.resume(HELD)

        self.client.pause(HELD)
        task = asyncio.get_running_loop().create_task(held())
        self._holding.add(task)
        task.add_done_callback(self._holding.discard)

    def _made(self, rule: Rule, request: Request, what: str) -> None:
        self._services.has_acted(FaultMade(rule, request, self._services.now_s(), what))
