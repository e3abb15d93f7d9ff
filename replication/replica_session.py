"""The leader's side of the incremental fetch session between two broker processes.

This extends KIP-227. A request names only the partitions (slots) that were added, removed, or have
a new position, and an answer only those with news. So the cost of both depends on the news, not on
the number of idle partitions.

Rules that keep both sides consistent about a slot:

* After data or a divergence the leader sends nothing more for a slot until the follower has
  reported its new position. Otherwise the same records would be sent twice.
* An error removes the slot on both sides. The follower adds it again, under a new number.
* Requests of a session are counted. A gap, or another incarnation on either side, ends the session,
  and the follower opens another to which it adds every slot again. The request that opens a session
  is answered immediately, because no news can be sent before.
* The follower may send news while an earlier poll still waits at the leader. The leader then
  answers the earlier poll with the available records, maybe none. So a partition with a new leader
  does not wait for the end of a long poll.

A higher high watermark or log start completes no poll. The next answer has them, at the latest when
the poll expires.

The follower's side is `follower_session`.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..wire.identifiers import TopicIdPartition
from .messages import NO_OFFSET, ReplicaFetchRequest, SlotAnswer

ANSWERS_MAX = 128  # with records, in one response; about 5 ms here, and as much on the follower


@dataclass(slots=True, eq=False)
class LeaderSlot:
    """One partition in a session on the leader."""

    session: "LeaderSession"
    slot: int
    key: TopicIdPartition
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    awaits_position: bool = False
    is_dirty: bool = False
    is_held: bool = False  # its leader epoch was not applied here yet
    host: Any = None  # the partition on the server
    verdict: SlotAnswer | None = None  # an error or divergence to be sent next
    sent_high_watermark: int = NO_OFFSET
    sent_log_start_offset: int = NO_OFFSET


ReadSlot = Callable[[LeaderSlot, int, bool], SlotAnswer | None]
Watermarks = Callable[[LeaderSlot], tuple[int, int] | None]


@dataclass(slots=True, eq=False)
class LeaderSession:
    """The leader's side of a session, with the slots that may have news, and the waiting poll.

    `on_removed` is called for every slot that is removed. poll, its context and deadline_ms
    (monotonic), and is_due are stored here for the server of the sessions.
    """

    follower: int
    session_id: int
    on_removed: Callable[[LeaderSlot], object]
    session_epoch: int = 0  # the epoch of the last request
    broker_epoch: int = -1  # the follower's incarnation
    slots: dict[int, LeaderSlot] = field(default_factory=dict[int, LeaderSlot])
    poll: ReplicaFetchRequest | None = None
    context: object = None
    deadline_ms: int = 0
    is_due: bool = False
    # The dirty slots in the order of their answers, and the slots with only new watermarks.
    row: deque[LeaderSlot] = field(default_factory=deque[LeaderSlot])
    quiet: dict[int, LeaderSlot] = field(default_factory=dict[int, LeaderSlot])

    def apply(self, request: ReplicaFetchRequest) -> tuple[list[LeaderSlot], list[LeaderSlot]]:
        """Apply a follower's request. Return the added slots and the slots with new positions."""
        self.session_epoch = request.session_epoch
        self.broker_epoch = request.broker_epoch
        for number in request.removed:
            self.drop(number)
        moved: list[LeaderSlot] = []
        for number, fetch_offset, last_fetched_epoch, log_start_offset in request.moved:
            slot = self.slots.get(number)
            if slot is not None:
                slot.fetch_offset = fetch_offset
                slot.last_fetched_epoch = last_fetched_epoch
                slot.log_start_offset = log_start_offset
                slot.awaits_position = False
                slot.verdict = None
                moved.append(slot)
        return self._entered(request) if request.added else [], moved

    def _entered(self, request: ReplicaFetchRequest) -> list[LeaderSlot]:
        entered: list[LeaderSlot] = []
        for added in request.added:
            number, topic_id, partition, leader_epoch, offset, fetched_epoch, log_start = added
            self.drop(number)
            slot = self.slots[number] = self.quiet[number] = LeaderSlot(
                self, number, (topic_id, partition), leader_epoch, offset, fetched_epoch, log_start
            )
            entered.append(slot)
        return entered

    def drop(self, number: int) -> None:
        self.quiet.pop(number, None)
        slot = self.slots.pop(number, None)
        if slot is not None:
            slot.is_dirty = False
            self.on_removed(slot)

    def end(self) -> None:
        """Remove all slots and clear the queue, to break the cycle of slots and their session."""
        for number in list(self.slots):
            self.drop(number)
        self.row.clear()

    def mark_dirty(self, slot: LeaderSlot) -> None:
        """Put a slot whose partition may have news for the follower at the end of the queue.

        A slot that is in the queue keeps its place.
        """
        if not slot.is_dirty:
            slot.is_dirty = True
            self.row.append(slot)

    def collect(self, read: ReadSlot, max_bytes: int) -> list[SlotAnswer]:
        """Return answers for the next slots, with at most about max_bytes of records.

        At most ANSWERS_MAX answers are returned. The others follow with the next poll, which is
        sent immediately. read(slot, room_bytes, at_least_one_batch) returns an answer, or None for
        "nothing new". Slots that did not fit stay first in the queue. The first batch is read even
        if it exceeds the limit, because otherwise a large batch would block the session forever.
        """
        answers: list[SlotAnswer] = []
        room = max_bytes
        row = self.row
        while row and room > 0 and len(answers) < ANSWERS_MAX:
            slot = row.popleft()
            if not slot.is_dirty:
                continue  # the slot was removed
            if not slot.awaits_position:
                answer = slot.verdict or read(slot, room, room == max_bytes)
                if answer is not None:
                    size_bytes = len(answer.records)
                    if not size_bytes and answer.says_nothing:  # its next batch does not fit
                        row.appendleft(slot)
                        break
                    self._sent(slot, answer)
                    answers.append(answer)
                    room -= size_bytes
            slot.is_dirty = False
        return answers

    def collect_watermarks(self, watermarks: Watermarks) -> list[SlotAnswer]:
        """Return answers for slots with a new high watermark or log start, and no other news.

        `watermarks` returns (high watermark, log start) of a slot, or None for a slot without a
        leader.
        """
        answers: list[SlotAnswer] = []
        kept = {}
        for number, slot in self.quiet.items():
            if slot.awaits_position or slot.verdict is not None:
                kept[number] = slot  # no watermark yet, since the follower's log may diverge
                continue
            current = watermarks(slot)
            if current is not None and current != (
                slot.sent_high_watermark,
                slot.sent_log_start_offset,
            ):
                slot.sent_high_watermark, slot.sent_log_start_offset = current
                answers.append(SlotAnswer(number, 0, *current))
        self.quiet = kept
        return answers

    def _sent(self, slot: LeaderSlot, answer: SlotAnswer) -> None:
        number, error, high_watermark, log_start_offset, _, diverging_end_offset, _ = answer
        if error and answer.ends_slot:
            self.drop(slot.slot)
            return
        slot.verdict = None
        slot.awaits_position = True
        if not error and diverging_end_offset < 0:
            slot.sent_high_watermark = high_watermark
            slot.sent_log_start_offset = log_start_offset
            if number in self.quiet:
                del self.quiet[number]
