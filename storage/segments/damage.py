"""A damaged byte in the files of a log: how it is told, and what mends it.

The log that meets one says so (`LogDamage`). Whether it stops serving is decided above,
where it is known whether another replica is in sync. What has stopped is examined as a whole: if
the batches are those that were written, all else is made anew from them; else the log is copied
from its leader, and the damaged one is kept until the copy is in sync.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from ...wire.errors import CorruptMessage
from ..checkpoint import LEADER_EPOCHS, sync_directory
from ..corrupt_file import UNREADABLE
from ..disk_guard import DiskGuard
from ..leader_epochs import LeaderEpochs
from .log_file import scan_closed
from .segment import SUFFIXES
from .segment_list import SegmentList

logger = logging.getLogger(__name__)


class Damaged(OSError):
    """Stands for the failure of a disk where the files of a log say what was never written."""


class SteppedDown(Damaged):
    """The same of a log whose memory is sound: a reader met the damage, nothing was changed."""


class LogDamage:
    """What was found first in the files of one log that is not as it was written, "" if nothing.

    `on_found` is called whenever something is met. It decides whether the log stops serving.
    """

    __slots__ = ("_disk", "_name", "is_in_batches", "on_found", "words")

    def __init__(self, name: str, disk: DiskGuard) -> None:
        self._name, self._disk = name, disk
        self.words = ""
        self.is_in_batches = False  # though they seem right: the log is to be copied
        self.on_found: Callable[[], object] = lambda: None

    def found(self, problem: Exception) -> None:
        """Note what was met in a file of this log."""
        if not self.words:
            self.words = str(problem) or repr(problem)
            logger.error("%s is damaged: %s", self._name, self.words)
        self.on_found()

    def met(self, problem: Exception) -> NoReturn:
        """The same in a read: KafkaStorageError if the log stops, else what the damage raises."""
        self.found(problem)
        self._disk.check()
        if isinstance(problem, CorruptMessage):
            raise problem
        raise self._disk.error(problem) from problem


def find_damage(segments: SegmentList, epochs: LeaderEpochs, log_end_offset: int) -> str:
    """Read all batches (blocks): what is wrong with the first one that is, "" if none is."""
    next_offset, latest_epoch = segments.first.base_offset, -1
    for segment in segments:
        newer = segments.after(segment)
        end_offset = log_end_offset if newer is None else newer.base_offset
        offsets = range(segment.base_offset, end_offset)
        try:
            for _, header, _ in scan_closed(segment.file, 0, segment.size_bytes, offsets):
                epoch, _ = epochs.span_of(header.base_offset)
                found = header.partition_leader_epoch
                if epoch not in (None, found) or found < latest_epoch:
                    return f"{segment.file.path}: leader epoch {found} after {latest_epoch}"
                latest_epoch = found
                next_offset = header.next_offset
        except UNREADABLE as problem:
            return str(problem)
    if next_offset < log_end_offset and segments.active.size_bytes:
        return f"{segments.active.file.path} ends before offset {log_end_offset}"
    return ""


def remove_derived_files(directory: Path) -> None:
    """Remove what the next opening makes anew from the batches. Raises OSError.

    An offset index that is missing is noticed, a transaction index is not: what interrupts this
    must not leave a segment without the second only.
    """
    paths = list(directory.iterdir())
    for path in paths:
        if path.suffix in SUFFIXES[1:-1] or path.name == LEADER_EPOCHS:
            path.unlink()
    sync_directory(directory)
    for path in paths:
        if path.suffix == SUFFIXES[-1]:
            path.unlink()
