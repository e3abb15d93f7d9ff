"""Fetch sessions of consumers (KIP-227), in which a client does not repeat known partitions.

A full fetch opens a session and is answered with all of its partitions. Each later fetch names only
the partitions that are new, removed, or have another position. Its answer has only the partitions
with news, which are records, an error, or another high watermark or log start offset. The session's
epoch counts the requests. A request with a wrong epoch is refused. A request is also refused if the
next request of its session is received before the request is answered.

The cost of a request and its answer is proportional to the changes. `ready` has the partitions with
news at their last read, or with records that did not fit into the answer. `changed` has the
partitions that must be read (see `standing_fetches`). The client is up to date with all others. A
partition goes to the end of the queue when its records are sent (KIP-74).

This file is pure, with times in monotonic milliseconds. Sessions of followers are separate (see
`replica_session`).
"""

from collections.abc import Iterable
from itertools import chain, islice
from typing import cast

from ..runtime.steps import StepCounter, Steps
from ..wire.messages.fetch import FetchedPartition, FetchPartition, FetchRequest
from .standing_fetches import StandingFetch, StandingFetches, StandingPlace

NO_SESSION_ID = 0
INITIAL_EPOCH, FINAL_EPOCH = 0, -1  # the epochs of requests that name all their partitions
EPOCH_MAX = 2**31 - 1
_NO_EPOCH = EPOCH_MAX + 1  # an epoch that no request can have
PartitionKey = tuple[bytes | str | None, int]


def is_full(epoch: int) -> bool:
    """Return whether a request with this epoch names all its partitions."""
    return epoch in (INITIAL_EPOCH, FINAL_EPOCH)


def next_epoch(epoch: int) -> int:
    """Return the epoch of the next request."""
    return epoch + 1 if epoch < EPOCH_MAX else 1


class SessionPartition(StandingPlace):
    """A partition of a fetch session, with the client's position and the last answered offsets."""

    __slots__ = (
        "has_more",
        "high_watermark",
        "log_start_offset",
        "topic_id",
        "topic_name",
        "wanted",
    )

    def __init__(
        self,
        session: "FetchSession",
        topic_name: str | None,
        topic_id: bytes | None,
        wanted: FetchPartition,
    ) -> None:
        super().__init__(session)
        self.topic_name, self.topic_id, self.wanted = topic_name, topic_id, wanted
        self.high_watermark = self.log_start_offset = -1
        self.has_more = False  # more records can be read from the requested position

    def must_answer(self, answer: FetchedPartition) -> bool:
        """Return whether the answer has anything new for the client."""
        return bool(
            answer.records
            or answer.error_code
            or answer.diverging_epoch is not None
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
        )

    def was_answered(self, answer: FetchedPartition) -> None:
        """Record the offsets in an answer for this partition, to recognise news in later answers.

        After an error or a divergence, the next answer for the partition counts as news.
        """
        is_known = not answer.error_code and answer.diverging_epoch is None
        self.high_watermark = answer.high_watermark if is_known else -1
        self.log_start_offset = answer.log_start_offset


class FetchSession(StandingFetch):
    """The fetch session of one client. `epoch` is the epoch that its next request must have."""

    __slots__ = (
        "created_ms",
        "epoch",
        "is_closed",
        "is_evictable",
        "last_used_ms",
        "partitions",
        "ready",
        "session_id",
        "size",
        "uses_topic_ids",
    )

    def __init__(self, session_id: int, now_ms: int, *, uses_topic_ids: bool) -> None:
        super().__init__()
        self.session_id, self.uses_topic_ids = session_id, uses_topic_ids
        self.created_ms = self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.partitions: dict[PartitionKey, SessionPartition] = {}
        self.ready: dict[StandingPlace, None] = {}
        self.size = 0  # the size that the cache has recorded
        self.is_closed = self.is_evictable = False

    def is_at(self, epoch: int) -> bool:
        """Return whether the session is open and got no request after the one with this epoch."""
        return not self.is_closed and self.epoch == next_epoch(epoch)

    def update(self, request: FetchRequest, standing: StandingFetches) -> Steps[None]:
        """Apply the partitions that a request adds, changes and removes, in steps.

        Until the last step the session has no epoch, so every other request is refused.
        """
        if self.is_closed:
            return
        partitions, changed = self.partitions, self.changed
        self.epoch = _NO_EPOCH
        counter = StepCounter()
        for topic in request.topics:
            name = topic.topic_id or topic.name
            for wanted in topic.partitions:
                place = partitions.get((name, wanted.index))
                if place is None:
                    place = SessionPartition(self, topic.name, topic.topic_id, wanted)
                    partitions[name, wanted.index] = place
                else:
                    place.wanted = wanted
                    # Its records were sent, so it goes behind the others.
                    self.ready.pop(place, None)
                changed[place] = None
                if counter.ends_step():
                    yield
                    if self.is_closed:  # `unlink` has removed all places
                        return
        for gone in request.forgotten_topics:
            for index in gone.partitions:
                place = partitions.pop((gone.topic_id or gone.name, index), None)
                if place is not None:
                    standing.unwatch(place)
                    changed.pop(place, None)
                    self.ready.pop(place, None)
                if counter.ends_step():
                    yield
                    if self.is_closed:
                        return
        self.epoch = next_epoch(request.session_epoch)

    def set_isolation(self, read_committed: bool) -> None:
        """Set the isolation level. If it changes, every partition must be read again."""
        if self.read_committed != read_committed:
            self.read_committed = read_committed
            self.changed.update(dict.fromkeys(self.partitions.values()))

    def places_to_read(self, count_max: int) -> list[SessionPartition]:
        """Return the partitions that the next fetch must read, in order, at most `count_max`."""
        changed = (place for place in self.changed if place not in self.ready)
        places = cast("Iterable[SessionPartition]", chain(self.ready, changed))
        return list(islice(places, count_max))

    def was_read(self, place: SessionPartition, answer: FetchedPartition) -> bool:
        """Record the read of a partition, and return whether its answer has news for the client.

        A partition with news, or with more records than were read, is read again by the next fetch.
        """
        must_answer = place.must_answer(answer)
        if must_answer or place.has_more:
            self.ready[place] = None
        else:
            self.ready.pop(place, None)
        return must_answer

    def was_answered(self, place: SessionPartition, answer: FetchedPartition) -> None:
        """Record the answer for a partition, which the client gets unless it loses the session.

        A partition with sent records, or an error or divergence, goes to the end of the queue.
        Without more to read, any other partition leaves the queue.
        """
        place.was_answered(answer)
        is_served = answer.records or answer.error_code or answer.diverging_epoch is not None
        if place in self.ready and (is_served or not place.has_more):
            del self.ready[place]
            if is_served:
                self.changed[place] = None

    def unlink(self, standing: StandingFetches) -> Steps[None]:
        """Remove all partitions of a closed session, in steps."""
        for number, place in enumerate(list(self.partitions.values()), 1):
            standing.unwatch(place)
            if number % 100 == 0:
                yield
        self.partitions.clear()
        self.ready.clear()
        self.changed.clear()
