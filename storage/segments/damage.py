"""Damaged files of a log, with their detection and repair.

The log records the first damage found (`LogDamage`). The caller decides whether the log stops
serving, because the caller knows whether another replica is in sync. A stopped log is checked as a
whole. If the batches are intact, all other files are rebuilt from the batches. Otherwise the log is
copied from its leader, and the damaged log is kept until the copy is in sync.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from ...runtime.steps import Steps
from ...wire.errors import CorruptMessage
from ..checkpoint import LEADER_EPOCHS
from ..corrupt_file import UNREADABLE
from ..disk_guard import DiskGuard
from ..leader_epochs import LeaderEpochs
from .log_file import scan_closed
from .open_file import opened
from .segment import SUFFIXES
from .segment_list import SegmentList

logger = logging.getLogger(__name__)
_BATCHES_A_STEP = 16  # with checksums


class Damaged(OSError):
    """The failure of a log with damaged files, raised like a disk error."""


class SteppedDown(Damaged):
    """The failure of a log that this broker no longer leads, because a reader found damage.

    The log's state in memory is correct.
    """


class LogDamage:
    """The first damage that was found in the files of a log. `words` describes it, or is empty.

    `on_found` is called for each damage, and decides whether the log stops serving.
    """

    __slots__ = ("_disk", "_name", "is_in_batches", "on_found", "words")

    def __init__(self, name: str, disk: DiskGuard) -> None:
        self._name, self._disk = name, disk
        self.words = ""
        self.is_in_batches = False  # True: copy the log, without a search by `find_damage`
        self.on_found: Callable[[], object] = lambda: None

    def found(self, problem: Exception) -> None:
        """Record that a file of this log is damaged."""
        if not self.words:
            self.words = str(problem) or repr(problem)
            logger.error("%s is damaged: %s", self._name, self.words)
        self.on_found()

    def met(self, problem: Exception) -> NoReturn:
        """Record damage found by a read, and raise `problem` if it is a CorruptMessage.

        Otherwise, or if the log has failed, KafkaStorageError is raised.
        """
        self.found(problem)
        self._disk.check()
        if isinstance(problem, CorruptMessage):
            raise problem
        raise self._disk.error(problem) from problem


def find_damage(segments: SegmentList, epochs: LeaderEpochs, log_end_offset: int) -> str:
    """Read all batches (blocks). Return the damage of the first bad batch, or ""."""
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


def checking_batches(segments: SegmentList, path: Path | str) -> Steps[None]:
    """Raise DamagedSegment for a damaged batch of the inactive segment that has the file `path`."""
    for segment in segments:
        newer = segments.after(segment)
        if newer is not None and path in segment.paths():
            offsets = range(segment.base_offset, newer.base_offset)
            batches = scan_closed(segment.file, 0, segment.size_bytes, offsets)
            for number, _ in enumerate(batches, 1):
                if number % _BATCHES_A_STEP == 0:
                    yield


def remove_derived_files(directory: Path) -> None:
    """Remove the indexes and leader epochs, which the next opening rebuilds, or raise OSError.

    An opening notices a missing offset index, but not a missing transaction index. Therefore
    transaction indexes are removed last, in case of an interruption.
    """
    # The removals need no other descriptor. A log without some of its indexes cannot be served.
    with opened(directory, os.O_RDONLY | os.O_DIRECTORY) as fd:
        paths = list(directory.iterdir())
        for path in paths:
            if path.suffix in SUFFIXES[1:-1] or path.name == LEADER_EPOCHS:
                path.unlink()
        os.fsync(fd)
    for path in paths:
        if path.suffix == SUFFIXES[-1]:
            path.unlink()
