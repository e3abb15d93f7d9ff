"""The follower's side of a replica session, which reports only changed positions to the leader.

The rules of the protocol are in `replica_session`. Times are monotonic milliseconds.
"""

from collections import deque
from dataclasses import dataclass
from itertools import islice

from ..runtime.c_calls import new_tuple
from ..wire.identifiers import TopicIdPartition
from .messages import (
    NO_EPOCH,
    NO_OFFSET,
    AddedSlot,
    MovedSlot,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    SlotAnswer,
)

ADDED_MAX = 500  # in one request, about 5 ms at the leader, which may raise as many high watermarks


@dataclass(slots=True, eq=False)
class FollowerSlot:
    """One partition in a session on the follower. `context` is an object of the caller."""

    key: TopicIdPartition
    leader_epoch: int
    context: object
    number: int = 0  # 0 while it is not in the session
    fetch_offset: int = NO_OFFSET
    last_fetched_epoch: int = NO_EPOCH
    log_start_offset: int = 0


class FollowerSession:
    """The follower's side of a replica session with one leader.

    The caller sends `next_request` whenever `should_send` is True. It passes the request with its
    response to `on_response`, or to `on_failure` if there is none.
    """

    def __init__(self) -> None:
        self.slots: dict[TopicIdPartition, FollowerSlot] = {}
        self._by_number: dict[int, FollowerSlot] = {}
        self._numbers_given = 0
        self._session_id = 0
        self._session_epoch = 0
        self._outstanding: deque[ReplicaFetchRequest] = deque()
        self._added: dict[TopicIdPartition, FollowerSlot] = {}
        self._moved: dict[int, FollowerSlot] = {}
        self._removed: list[int] = []
        self.retries: dict[TopicIdPartition, int] = {}  # key -> time of the retry

    # -- partitions

    def add(
        self,
        key: TopicIdPartition,
        leader_epoch: int,
        position: tuple[int, int],
        log_start_offset: int = 0,
        context: object = None,
    ) -> FollowerSlot:
        """Follow a partition from `position`, which is (fetch offset, last fetched epoch).

        Returns the slot of the partition. An earlier slot of the partition is removed.
        """
        self.remove(key)
        slot = FollowerSlot(key, leader_epoch, context, 0, *position, log_start_offset)
        self.slots[key] = self._added[key] = slot
        return slot

    def remove(self, key: TopicIdPartition) -> None:
        """Stop following a partition."""
        slot = self.slots.pop(key, None)
        if slot is not None:
            self.retries.pop(key, None)
            self._added.pop(key, None)
            if self._leave(slot):
                self._removed.append(slot.number)

    def moved(
        self, slot: FollowerSlot, position: tuple[int, int], log_start_offset: int | None = None
    ) -> None:
        """Report a partition's fetch position to the leader in the next request.

        The caller calls this after an append or a truncation, and to fetch from an unchanged
        position again.
        """
        slot.fetch_offset, slot.last_fetched_epoch = position
        if log_start_offset is not None:
            slot.log_start_offset = log_start_offset
        if self._by_number.get(slot.number) is slot:
            self._moved[slot.number] = slot

    def retry(self, slot: FollowerSlot, at_ms: int) -> None:
        """Remove a partition from the session after an error, and add it again at `at_ms`."""
        if self.slots.get(slot.key) is slot:
            if self._leave(slot):
                self._removed.append(slot.number)
            self._added.pop(slot.key, None)
            self.retries[slot.key] = at_ms

    # -- requests

    def should_send(self, now_ms: int) -> bool:
        """Return whether to send a request now.

        One poll always waits at the leader. If a partition was added, moved or removed, a further
        request is sent immediately, unless the current request has max_wait_ms 0 and is answered
        immediately. When a request is sent in several parts, all parts but the last have
        max_wait_ms 0.
        """
        if self.retries:
            self._enter_retries(now_ms)
        if not self._outstanding:
            return bool(self.slots) or bool(self._removed)
        has_news = bool(self._added or self._moved or self._removed)
        return has_news and self._session_id != 0 and self._outstanding[-1].max_wait_ms != 0

    def next_request(
        self, *, broker_epoch: int, max_wait_ms: int, max_bytes: int
    ) -> ReplicaFetchRequest:
        """Return the next request, with the partitions added, moved or removed since the last one.

        A new session adds all partitions again, except those that wait for a retry. A request adds
        at most ADDED_MAX partitions. More are added in parts, each after the answer to the previous
        part.
        """
        if self._session_id == 0:
            self._by_number.clear()
            self._moved.clear()
            self._removed = []
            self._added = {k: slot for k, slot in self.slots.items() if k not in self.retries}
            self._session_epoch = 0
            max_wait_ms = 0  # no news can be sent before the answer has the session id
        else:
            self._session_epoch += 1
        added = self._enter() if self._added else []
        if self._added:
            max_wait_ms = 0
        moved: list[MovedSlot] = []
        for number, slot in self._moved.items():
            position = slot.fetch_offset, slot.last_fetched_epoch, slot.log_start_offset
            moved.append(new_tuple(MovedSlot, (number, *position)))
        head = self._session_id, self._session_epoch, broker_epoch, max_wait_ms, max_bytes
        request = new_tuple(ReplicaFetchRequest, (*head, added, moved, self._removed))
        self._moved, self._removed = {}, []
        self._outstanding.append(request)
        return request

    def _enter(self) -> list[AddedSlot]:
        """Return the slots that join the session with the next request, each with a new number."""
        added: list[AddedSlot] = []
        for key in list(islice(self._added, ADDED_MAX)):
            slot = self._added.pop(key)
            self._numbers_given += 1
            slot.number = self._numbers_given
            self._by_number[slot.number] = slot
            added.append(
                AddedSlot(
                    slot.number,
                    *slot.key,
                    slot.leader_epoch,
                    slot.fetch_offset,
                    slot.last_fetched_epoch,
                    slot.log_start_offset,
                )
            )
        return added

    def on_response(
        self, request: ReplicaFetchRequest, response: ReplicaFetchResponse
    ) -> list[tuple[FollowerSlot, SlotAnswer]] | None:
        """Return the answers with their slots, [] for a late answer, None if the session has ended.

        The caller must call `moved` after data or divergence, and `retry` after an error.
        """
        outstanding = self._outstanding
        if not outstanding or outstanding[0] is not request:
            return []
        answered_id, answered_epoch, error, _, answers = response
        session_id = self._session_id or answered_id
        if (
            error
            or answered_epoch != request.session_epoch
            or session_id == 0
            or answered_id != session_id
        ):
            self.reset()
            return None
        self._session_id = session_id
        outstanding.popleft()
        found: list[tuple[FollowerSlot, SlotAnswer]] = []
        for answer in answers:
            slot = self._by_number.get(answer[0])
            if slot is not None:
                found.append((slot, answer))
        return found

    def on_failure(self, request: ReplicaFetchRequest) -> bool:
        """End the session if it sent this request, which has lost its answer.

        Returns whether the session has ended.
        """
        is_ours = any(request is other for other in self._outstanding)
        if is_ours:
            self.reset()
        return is_ours

    def reset(self) -> None:
        """Drop the session, so that the next request opens another session."""
        self._session_id = 0
        self._outstanding.clear()

    def _leave(self, slot: FollowerSlot) -> bool:
        """Remove the slot's number, and return whether the leader may still know that number."""
        self._moved.pop(slot.number, None)
        if self._by_number.get(slot.number) is not slot:
            return False
        del self._by_number[slot.number]
        return True

    def _enter_retries(self, now_ms: int) -> None:
        for key in [key for key, at_ms in self.retries.items() if at_ms <= now_ms]:
            del self.retries[key]
            self._added[key] = self.slots[key]
