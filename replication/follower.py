"""How a follower of one partition acts on its leader's answers.

It always asks for its own log end offset and names the epoch of its last batch; the leader answers
with data that continues that log, or with the point where the two logs diverge (KIP-595). The
follower then truncates its log there by the rule of KIP-101 and KIP-279 and asks again, until the
leader finds its log to be a prefix. Watermarks are taken only from answers without divergence:
before that the offsets of the two logs mean different records.

One object lives for one (leader, leader epoch).
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ..wire.errors import ErrorCode
from .messages import NO_EPOCH, SlotAnswer


class FollowedLog(Protocol):
    """The log as the rules need it; `storage.partition_log.PartitionLog` fits."""

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
    """Truncate the log (and its epochs) to this end and fetch again.

    `is_below_high_watermark` happens only after an unclean election and is logged as an error.
    """

    offset: int
    is_below_high_watermark: bool


@dataclass(frozen=True, slots=True)
class StartAt:
    """Drop the whole log: the leader's log begins beyond our end."""

    offset: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again after the back-off; a new leader epoch in the metadata may come earlier."""

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
        """Decide what an answer to our present position means."""
        if not answer.error:
            if answer.diverging_end_offset >= 0:
                return _truncate(log, _common_end(answer, log))
            return Append(answer.records, answer.high_watermark, answer.log_start_offset)
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            return _back_in_range(answer, log)
        return Wait(answer.error)


def _common_end(answer: SlotAnswer, log: FollowedLog) -> int:
    """Return where the logs diverge, as far as one answer shows (KIP-279)."""
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
    """Handle an offset that the leader does not have, by the two ends of the leader's log."""
    leader_log_end_offset = answer.diverging_end_offset
    if answer.log_start_offset > log.log_end_offset:
        return StartAt(answer.log_start_offset)
    if 0 <= leader_log_end_offset < log.log_end_offset:
        return _truncate(log, leader_log_end_offset)
    return Wait(answer.error)


def _truncate(log: FollowedLog, offset: int) -> TruncateTo:
    return TruncateTo(offset, is_below_high_watermark=offset < log.high_watermark)
