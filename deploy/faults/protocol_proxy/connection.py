"""A client's connection through the proxy to one broker. Rules may act on its requests.

This is the shell. Its actions are decided by the rules.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from ....wire.error_codes import ErrorCode
from ....wire.framing import decode_request_header
from ....wire.messages.api_keys import METADATA
from ....wire.primitives import MalformedFrame
from .bodies import CORRELATION_ID_BYTES, expects_answer
from .error_answers import error_answer
from .events import (
    Answer,
    FaultMade,
    Request,
)
from .in_flight import Exchange
from .login_lifetimes import with_shorter_lifetime
from .rewriting import Proxied, refused_api_versions, rewritten_answer
from .rules import (
    Action,
    AnswerError,
    Delay,
    Disconnect,
    Hold,
    HoldPoint,
    LoseAnswer,
    LoseRequest,
    Rule,
)
from .timeouts import with_lower_timeouts
from .two_ends import MANY_IN_FLIGHT, NOT_READ, Services, TwoEnds

IN_FLIGHT_MAX = 1_000
HELD = "a rule holds it"


class ProxiedConnection(TwoEnds):
    """A connection that forwards requests and answers, and executes rules' actions on them."""

    def __init__(
        self,
        services: Services,
        connection_id: int,
        instance: str,
        broker_id: int | None,
        proxied: Proxied,
    ) -> None:
        super().__init__(services, connection_id, instance, broker_id)
        self._proxied = proxied
        self._holding: set[asyncio.Task[None]] = set()
        self._holds = 0

    # -- requests

    def _on_request(self, frame: memoryview) -> Coroutine[Any, Any, None] | None:
        if self._is_silent or self._reason:
            return None
        header = decode_request_header(frame)
        services = self._services
        request = Request(self.info, header, frame, services.now_s(), services.topic_names)
        travels: bytes | memoryview = frame
        if lowest_ms := services.transaction_timeout_ms:
            travels, lowered = with_lower_timeouts(request, frame, lowest_ms)
            request.lowered = (lowered,) if lowered else ()
        services.emit(request)
        if (refused := refused_api_versions(request)) is not None:
            self._answer(request, refused)
            return None
        self._expects_answer(request, frame)  # a rule does not count a malformed Produce
        rule = services.decide(request)
        if rule is None:
            self._forward(request, travels)
            return None
        if isinstance(rule.action, Hold) and rule.action.at is HoldPoint.BEFORE_REQUEST:
            work = self._hold_request(rule, rule.action, request, travels)
        else:
            work = self._act(rule, rule.action, request, travels, "")
        return None if work is None else self._counted(rule, work)

    @staticmethod
    def _expects_answer(request: Request, frame: bytes | memoryview) -> bool:
        offset = request.body_offset
        return expects_answer(request.api_key, request.version, memoryview(frame), offset)

    async def _counted(self, rule: Rule, work: Coroutine[Any, Any, None]) -> None:
        """Await the action of a rule, which does not count if the connection is cut before."""
        try:
            await work
        except asyncio.CancelledError:
            self._services.give_back(rule)
            raise

    def _forward(
        self,
        request: Request,
        frame: bytes | memoryview,
        rule: Rule | None = None,
        action: Action | None = None,
    ) -> None:
        if not self._has_ended and self._expects_answer(request, frame):
            self._add(Exchange(request, rule, action))
        elif rule is not None and action is not None:
            self._services.give_back(rule)
        self.broker.write(frame)

    def _add(self, exchange: Exchange) -> None:
        self._in_flight.add(exchange)
        if len(self._in_flight) >= IN_FLIGHT_MAX:
            self.client.pause(MANY_IN_FLIGHT)

    def _act(
        self, rule: Rule, action: Action, request: Request, frame: bytes | memoryview, before: str
    ) -> Coroutine[Any, Any, None] | None:
        """Execute a rule's action on a request.

        Returns a coroutine for the rest if the action takes time, else None. `before` describes
        actions that were executed before.
        """
        match action:
            case AnswerError(error):
                self._made(rule, request, f"answered {error.name}; the broker did not see it")
                self._tell(request, error, frame)
            case LoseRequest(silence_max_s):
                self._made(rule, request, f"{before}its request was lost; nothing comes back now")
                self._fall_silent(silence_max_s)
            case Disconnect("before"):
                self._made(rule, request, f"{before}disconnected before the broker saw it")
                self.close("a rule closed it")
            case Disconnect():
                self._forward(request, frame)
                self._made(rule, request, f"{before}passed on, then disconnected")
                self.close("a rule closed it")
            case Delay(seconds, "request"):
                return self._delay_request(rule, seconds, request, frame, before)
            case _:
                self._forward(request, frame, rule, action)
        return None

    async def _delay_request(
        self, rule: Rule, seconds: float, request: Request, frame: bytes | memoryview, before: str
    ) -> None:
        await asyncio.sleep(seconds)
        self._made(rule, request, f"{before}its request came {seconds:g} s later")
        self._forward(request, frame)

    async def _hold_request(
        self, rule: Rule, hold: Hold, request: Request, frame: bytes | memoryview
    ) -> None:
        ending, words = await self._services.hold(hold, request, None)
        done = f"{words} {hold.at.value}"
        if ending is None:
            self._made(rule, request, done)
            self._forward(request, frame)
        elif (later := self._act(rule, ending, request, frame, f"{done}, then ")) is not None:
            await later

    def _tell(self, request: Request, error: ErrorCode, frame: bytes | memoryview) -> None:
        if self._expects_answer(request, frame):
            self._answer(request, error_answer(request, error))
        else:  # with acks=0, a broker can only close the connection
            self.close("a rule closed it")

    def _answer(self, request: Request, made: bytes) -> None:
        """Send the frame `made` as the answer, after the answers to earlier requests."""
        answer = Answer(request, memoryview(made), self._services.now_s(), False, "delivered")
        self._add(Exchange(request, made=answer, made_frame=made))
        if self.broker.is_idle:
            self._send_made()
        if self.client.is_full:
            self.client.pause(NOT_READ)

    def _fall_silent(self, silence_max_s: float) -> None:
        self._is_silent = True
        self.broker.close()
        reason = f"a rule lost a request, and {silence_max_s:g} s have passed"
        loop = asyncio.get_running_loop()
        self._silence = loop.call_later(silence_max_s, self.close, reason)

    # -- answers

    def _on_answer(self, frame: memoryview) -> Coroutine[Any, Any, None] | None:
        if self._is_silent or (self._reason and self.client.is_lost):
            return None
        if len(frame) < CORRELATION_ID_BYTES:
            raise MalformedFrame(f"it has {len(frame)} bytes")
        correlation_id = int.from_bytes(frame[:CORRELATION_ID_BYTES], signed=True)
        exchange = self._in_flight.answered(correlation_id)
        now_s = self._services.now_s()
        fate = "lost" if self.client.is_lost else "delivered"
        answer = Answer(exchange.request, frame, now_s, True, fate)
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
        if isinstance(action, Hold) and action.at is HoldPoint.AFTER_ANSWER:
            self._services.emit(answer)
            self._deliver(answer, frame)
            self._hold_client(rule, action, answer)
            return None
        answer.fate = "held"
        self._services.emit(answer)
        return self._counted(rule, self._answer_later(rule, action, answer, frame))

    def _is_refused(self, rule: Rule, action: Action, answer: Answer) -> bool:
        """Return whether an answer has an error, and if so undo the count of the rule's action.

        The answer must then be forwarded. Returns False for an action that also applies to errors.
        """
        if not isinstance(action, LoseAnswer | Hold) or action.also_errors:
            return False
        try:
            is_refused = answer.error_code != 0
        except MalformedFrame:
            is_refused = False  # of an unknown version
        if is_refused:
            self._services.give_back(rule)
        return is_refused

    def _deliver(self, answer: Answer, frame: memoryview) -> None:
        travels = rewritten_answer(answer, frame, self._proxied)
        lifetime_ms = self._services.login_lifetime_ms
        self.client.write(with_shorter_lifetime(answer, travels, lifetime_ms))
        self._send_made()

    def _send_made(self) -> None:
        for exchange in self._in_flight.take_made():
            assert exchange.made is not None
            self._services.emit(exchange.made)
            self.client.write(exchange.made_frame)
        if len(self._in_flight) < IN_FLIGHT_MAX:
            self.client.resume(MANY_IN_FLIGHT)

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
        answer.fate = "lost" if self.client.is_lost else "delivered"
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
                self.client.resume(held_by)

        self._holds += 1
        held_by = f"{HELD} ({self._holds})"  # several answers may be held after one another
        self.client.pause(held_by)
        task = asyncio.get_running_loop().create_task(held())
        self._holding.add(task)
        task.add_done_callback(self._holding.discard)

    def _made(self, rule: Rule, request: Request, what: str) -> None:
        self._services.has_acted(FaultMade(rule, request, self._services.now_s(), what))
