"""A fetch within a session (KIP-227).

`replication/fetch_session.py` defines a session. This file opens, continues and closes sessions. If
a request of a session arrives while an earlier one waits, the earlier one gets an error.
"""

import random
from collections.abc import Callable
from itertools import islice
from typing import cast

from ....coordinator.metadata.topic_names import NAME_CHARS_MAX
from ....replication.delayed_operations import BYTES_UNKNOWN, DelayedFetch
from ....replication.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION_ID,
    FetchSession,
    SessionPartition,
    is_full,
)
from ....runtime.steps import StepCounter, Steps
from ....wire.errors import ErrorCode, error_for
from ....wire.messages.fetch import (
    FetchedPartition,
    FetchedTopic,
    FetchRequest,
    FetchResponse,
)
from ....wire.messages.fetch_answer import TOPIC_IDS_FROM
from ...listener.dispatch import RequestContext
from ...partitions.hosted_partition import HostedPartition
from ...services import BrokerServices
from .partition_reader import PARTITIONS_PER_STEP, FetchLook, PartitionReader

SESSIONS_FROM = 7
PLACES_AT_ONCE_MAX = 200  # about 1 ms


class SessionFetch:
    """A fetch that opens or continues a session.

    `is_opening`: this fetch opens the session. `is_told`: the answer contains the session id.
    """

    __slots__ = ("_context", "_request", "is_opening", "is_told", "session")

    def __init__(
        self,
        context: RequestContext,
        request: FetchRequest,
        session: FetchSession,
        *,
        is_opening: bool,
        is_told: bool = True,
    ) -> None:
        self._context, self._request, self.session = context, request, session
        self.is_opening, self.is_told = is_opening, is_told

    @property
    def size(self) -> int:
        """The number of partitions that the first read must include, or 0 for any number."""
        return len(self.session.partitions) if self.is_opening else 0

    def update(self) -> "Steps[SessionFetch | None]":
        """Update the session from the request, and return this fetch.

        A continued session without partitions is closed, and None is returned.
        Raises FETCH_SESSION_ID_NOT_FOUND, or INVALID_FETCH_SESSION_EPOCH if another request has
        continued the session.
        """
        broker, session = self._context.broker, self.session
        if not self.is_opening and session.epoch != self._request.session_epoch:
            raise error_for(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        yield from session.update(self._request, broker.replicas.purgatory.standing)
        _free(broker, session)
        if session.is_closed:
            raise error_for(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if self.is_opening:
            return self
        if not session.partitions:
            close_session(broker, session)
            return None
        if not broker.fetch_sessions.touch(session, broker.replicas.clock.monotonic_ms()):
            close_session(broker, session)
            raise error_for(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return self

    def look(self) -> FetchLook:
        return SessionRead(self, self._context, self._request)

    def refusal(self) -> FetchResponse | None:
        """Return the error if another request has continued or closed the session, else None."""
        if self.session.is_at(self._request.session_epoch):
            return None
        if self.session.is_closed:
            return refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH, self.session.session_id)

    def abandoned(self) -> None:
        """Close a session that was being opened, because its client will never learn its id."""
        if self.is_opening:
            close_session(self._context.broker, self.session)


class SessionRead(PartitionReader):
    """One read of a session's changed partitions, or of all partitions when the session is opened.

    Partitions that exceed the limit of one read are left for the next fetch.
    """

    def __init__(self, asked: SessionFetch, context: RequestContext, request: FetchRequest) -> None:
        super().__init__(context, request)
        self._session, self._is_opening = asked.session, asked.is_opening
        self._told_id = asked.session.session_id if asked.is_told else NO_SESSION_ID
        self._standing = self.replicas.purgatory.standing
        self._seen: list[tuple[SessionPartition, FetchedPartition]] = []
        self._place: SessionPartition | None = None

    @property
    def is_empty(self) -> bool:
        return not self._session.partitions

    def run(self) -> None:
        for place in self._begin():
            if self.is_full and not self._is_opening:
                break
            self._look_at(place)
        self.is_partial = not self._is_opening and bool(self._session.changed)

    def steps(self) -> Steps[None]:
        if not self._is_opening:
            self.run()
            return
        session, epoch = self._session, self._session.epoch
        for number, place in enumerate(self._begin(), 1):
            self._look_at(place)
            if number % PARTITIONS_PER_STEP == 0:
                yield
                if session.is_closed or session.epoch != epoch:
                    self.is_void = True
                    return

    def is_outdated(self) -> bool:
        if self._session.is_closed:
            return True
        changed = list(islice(self._session.changed, PLACES_AT_ONCE_MAX + 1))
        if len(changed) > PLACES_AT_ONCE_MAX:
            return True
        bytes_before = self.bytes_read
        for place in changed:
            self._look_at(cast("SessionPartition", place))
        return self.must_answer or self.bytes_read > bytes_before

    def answer(self) -> Steps[FetchResponse]:
        self.count_sent()
        topics: dict[bytes | str | None, FetchedTopic] = {}
        counter = StepCounter()
        for place, answer in self._seen:
            key = place.topic_id or place.topic_name
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = FetchedTopic(place.topic_name, place.topic_id, [])
            topic.partitions.append(answer)
            self._session.was_answered(place, answer)
            if counter.ends_step():
                yield
        return FetchResponse(
            list(topics.values()),
            session_id=self._told_id,
            node_endpoints=self.hints.endpoints,
        )

    def delayed(self, deadline_ms: int, context: Callable[[DelayedFetch], object]) -> DelayedFetch:
        missing_bytes = max(1, self.request.min_bytes - self.bytes_read)
        operation = DelayedFetch({}, missing_bytes, deadline_ms, context)
        self._session.waiting = operation
        return operation

    def saw(self, partition: HostedPartition, offset: int, upper: int, is_hidden: bool) -> None:
        place = self._place
        assert place is not None
        place.has_more = upper > offset
        place.was_read(max(offset, upper), BYTES_UNKNOWN if is_hidden else 0)
        if not self._session.is_closed:  # the partitions of a closed session are already released
            self._standing.watch(place, partition)

    def _begin(self) -> list[SessionPartition]:
        session = self._session
        session.set_isolation(self.read_committed)
        if self._is_opening:
            return list(session.partitions.values())
        return session.places_to_read(PLACES_AT_ONCE_MAX)

    def _look_at(self, place: SessionPartition) -> None:
        session = self._session
        session.changed.pop(place, None)
        self._place, place.has_more = place, False
        answer = self.read(place.topic_name, place.topic_id, place.wanted)
        if answer.error_code or answer.diverging_epoch is not None:
            self._standing.unwatch(place)
        if session.was_read(place, answer) or self._is_opening:
            self._seen.append((place, answer))


def begin(context: RequestContext, request: FetchRequest, version: int) -> SessionFetch | None:
    """Return the session that a request continues or opens.

    Returns None for a request without a session, or if no session can be opened.
    Raises FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
    """
    broker, epoch = context.broker, request.session_epoch
    if version < SESSIONS_FROM:
        return None
    known = broker.fetch_sessions.get(request.session_id)
    if is_full(epoch):
        if known is not None:
            close_session(broker, known)
        if epoch == FINAL_EPOCH:
            return None
        session = open_session(broker, request, version)
        if session is None:
            return None
    elif known is None:
        raise error_for(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    elif known.epoch != epoch:
        raise error_for(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    elif known.uses_topic_ids != (version >= TOPIC_IDS_FROM):
        raise error_for(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
    elif _has_overlong_name(request):
        close_session(broker, known)
        raise error_for(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    else:
        session = known
    return SessionFetch(context, request, session, is_opening=epoch == INITIAL_EPOCH)


def open_session(
    broker: BrokerServices, request: FetchRequest, version: int
) -> FetchSession | None:
    """Return a new, empty session for the requested partitions.

    Returns None if the cache is full or a topic name is too long.
    """
    if _has_overlong_name(request):
        return None
    size = sum(len(topic.partitions) for topic in request.topics)
    now_ms = broker.replicas.clock.monotonic_ms()
    by_id = version >= TOPIC_IDS_FROM
    cache = broker.fetch_sessions
    session, evicted = cache.open(size, now_ms, _draw_id, uses_topic_ids=by_id)
    for each in evicted:
        _end(broker, each)
    return session


def _has_overlong_name(request: FetchRequest) -> bool:
    """Return whether a topic name exceeds the limit of the cache.

    The cache would keep up to 32 kB for each long name.
    """
    return any(len(topic.name or "") > NAME_CHARS_MAX for topic in request.topics)


def refused(code: int, session_id: int = NO_SESSION_ID) -> FetchResponse:
    """Return the error answer to a whole request, without partitions."""
    return FetchResponse([], error_code=code, session_id=session_id)


def close_session(broker: BrokerServices, session: FetchSession) -> None:
    """Close a session, and answer its waiting fetch."""
    broker.fetch_sessions.close(session)
    _end(broker, session)


def _end(broker: BrokerServices, session: FetchSession) -> None:
    _free(broker, session)
    broker.work.begin("end of a fetch session", session.unlink(broker.replicas.purgatory.standing))


def _free(broker: BrokerServices, session: FetchSession) -> None:
    operation, session.waiting = session.waiting, None
    if operation is not None:
        broker.replicas.free_fetch(operation)


def _draw_id() -> int:
    return random.randint(1, 2**31 - 1)
