"""The time that a client's request takes on the event loop, for request quotas (KIP-124).

The time includes the handler of a request, its coroutine and its sliced work. As in Kafka, waits
for replicas or for records are excluded. A quota of 100 % is the whole time of the broker's only
event loop.
"""

import struct
from functools import cache

from ...runtime.spent_time import SpentTime
from ...wire.framing import Buffer, RequestHeader
from ...wire.messages import control
from .client_quotas import ClientQuotas, ThrottledClient
from .pending_answer import PendingAnswer

PRODUCE, FETCH, SASL_HANDSHAKE, API_VERSIONS = 0, 1, 17, 18
WRITE_TXN_MARKERS, SASL_AUTHENTICATE = 27, 36
# Requests of logins and of brokers are exempt.
EXEMPT = (SASL_HANDSHAKE, WRITE_TXN_MARKERS, SASL_AUTHENTICATE)
_THROTTLE = struct.Struct(">i")
_ENTRY_BYTES = 7  # the size of an API in an answer of ApiVersions


class RequestTime(SpentTime):
    """The time of one request, and its throttle time."""

    __slots__ = ("_connection", "_header", "_is_recorded", "_quotas")

    def __init__(
        self, quotas: ClientQuotas, connection: ThrottledClient, header: RequestHeader
    ) -> None:
        super().__init__(quotas.clock_s)
        self._quotas, self._connection, self._header = quotas, connection, header
        self._is_recorded = False

    def throttle_ms(self) -> int:
        """Record the time of the request, and return the throttle time."""
        self._is_recorded, client_id = True, self._header.client_id
        return self._quotas.requested(self._connection, client_id, self.seconds)

    def finish(self, body: list[Buffer]) -> list[Buffer]:
        """Record the time of the request, and return the answer with the throttle time.

        An operation that appends records sets its own throttle time.
        """
        if self._is_recorded:
            return body
        api_key, version = self._header.api_key, self._header.api_version
        return with_throttle(body, api_key, version, self.throttle_ms())

    def finish_later(self, pending: PendingAnswer) -> None:
        """Record the time and set the throttle time once the answer is complete."""
        if not pending.is_done:
            pending.finish = self.finish
        elif pending.buffers:
            pending.buffers = self.finish(pending.buffers)


def with_throttle(body: list[Buffer], api_key: int, version: int, throttle_ms: int) -> list[Buffer]:
    """Return an encoded answer whose throttle_time_ms is raised to `throttle_ms` if it is lower.

    The answer's data is not copied.
    """
    if not throttle_ms or not body:
        return body
    first = memoryview(body[0])
    place = _place(api_key, version, first)
    if place is None or len(first) < place + _THROTTLE.size:
        return body
    throttle_ms = max(throttle_ms, *_THROTTLE.unpack_from(first, place))
    return [first[:place], _THROTTLE.pack(throttle_ms), first[place + 4 :], *body[1:]]


def _place(api_key: int, version: int, body: memoryview) -> int | None:
    """Return the offset of throttle_time_ms in an answer, or None if it lacks the field."""
    before = _fields_before(api_key, version)
    if not before:
        return None if before is None else 0
    if before == ("error_code",):
        return 2
    if api_key == API_VERSIONS and version >= 3:
        return 3 + _ENTRY_BYTES * (body[2] - 1)
    has_tags = version >= 2 and api_key != API_VERSIONS
    return len(body) - _THROTTLE.size - has_tags


@cache
def _fields_before(api_key: int, version: int) -> tuple[str, ...] | None:
    if api_key in (PRODUCE, FETCH):  # the schemas of these two are not loaded
        return None if api_key == PRODUCE else ()
    names = control.response_fields(api_key, version)
    return names[: names.index("throttle_time")] if "throttle_time" in names else None
