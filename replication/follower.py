"""The reaction of a follower of one partition to its leader's answers.

The follower always fetches from its own log end offset, with the epoch of its last batch. The
leader answers with records that continue that log, or with the offset where the two logs diverge
(KIP-595). The follower then truncates its log by the rule of KIP-101 and KIP-279 and fetches again,
until its log is a prefix of the leader's. Watermarks are used only from answers without divergence,
because before that the offsets of the two logs mean different records.

One object is used for one (leader, leader epoch).
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..wire.errors import ErrorCode
from .messages import NO_EPOCH, SlotAnswer


class FollowedLog(Protocol):
    """The interface of a follower's log, such as `storage.partition_log.PartitionLog`."""

    @property
    def log_end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def latest_epoch(self) -> int | None: ...
    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]: ...


class Append(NamedTuple):
    """Append `records` (maybe none), then raise the high watermark and the log start offset.

    Neither offset is raised above the log end offset.
    """

    records: memoryview | bytes
    high_watermark: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Truncate the log (and its epochs) to this end and fetch again.

    `is_below_high_watermark` is possible only after an unclean election, and is logged as an error.
    """

    offset: int
    is_below_high_watermark: bool


@dataclass(frozen=True, slots=True)
class StartAt:
    """Drop the whole log, and start an empty one at `offset`, the start of the leader's log.

    The follower's log ends below that offset.
    """

    offset: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Fetch again after the back-off, unless the metadata has a new leader epoch before."""

    error: int


Action = Append | TruncateTo | StartAt | Wait


class PartitionFollower:
    """The follower's side of one partition under one leader epoch."""

    __slots__ = ("leader_epoch", "leader_id")

    def __init__(self, leader_id: int, leader_epoch: int) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch

    def fetch_position(self, log: FollowedLog) -> tuple[int, int]:
        """Return (fetch offset, epoch of the last batch or -1), the position for the leader."""
        latest_epoch = log.latest_epoch
        return log.log_end_offset, NO_EPOCH if latest_epoch is None else latest_epoch

    def on_response(self, answer: SlotAnswer, log: FollowedLog) -> Action:
        """Return the action for an answer to the current position."""
        if not answer.error:
            if answer.diverging_end_offset >= 0:
                return _truncate(log, _common_end(answer, log))
            return Append(answer.records, answer.high_watermark, answer.log_start_offset)
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            return _back_in_range(answer, log)
        return Wait(answer.error)


def _common_end(answer: SlotAnswer, log: FollowedLog) -> int:
    """Return the offset from which on this log may differ from the leader's log.

    One answer may not show the whole divergence (KIP-279), and then the next answer shows more.
    """
    own_epoch, own_end = log.end_offset_for_epoch(answer.diverging_epoch)
    if answer.diverging_epoch < 0 or own_epoch < 0:
        # The leader does not know this old epoch, or all epochs of this log are older.
        return min(answer.diverging_end_offset, log.log_end_offset)
    if own_epoch != answer.diverging_epoch:
        # The leader's epoch is unknown here, so the records after the largest smaller epoch cannot
        # be the leader's. The next fetch asks about that smaller epoch.
        return min(own_end, log.log_end_offset)
    return min(own_end, answer.diverging_end_offset, log.log_end_offset)


def _back_in_range(answer: SlotAnswer, log: FollowedLog) -> Action:
    """Return the action after OFFSET_OUT_OF_RANGE, by the start and end of the leader's log."""
    leader_log_end_offset = answer.diverging_end_offset
    if answer.log_start_offset > log.log_end_offset:
        return StartAt(answer.log_start_offset)
    if 0 <= leader_log_end_offset < log.log_end_offset:
        return _truncate(log, leader_log_end_offset)
    return Wait(answer.error)


def _truncate(log: FollowedLog, offset: int) -> TruncateTo:
    return TruncateTo(offset, is_below_high_watermark=offset < log.high_watermark)
