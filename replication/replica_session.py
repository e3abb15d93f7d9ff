"""The leader's end of the incremental fetch session between two broker processes.

The idea of KIP-227, carried further: a request names only the partitions (slots) that entered,
left, or moved; an answer only those that have news. So both cost as much as there is news, however
many partitions idle.

Rules that keep both sides agreed on a slot:

* After data or a divergence the leader sends nothing more for a slot until the follower has
  reported its new position: otherwise the same records would be sent twice.
* An error ends the slot on both sides. The follower adds it again, under a new number.
* Requests of a session are counted. A gap, or another incarnation on either side, ends the session,
  and the follower opens another in which every slot enters again. The request that opens one is
  answered at once: no news can be sent before.
* The follower may send news while an earlier poll still waits at the leader; the leader then
  answers the earlier one with what it has, maybe nothing. So a partition that just got a new leader
  does not wait for the end of a long poll.

High watermark and log start complete no poll: the next answer carries them, at the latest when the
poll expires.

The follower's end is `follower_session`.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..wire.identifiers import TopicIdPartition
from .messages import NO_OFFSET, ReplicaFetchRequest, SlotAnswer

ANSWERS_MAX = 128  # with records, in one response: some 5 ms here, and as much at the follower


@dataclass(slots=True, eq=False)
class LeaderSlot:
    """One partition in a session, as the leader sees it."""

    session: "LeaderSession"
    slot: int
    key: TopicIdPartition
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    awaits_position: bool = False
    is_dirty: bool = False
    is_held: bool = False  # its leader epoch has not reached us yet
    host: Any = None  # the server's: the partition
    verdict: SlotAnswer | None = None  # an error or divergence, to be sent next
    sent_high_watermark: int = NO_OFFSET
    sent_log_start_offset: int = NO_OFFSET


ReadSlot = Callable[[LeaderSlot, int, bool], SlotAnswer | None]
Watermarks = Callable[[LeaderSlot], tuple[int, int] | None]


@dataclass(slots=True, eq=False)
class LeaderSession:
    """The leader's end: which slots have news for the follower, and the poll that waits.

    `on_removed` is called for every slot that leaves. poll, its context and deadline_ms
    (monotonic), and is_due are kept here for the server of the sessions.
    """

    follower: int
    session_id: int
    on_removed: Callable[[LeaderSlot], object]
    session_epoch: int = 0  # of the last request
    broker_epoch: int = -1  # the follower's incarnation
    slots: dict[int, LeaderSlot] = field(default_factory=dict[int, LeaderSlot])
    poll: ReplicaFetchRequest | None = None
    context: object = None
    deadline_ms: int = 0
    is_due: bool = False
    # The dirty slots, in the order of their turns; and slots with only new watermarks.
    row: deque[LeaderSlot] = field(default_factory=deque[LeaderSlot])
    quiet: dict[int, LeaderSlot] = field(default_factory=dict[int, LeaderSlot])

    def apply(self, request: ReplicaFetchRequest) -> tuple[list[LeaderSlot], list[LeaderSlot]]:
        """Apply a request; return the slots that entered and those that moved."""
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
        """Remove all slots, also from the row: a slot refers to its session, which has the row."""
        for number in list(self.slots):
            self.drop(number)
        self.row.clear()

    def mark_dirty(self, slot: LeaderSlot) -> None:
        """Note possible data, error or divergence for a slot; it keeps its place in the row."""
        if not slot.is_dirty:
            slot.is_dirty = True
            self.row.append(slot)

    def collect(self, read: ReadSlot, max_bytes: int) -> list[SlotAnswer]:
        """Return answers for the slots that are next, with about max_bytes of records at most.

        It returns at most ANSWERS_MAX: the others have their turn with the next poll, which comes
        at once. read(slot, room_bytes, at_least_one_batch) gives an answer, or None for "nothing
        new". Slots without room stay first in the row. The first batch of all is read whatever its
        size: otherwise a large batch would block the session forever.
        """
        answers: list[SlotAnswer] = []
        room = max_bytes
        row = self.row
        while row and room > 0 and len(answers) < ANSWERS_MAX:
            slot = row.popleft()
            if not slot.is_dirty:
                continue  # it was dropped
            if not slot.awaits_position:
                answer = slot.verdict or read(slot, room, room == max_bytes)
                if answer is not None:
                    size_bytes = len(answer.records)
                    if not size_bytes and answer.says_nothing:  # its next batch exceeds the room
                        row.appendleft(slot)
                        break
                    self._sent(slot, answer)
                    answers.append(answer)
                    room -= size_bytes
            slot.is_dirty = False
        return answers

    def collect_watermarks(self, watermarks: Watermarks) -> list[SlotAnswer]:
        """Return answers for slots of which only the high watermark or log start changed."""
        answers: list[SlotAnswer] = []
        kept = {}
        for number, slot in self.quiet.items():
            if slot.awaits_position or slot.verdict is not None:
                kept[number] = slot  # the follower's log may diverge: no watermark yet
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
