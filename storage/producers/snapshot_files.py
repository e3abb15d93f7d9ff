"""The .snapshot files of a partition, with the producer state as of an offset.

A snapshot is written when a segment begins (with many producers a little later). It is named by its
offset, usually the segment's base offset, so the segment can be recovered by itself. Snapshots are
also written between, after some megabytes, and at the log end when the log is closed or opened. An
unreadable snapshot is deleted and an older snapshot is used, which only makes the replay longer.
"""

import logging
import os
from collections.abc import Container, Iterable
from pathlib import Path

from ..checkpoint import write_atomically
from .snapshot import CorruptSnapshot, ProducerSnapshotEntry
from .snapshot import decode_entries as decode_snapshot

logger = logging.getLogger(__name__)
SUFFIX = ".snapshot"


class SnapshotFiles:
    """The snapshots in a partition's directory, by offset. Methods raise OSError."""

    __slots__ = ("_directory", "_offsets", "unsynced")

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        stems = [name[: -len(SUFFIX)] for name in os.listdir(directory) if name.endswith(SUFFIX)]
        self._offsets = {int(stem) for stem in stems if stem.isdecimal()}
        self.unsynced: list[Path] = []  # written since the last flush took its files

    @property
    def offsets(self) -> list[int]:
        """Return the offsets of the snapshots, rising."""
        return sorted(self._offsets)

    def path(self, offset: int) -> Path:
        """Return the file of the snapshot at `offset`."""
        return self._directory / f"{offset:020d}{SUFFIX}"

    def write(self, offset: int, content: bytes) -> None:
        """Write an encoded snapshot, which the next flush of the log syncs."""
        path = self.path(offset)
        write_atomically(path, content, fsync=False)
        self._offsets.add(offset)
        self.unsynced.append(path)

    def newest(self, at_most: int) -> tuple[int, Iterable[ProducerSnapshotEntry]] | None:
        """Return the last readable snapshot up to an offset, as (offset, entries)."""
        for offset in reversed(self.offsets):
            if offset <= at_most and (entries := self._read(offset)) is not None:
                return offset, entries
        return None

    def remove_unreadable(self) -> None:
        """Delete all unreadable snapshots, such as an unsynced one after a power failure.

        A killed process leaves no damaged snapshot, because a snapshot gets its name after it is
        written.
        """
        for offset in self.offsets:
            self._read(offset)

    def remove(self, offsets: Iterable[int]) -> None:
        """Delete the snapshots at these offsets, if they exist."""
        gone = self._offsets.intersection(offsets)
        self._offsets -= gone
        for offset in gone:
            self.path(offset).unlink(missing_ok=True)

    def remove_between(self, base_offsets: Container[int]) -> None:
        """Delete the snapshots that are not at a segment's base offset, except for the last two."""
        self.remove([offset for offset in self.offsets if offset not in base_offsets][:-2])

    def remove_above(self, offset: int) -> None:
        """Delete the snapshots above `offset`, the end of the log."""
        self.remove([at for at in self._offsets if at > offset])

    def _read(self, offset: int) -> Iterable[ProducerSnapshotEntry] | None:
        """Read the entries of a snapshot. Delete an unreadable one."""
        path = self.path(offset)
        try:
            return decode_snapshot(path.read_bytes(), path)
        except CorruptSnapshot as problem:
            logger.warning("%s", str(problem))  # as text, since the exception would keep its frames
            path.unlink()
            self._offsets.discard(offset)
            return None
