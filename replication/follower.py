"""What a follower of one partition does with its leader's answers.

It always asks for its own log end offset and says the epoch of its last batch; the leader
answers with data that continues that log, or with the point where the two logs part (KIP-595).
The follower then cuts its log there by the rule of KIP-101 and KIP-279 and asks again, until
the leader finds its log to be a prefix. Watermarks are taken from answers without divergence
only: before that the offsets of the two logs mean different records.

One object lives for one (leader, leader epoch).
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..wire.errors import ErrorCode
from .messages import NO_EPOCH, SlotAnswer


class FollowedLog(Protocol):
    """What the rules ask of a log; `storage.partition_log.PartitionLog` fits."""

    @property
    def log_end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def latest_epoch(self) -> int | None: ...
    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]: ...


class Append(NamedTuple):
    """Append `records` (maybe none), then raise both watermarks, each at most to our log end."""

    records: memoryview | bytes
    high_watermark: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Cut the log (and its epochs) to this end and fetch again.

    `is_below_high_watermark` happens after an unclean election only: worth a loud line.
    """

    offset: int
    is_below_high_watermark: bool


@dataclass(frozen=True, slots=True)
class StartAt:
    """Drop everything: the leader's log begins beyond our end."""

    offset: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again after the back-off; metadata may settle it earlier with a new leader epoch."""

    error: int


Action = Append | TruncateTo | StartAt | Wait


class PartitionFollower:
    """The follower's side of one partition under one leader epoch."""

    __slots__ = ("leader_epoch", "leader_id")

    def __init__(self, leader_id: int, leader_epoch: int) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch

    def fetch_position(self, log: FollowedLog) -> tuple[int, int]:
        """(fetch offset, epoch of the last batch or -1): what to tell the leader."""
        latest_epoch = log.latest_epoch
        return log.log_end_offset, NO_EPOCH if latest_epoch is None else latest_epoch

    def on_response(self, answer: SlotAnswer, log: FollowedLog) -> Action:
        """Decide what an answer to our present position means."""
        if not answer.error:
            if answer.diverging_end_offset >= 0:
                return _truncate(log, _common_end(answer, log))
            return Append(answer.records, answer.high_watermark, answer.log_start_offset)
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            return _back_in_range(answer, log)
        return Wait(answer.error)


def _common_end(answer: SlotAnswer, log: FollowedLog) -> int:
    """Where the logs part, as far as one answer tells (KIP-279)."""
    own_epoch, own_end = log.end_offset_for_epoch(answer.diverging_epoch)
    if answer.diverging_epoch < 0 or own_epoch < 0:
        # The leader knows no such old epoch, or we know none that old.
        return min(answer.diverging_end_offset, log.log_end_offset)
    if own_epoch != answer.diverging_epoch:
        # The leader's epoch is unknown here: nothing we have after our largest epoch below it
        # can be the leader's. The next fetch asks about that smaller epoch.
        return min(own_end, log.log_end_offset)
    return min(own_end, answer.diverging_end_offset, log.log_end_offset)


def _back_in_range(answer: SlotAnswer, log: FollowedLog) -> Action:
    """The leader has no such offset; its answer carries its log's two ends."""
    leader_log_end_offset = answer.diverging_end_offset
    if answer.log_start_offset > log.log_end_offset:
        return StartAt(answer.log_start_offset)
    if 0 <= leader_log_end_offset < log.log_end_offset:
        return _truncate(log, leader_log_end_offset)
    return Wait(answer.error)


def _truncate(log: FollowedLog, offset: int) -> TruncateTo:
    return TruncateTo(offset, is_below_high_watermark=offset < log.high_watermark)
