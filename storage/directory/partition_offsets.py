"""The four checkpoints of a data directory, each with an offset for each partition.

For partitions that are not open the offsets are those of the files at the start. One thread writes
the files, while another may collect the offsets to write.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from ...runtime.fault_point import FaultPoint
from ...runtime.steps import Steps
from ...wire.identifiers import TopicPartition
from ..checkpoint import (
    CLEANED_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    OffsetCheckpoint,
)
from ..partition_log import PartitionLog

logger = logging.getLogger(__name__)
LOGS_A_STEP = 256  # some 0.2 ms

# The offset of a log for each checkpoint; None for no entry.
CHECKPOINTS: dict[str, Callable[[PartitionLog], int | None]] = {
    HIGH_WATERMARKS: lambda log: log.high_watermark,
    RECOVERY_POINTS: lambda log: log.flushing.recovery_point,
    LOG_START_OFFSETS: lambda log: log.log_start_offset,
    CLEANED_OFFSETS: lambda log: log.local.cleaned_offset or None,
}


class PartitionOffsets:
    """The offsets of partitions in each checkpoint. Methods that write raise OSError."""

    def __init__(self, path: Path, fault_point: FaultPoint) -> None:
        self._files = {name: OffsetCheckpoint(path / name, fault_point) for name in CHECKPOINTS}
        self._known = {name: _read(file) for name, file in self._files.items()}
        # The content of each file by the last successful write.
        self._written: dict[str, Mapping[TopicPartition, int]] = {
            name: dict(offsets) for name, offsets in self._known.items()
        }
        # The content of each file, or None after a failed write.
        self.on_disk: dict[str, Mapping[TopicPartition, int] | None] = {**self._written}

    def of(self, name: str, key: TopicPartition) -> int:
        """Return the last known offset of a partition in the checkpoint `name`, or 0 if unknown."""
        return self._known[name].get(key, 0)

    def remove_partition(self, key: TopicPartition) -> None:
        """Remove a partition's offsets from memory. The next write removes them from the files."""
        for offsets in self._known.values():
            offsets.pop(key, None)

    def collect(
        self, name: str, logs: Mapping[TopicPartition, PartitionLog]
    ) -> Steps[dict[TopicPartition, int]]:
        """Return the current offset of each partition. A failed log has its last known offset."""
        known, offset_of = self._known[name], CHECKPOINTS[name]
        for number, (key, log) in enumerate(list(logs.items()), 1):
            # And not replaced by another log in the meantime.
            if not log.is_failed and logs.get(key) is log:
                _note(known, key, offset_of(log))
            if number % LOGS_A_STEP == 0:
                yield
        return dict(known)

    def write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace a checkpoint by one with these offsets (blocks).

        A log may have been shortened or deleted since the offsets were collected, so each offset is
        limited to the currently known offset.
        """
        known = self._known[name]
        offsets = {
            key: min(offset, now)
            for key, offset in offsets.items()
            if (now := known.get(key)) is not None
        }
        self.on_disk[name] = None
        self._files[name].write(offsets)
        self.on_disk[name] = self._written[name] = offsets

    def lower(self, found: Mapping[TopicPartition, PartitionLog]) -> None:
        """Lower the offsets in the files that are above the offsets of the logs `found` (blocks).

        No offset of another log rises, since it may be truncated just now. After a failed write the
        content is unknown, and the content before it is written again.
        """
        for name, offset_of in CHECKPOINTS.items():
            offsets = {key: offset_of(log) for key, log in found.items()}
            for key, offset in offsets.items():
                _note(self._known[name], key, offset)
            written = self._written[name]
            lower = {key: at or 0 for key, at in offsets.items() if (at or 0) < written.get(key, 0)}
            if lower or self.on_disk[name] is None:
                self.write(name, {**written, **lower})


def _note(known: dict[TopicPartition, int], key: TopicPartition, offset: int | None) -> None:
    if offset is None:
        known.pop(key, None)
    else:
        known[key] = offset


def _read(file: OffsetCheckpoint) -> dict[TopicPartition, int]:
    try:
        return file.read()
    except CorruptCheckpoint as problem:
        # Without the file the recovery takes longer, and records that DeleteRecords removed may
        # return.
        logger.error("%s", str(problem))
        return {}
