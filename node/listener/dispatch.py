"""The dispatch of a request to its handler, and the encoding of the handler's result.

A handler gets the connection's context, the header, and the body, and returns one of four things:
  a list of buffers      the body of the answer: the fast path, without another object
  a `PendingAnswer`      the answer comes later, through a callback; the connection keeps the order
  a coroutine            waits, or takes several turns of the loop; it returns one of the others
  None                   there is no answer (a produce with acks=0)
It may raise `CloseConnection`. A KafkaError, or any unexpected exception, becomes the answer of the
row's `on_error`. An error after the handler has returned a `PendingAnswer` goes to its `fail`.

The table has the supported APIs and versions, which ApiVersions returns.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from inspect import iscoroutine, isgenerator
from typing import Any, Generic, NamedTuple, TypeVar, cast

from ...coordinator.transactions.connection_fence import StaleConnection
from ...runtime.first_step import first_step, in_task
from ...runtime.rate_limited_log import LimitedLog
from ...runtime.steps import Steps
from ...wire.errors import InvalidRequest, KafkaError, UnknownServerError
from ...wire.framing import (
    Buffer,
    RequestHeader,
    decode_request_header,
    encode_response_header,
    frame_response,
    peek_api,
)
from ...wire.messages import api_keys, control, responses
from ...wire.messages.apis import API_NAMES
from ...wire.primitives import MalformedFrame
from ..security.rights import Rights, judge
from .closing import CloseConnection, UnservedRequest
from .large_answers import REFUSED_BEYOND_BYTES, WAITS_BEYOND_BYTES
from .large_requests import ClientGone, LargeRequests, Place
from .partial_decision import DecisionInPart
from .pending_answer import PendingAnswer
from .request_context import RequestContext
from .request_time import EXEMPT, RequestTime

API_VERSIONS = 18
UNSUPPORTED_VERSION = 35
# The limit of a request that is decoded in one step; 5 ms if its entries have three bytes.
BODY_AT_ONCE_BYTES_MAX = 8 * 1024
BYTE_S = 0.5e-6  # the estimated upper bound of the time to decode one byte


Outcome = list[Buffer] | PendingAnswer | None
Handler = Callable[[RequestContext, RequestHeader, memoryview], Outcome | Awaitable[Outcome]]
ErrorHandler = Callable[[RequestContext, RequestHeader, memoryview, KafkaError], Outcome]


class Api(NamedTuple):
    """One row of the table, with an API, its supported versions, and its handler.

    A pipelined API may start while earlier requests of its connection wait for their answers, if
    those are pipelined, too. `advertised_from` differs from `min_version` for Produce only. With
    `ends_with_client` the coroutine of the handler is cancelled when the client disconnects, since
    it changes nothing. Without `on_error`, an error of the handler closes the connection. `rights`
    are the rights that the client requires, and every row must have them.
    """

    key: int
    min_version: int
    max_version: int
    handle: Handler
    on_error: ErrorHandler | None = None
    is_pipelined: bool = False
    advertised_from: int | None = None
    ends_with_client: bool = False
    rights: Rights | None = None


Request = TypeVar("Request")
Response = TypeVar("Response")
Decide = Callable[
    [RequestContext, RequestHeader, Request],
    Response | Coroutine[Any, Any, Response | Steps[Response]] | Steps[Response],
]
AnswerBytes = Callable[[RequestContext, Request], Steps[int]]

Begin = Callable[[RequestContext, RequestHeader, Request], PendingAnswer | None]
Proceed = Callable[
    [RequestContext, RequestHeader, Request, Place | None], Coroutine[Any, Any, Outcome]
]


def control_api(
    key: "api_keys.ApiKey[Request, Response]",
    versions: tuple[int, int],
    decide: Decide[Request, Response],
    on_error: Callable[[Request, KafkaError], Response],
    *,
    rights: Rights | None = None,
    begin: Begin[Request] | None = None,
    answer_bytes: AnswerBytes[Request] | None = None,
) -> Api:
    """Return a row for an API of the control plane, with messages of the codec library.

    decide: (context, header, request) -> the fields of the answer, or a coroutine of them, or
    steps (`runtime.steps`). A coroutine may wait for replicas or the controller, and may return
    steps that build the answer.
    on_error: (request, error) -> the fields of the error answer, in Kafka's shape.
    rights: see `Api`. With an authorizer they are checked before all other steps.
    begin: is called before `decide` for a request that is not large. It returns an answer that it
    encodes itself, without a task or a turn of the loop, or None to have `decide` called.
    answer_bytes: (context, request) -> steps of the memory that building the answer takes, for an
    answer that can be large for a small request (`large_answers`).

    The checks of the rights, the estimate of the size, `decide` and the encoding run one after the
    other. Each sees the state at the time when it runs. Only the request and the client's rights,
    as they were at the beginning, are passed from one to the next.
    """
    name = API_NAMES[key]

    async def proceed(
        context: RequestContext, header: RequestHeader, request: Request, place: Place | None
    ) -> Outcome:
        work, version, size_bytes = context.broker.work, header.api_version, 0
        values: Any
        try:
            decides = decide
            if context.broker.authorizer is not None:
                judging = judge(rights or (), context.access, context.broker.state, request)
                verdict = await work.finish(name, judging)
                if not verdict.is_whole:
                    decides = DecisionInPart(verdict, decide, on_error, name=name).decide
            if answer_bytes is not None:
                size_bytes = await work.finish(name, answer_bytes(context, request))
                if size_bytes > REFUSED_BEYOND_BYTES:  # mostly names that are repeated
                    raise InvalidRequest("The answer would be too large. Ask for less at a time.")
            if begin is not None and place is None and decides is decide:
                pending = begin(context, header, request)
                if pending is not None:
                    return pending
            values = decides(context, header, request)
            if iscoroutine(values):
                values = await (in_task(values) if place is None else place.decided(values))
                await work.share.room()
        except KafkaError as error:
            values = on_error(request, error)
        if size_bytes <= WAITS_BEYOND_BYTES:
            return await build(context, request, values, version)
        async with context.broker.large_answers.turn(context, context.budget, size_bytes):
            return await build(context, request, values, version)

    async def build(
        context: RequestContext, request: Request, values: Any, version: int
    ) -> list[Buffer]:
        """Run the steps that `decide` has returned, if any, and return the encoded answer.

        The caller has waited for memory if the answer is large.
        """
        try:
            if isgenerator(values):
                values = await context.broker.work.finish(name, cast("Steps[Response]", values))
        except KafkaError as error:
            values = on_error(request, error)
        answer = control.encode_short_response(key, version, values)
        return [await encoded(context, key, version, values) if answer is None else answer]

    def answer_error(
        context: RequestContext, header: RequestHeader, body: memoryview, error: KafkaError
    ) -> list[Buffer]:
        if len(body) > BODY_AT_ONCE_BYTES_MAX:  # a refusal is handled above
            raise CloseConnection(f"{name} failed: {error}")
        request = control.decode_request(key, header.api_version, body)
        return [control.encode_response(key, header.api_version, on_error(request, error))]

    return Api(key, *versions, partial(Decoding(key).then, proceed), answer_error, rights=rights)


def waiting_api(
    key: "api_keys.ApiKey[Request, Any]",
    versions: tuple[int, int],
    decide: Callable[[RequestContext, RequestHeader, Request], Outcome],
    on_error: ErrorHandler,
    *,
    rights: Rights,
) -> Api:
    """Return a row for an API whose `decide` encodes the answer itself, now or in a pending answer.

    rights: a client without these rights gets one error for the whole request.
    """

    async def proceed(
        context: RequestContext, header: RequestHeader, request: Request, _: Place | None
    ) -> Outcome:
        if context.broker.authorizer is not None:
            judging = judge(rights, context.access, context.broker.state, request)
            await context.broker.work.finish(API_NAMES[key], judging)
        return decide(context, header, request)

    return Api(key, *versions, partial(Decoding(key).then, proceed), on_error, rights=rights)


class Decoding(Generic[Request]):
    """The decoding of the requests of one API, in which large requests wait for their turn."""

    def __init__(self, key: "api_keys.ApiKey[Request, Any]") -> None:
        self._key = key
        self._large_requests = LargeRequests()

    def then(
        self,
        proceed: Proceed[Request],
        context: RequestContext,
        header: RequestHeader,
        body: memoryview,
    ) -> Any:
        """Decode a request, handle the decoded request, and return the result of the handler."""
        if len(body) > BODY_AT_ONCE_BYTES_MAX:
            return self._in_turn(proceed, context, header, body)
        request = control.decode_request(self._key, header.api_version, body)
        return first_step(proceed(context, header, request, None))

    async def _in_turn(
        self,
        proceed: Proceed[Request],
        context: RequestContext,
        header: RequestHeader,
        body: memoryview,
    ) -> Outcome:
        async with self._large_requests.turn(context, len(body)) as place:
            decoding = control.decode_request_steps(self._key, header.api_version, body)
            request = await context.broker.work.run(API_NAMES[self._key], decoding)
            return await proceed(context, header, request, place)


async def encoded(
    context: RequestContext, key: "api_keys.ApiKey[Any, Response]", version: int, values: Response
) -> bytes:
    """Encode an answer, a long one in slices."""
    answer = control.encode_short_response(key, version, values)
    if answer is not None:
        return answer
    steps = control.encode_response_steps(key, version, values)
    return await context.broker.work.run(API_NAMES[key], steps)


def _end(task: "asyncio.Task[None]") -> None:
    """Cancel a task in the next turn of the event loop, because a new task has not begun before.

    A task that is cancelled before it begins would keep its arguments in memory.
    """
    asyncio.get_running_loop().call_soon(task.cancel)


def _begin_request(context: RequestContext, header: RequestHeader) -> RequestTime | None:
    """Return the time measurement of a request, or None if request quotas do not apply to it."""
    if not context.is_let_in or header.api_key in EXEMPT:
        return None
    return RequestTime(context.broker.quotas, context, header)


class Dispatcher:
    """The dispatcher of a server, which finds the handler of a request and runs it."""

    def __init__(self, apis: Iterable[Api], log: logging.Logger) -> None:
        self.table = {api.key: api for api in apis}
        self._served = {
            (api.key, version): api
            for api in self.table.values()
            for version in range(api.min_version, api.max_version + 1)
        }
        self._limited_log = LimitedLog(log)
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, frame: memoryview) -> Api | None:
        """Return the API of a request, or None for an unknown version of ApiVersions.

        Raises UnservedRequest for any other unsupported API or version.
        """
        if len(frame) < 8:
            raise CloseConnection("a request is shorter than its header")
        asked = peek_api(frame)
        api = self._served.get(asked)
        if api is None and asked[0] != API_VERSIONS:
            raise UnservedRequest(*asked)
        return api

    def dispatch(
        self, context: RequestContext, api: Api | None, frame: memoryview
    ) -> list[Buffer] | PendingAnswer | None:
        """Handle a request, and return the encoded answer, a pending answer, or None for no answer.

        Raises CloseConnection.
        """
        if api is None:
            return self._refuse_api_versions(frame)
        try:
            header = decode_request_header(frame)
        except KafkaError as error:
            raise CloseConnection(f"a request header makes no sense: {error}") from error
        body = frame[header.body_offset :]
        response_header = encode_response_header(
            header.api_key, header.api_version, header.correlation_id
        )
        request_time = None
        if context.broker.quotas.counts_requests:
            request_time = _begin_request(context, header)
        try:
            if request_time is None:
                outcome = api.handle(context, header, body)
            else:
                context.request_time = request_time
                outcome = request_time.call(api.handle, context, header, body)
        except Exception as error:
            outcome = self._answer_error(context, api, header, body, error)
        finally:
            context.request_time = None
        if request_time is not None:
            outcome = self._measured(request_time, context, api, header, body, outcome)
        if type(outcome) is list:
            return frame_response(response_header, outcome)
        if outcome is None:
            return None
        if not isinstance(outcome, PendingAnswer):
            outcome = self._run(context, api, header, body, outcome)  # type: ignore[arg-type]
        outcome.bind(response_header)
        return outcome

    def _measured(
        self,
        request_time: RequestTime,
        context: RequestContext,
        api: Api,
        header: RequestHeader,
        body: memoryview,
        outcome: Any,
    ) -> Outcome:
        """Return the outcome of a handler, with its time measured until the answer is complete."""
        if outcome is None:
            return None
        if isinstance(outcome, list):
            return request_time.finish(cast("list[Buffer]", outcome))
        if not isinstance(outcome, PendingAnswer):
            outcome = self._run(context, api, header, body, request_time.drive(outcome))
        request_time.finish_later(outcome)
        return outcome

    def _run(
        self,
        context: RequestContext,
        api: Api,
        header: RequestHeader,
        body: memoryview,
        coroutine: Coroutine[Any, Any, Outcome],
    ) -> PendingAnswer:
        """Run a handler's coroutine in a task, and return the pending answer.

        The task continues if the client disconnects, except for an API with `ends_with_client`.
        """
        pending = PendingAnswer()
        if len(body) <= BODY_AT_ONCE_BYTES_MAX:
            context.broker.work.share.charge(len(body) * BYTE_S)

        async def run() -> None:
            try:
                try:
                    outcome = await coroutine
                except (Exception, asyncio.CancelledError) as error:
                    if pending.is_abandoned and isinstance(error, asyncio.CancelledError):
                        raise  # otherwise a task that the coroutine waits for was cancelled
                    outcome = self._answer_error(context, api, header, body, error)
            except CloseConnection as reason:
                pending.abort(str(reason))
                return
            if isinstance(outcome, PendingAnswer):
                pending.follow(outcome)
            else:
                pending.complete(outcome)

        task = asyncio.get_running_loop().create_task(run())
        if api.ends_with_client:
            pending.on_abandon = partial(_end, task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return pending

    def _answer_error(
        self,
        context: RequestContext,
        api: Api,
        header: RequestHeader,
        body: memoryview,
        error: Exception | asyncio.CancelledError,
    ) -> Outcome:
        if isinstance(error, CloseConnection):
            raise error
        if isinstance(error, ClientGone):
            raise CloseConnection("its client is gone") from error
        if isinstance(error, MalformedFrame | StaleConnection):
            raise CloseConnection(f"API {header.api_key}: {error}") from error
        if not isinstance(error, KafkaError):
            self._report(header, "failed", error)
            error = UnknownServerError()
        if api.on_error is None:
            raise CloseConnection(f"API {header.api_key} failed: {error}") from error
        try:
            return api.on_error(context, header, body, error)
        except CloseConnection:
            raise
        except Exception as failure:
            self._report(header, "failed, and its error could not be answered", failure)
            raise CloseConnection(f"API {header.api_key} failed: {error}") from failure

    def _report(self, header: RequestHeader, trouble: str, error: BaseException) -> None:
        self._limited_log.log(
            logging.ERROR,
            f"API {header.api_key} {trouble}",
            asyncio.get_running_loop().time(),
            "API %d version %d %s: %r",
            header.api_key,
            header.api_version,
            trouble,
            error,
            error=error,
        )

    def _refuse_api_versions(self, frame: memoryview) -> list[Buffer]:
        """Answer with UNSUPPORTED_VERSION in version 0, with the supported range of ApiVersions.

        The client then retries with a supported version (KIP-511).
        """
        api = self.table.get(API_VERSIONS)
        if api is None:
            raise CloseConnection("ApiVersions is not served")
        correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
        values: responses.ApiVersions.Response = {
            "error_code": UNSUPPORTED_VERSION,
            "api_keys": [
                {
                    "api_key": API_VERSIONS,
                    "min_version": api.min_version,
                    "max_version": api.max_version,
                }
            ],
        }
        body = control.encode_response(api_keys.API_VERSIONS, 0, values)
        return frame_response(encode_response_header(API_VERSIONS, 0, correlation_id), [body])
