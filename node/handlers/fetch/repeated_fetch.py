"""Large fetches that a client without sessions repeats.

librdkafka has no fetch sessions. Without new records each of its fetches equals the previous one,
except for the order of the partitions. Each fetch would cost a decoding and two reads of every
partition. So a large fetch that repeats the previous one gets an internal session, which its
client does not see. If the fetch is repeated again and its partitions have not changed, the fetch
waits and gets the previous answer.
"""

import asyncio

from ....replication.delayed_operations import DelayedFetch
from ....runtime.steps import Steps
from ....wire.framing import Buffer
from ....wire.messages.fetch import FetchRequest, FetchResponse
from ....wire.messages.fetch_rows import FetchRows, fetch_rows
from ...listener.dispatch import RequestContext
from .partition_reader import FetchLook, FetchRead
from .session_fetch import SessionFetch, close_session, open_session

BODY_BYTES_MAX = 256 * 1024  # about 9,000 partitions, which take about 4 ms to compare


class KeptFetch(SessionFetch):
    """A repeated fetch with its internal session. An evicted session is no longer used."""

    def look(self) -> FetchLook:
        if self.session.is_closed:
            return FetchRead(self._context, self._request)
        return super().look()

    def refusal(self) -> FetchResponse | None:
        return None


class RepeatedFetch:
    """The last large fetch of a connection.

    `answer` is sent again if no partition changed.
    """

    __slots__ = ("_context", "_rows", "_version", "answer", "kept", "request")

    def __init__(self, context: RequestContext, version: int, rows: FetchRows) -> None:
        self._context, self._version, self._rows = context, version, rows
        self.request: FetchRequest | None = None
        self.kept: KeptFetch | None = None
        self.answer: list[Buffer] | None = None

    def is_same(self, rows: FetchRows) -> bool:
        """Return whether a request has the same partitions as this fetch, in any order."""
        return rows == self._rows

    def is_unchanged(self) -> bool:
        """Return whether a repetition of this fetch would get the stored answer."""
        kept = self.kept
        if kept is None or self.answer is None:
            return False
        session = kept.session
        return not (session.is_closed or session.changed or session.ready)

    def keep(self, request: FetchRequest) -> Steps[KeptFetch | None]:
        """Return the internal session that tracks changes of the partitions, opened if needed.

        Returns None if `open_session` opens none, or if the connection is closed.
        """
        if self._context.is_closed:
            return None
        if self.kept is not None and not self.kept.session.is_closed:
            return self.kept
        session = open_session(self._context.broker, request, self._version)
        if session is None:
            return None
        # The session is stored before the first yield, so that the end of the connection closes it.
        kept = KeptFetch(self._context, request, session, is_opening=True, is_told=False)
        self.kept = kept
        standing = self._context.broker.replicas.purgatory.standing
        yield from session.update(request, standing)
        self.request = request
        return kept

    def answered(self, look: FetchLook, answer: list[Buffer]) -> None:
        """Store an answer without records and errors, which is sent again if the fetch is repeated.

        Any other answer clears the stored one.
        """
        is_nothing = not (look.bytes_read or look.must_answer or look.is_empty)
        self.answer = answer if is_nothing and self.kept is not None else None

    async def wait(self) -> int:
        """Wait for a change or the deadline of the fetch, and return the deadline in ms."""
        request, kept = self.request, self.kept
        assert request is not None and kept is not None
        replicas = self._context.broker.replicas
        self._context.broker.fetch_sessions.touch(kept.session, replicas.clock.monotonic_ms())
        deadline_ms = replicas.clock.monotonic_ms() + request.max_wait_ms
        done = asyncio.get_running_loop().create_future()
        operation = DelayedFetch(
            {},
            max(1, request.min_bytes),
            deadline_ms,
            lambda _: done.done() or done.set_result(None),
        )
        kept.session.waiting = operation
        replicas.wait_fetch(operation)
        try:
            await done
        finally:
            replicas.purgatory.cancel(operation)
        return deadline_ms

    def close(self) -> None:
        """Close the session, because another fetch was received or the connection is closed."""
        if self.kept is not None:
            close_session(self._context.broker, self.kept.session)
            self.kept = None


def note(context: RequestContext, version: int, body: memoryview) -> Steps[RepeatedFetch | None]:
    """Return the last large fetch of the connection if this fetch repeats it.

    Otherwise store this fetch for a later repetition, unless its body is too large, and return
    None.
    """
    rows = None
    if len(body) <= BODY_BYTES_MAX:
        rows = yield from fetch_rows(body, version)
    if context.is_closed:
        return None
    repeated = _of(context)
    if repeated is not None:
        if rows is not None and repeated.is_same(rows):
            return repeated
        repeated.close()
    elif rows is not None:
        context.on_close.append(lambda: _close(context))
    if rows is not None:
        context.repeated_fetch = RepeatedFetch(context, version, rows)
    return None


def _close(context: RequestContext) -> None:
    # Otherwise there would be a reference cycle.
    repeated, context.repeated_fetch = _of(context), None
    if repeated is not None:
        repeated.close()


def _of(context: RequestContext) -> RepeatedFetch | None:
    repeated = context.repeated_fetch
    assert repeated is None or isinstance(repeated, RepeatedFetch)
    return repeated
