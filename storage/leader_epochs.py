"""The leader epochs of a log, and the start offset of each (KIP-101, KIP-279, KIP-320).

The list has (epoch, start offset), both strictly rising. No batch of an epoch begins below its
start offset, and the epoch ends at the next entry's start, or at the log end. Batches have their
epoch, so the list can be rebuilt from the log. The list is stored in a file to avoid a rebuild.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1
OFFSET_MAX = 2**63 - 1


class EpochStart(NamedTuple):
    """A leader epoch and the offset at which it begins, even without a batch."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """The leader epochs of one log.

    If a method returns True, they have changed and must be saved.
    """

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries: list[EpochStart] = []
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int | None:
        """Return the latest epoch, or None if there was none."""
        return self._entries[-1].epoch if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that `epoch` begins at `start_offset`.

        If `epoch` is the latest epoch, its start offset can only become lower. Earlier entries with
        a higher or equal epoch or start offset are removed, because their batches were truncated or
        never written.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} at offset {start_offset}")
        entries = self._entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochStart(epoch, start_offset))
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest epoch up to `epoch`, and its end offset (exclusive).

        Returns (-1, -1) if `epoch` is undefined or later than every known epoch. An epoch older
        than all known epochs returns itself and the start of the first known epoch, so that a
        follower truncates to the start of this log.
        """
        entries = self._entries
        if epoch == UNDEFINED_EPOCH or not entries or epoch > entries[-1].epoch:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == entries[-1].epoch:
            return epoch, log_end_offset
        higher = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        floor_epoch = entries[higher - 1].epoch if higher else epoch
        return floor_epoch, entries[higher].start_offset

    def epoch_for(self, offset: int) -> int | None:
        """Return the epoch of `offset`, or None below the first known epoch."""
        at = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[at - 1].epoch if at else None

    def span_of(self, offset: int) -> tuple[int | None, int]:
        """Return the epoch of `offset`, and the start offset of the next epoch or OFFSET_MAX.

        The epoch is None below the first known epoch.
        """
        entries = self._entries
        if entries and entries[-1].start_offset <= offset:
            return entries[-1].epoch, OFFSET_MAX
        at = bisect_right(entries, offset, key=lambda entry: entry.start_offset)
        end_offset = entries[at].start_offset if entries else OFFSET_MAX
        return entries[at - 1].epoch if at else None, end_offset

    def truncate_from_end(self, end_offset: int) -> bool:
        """Remove the epochs that begin at or above the new log end `end_offset`."""
        entries = self._entries
        before = len(entries)
        while entries and entries[-1].start_offset >= end_offset:
            entries.pop()
        return len(entries) != before

    def truncate_from_start(self, start_offset: int) -> bool:
        """Remove the epochs that end at or below the new log start `start_offset`.

        The epoch of `start_offset` stays, and now begins there.
        """
        entries = self._entries
        at = bisect_right(entries, start_offset, key=lambda entry: entry.start_offset)
        if at == 0 or (at == 1 and entries[0].start_offset == start_offset):
            return False
        entries[:at] = [EpochStart(entries[at - 1].epoch, start_offset)]
        return True

    def clear(self) -> bool:
        had = bool(self._entries)
        self._entries.clear()
        return had
