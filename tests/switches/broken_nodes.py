"""Switches with bugs in the start of a node, and in its use of the disk."""

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, cast

from oncelog.coordinator.controller import controller
from oncelog.node.partitions.checkpoint_writer import CheckpointWriter
from oncelog.node.partitions.logs import DirectoryJob, Logs
from oncelog.storage import disk_guard
from oncelog.storage.directory.log_directory import LogDirectory
from oncelog.storage.disk_guard import DiskGuard
from oncelog.storage.flush_job import FlushJob, OpenPath
from oncelog.storage.log_durability import Durability
from oncelog.storage.segments.entry_file import EntryFile

from .patching import replaced, together


def shared_tables() -> AbstractContextManager[Any]:
    """The thread that opens logs reads the metadata tables, which the loop changes."""
    sound = Logs.run_jobs

    def run_jobs(self: Any, jobs: Iterable[DirectoryJob]) -> list[Any]:
        outcomes: list[Any] = []
        for key, is_removed, opening, _ in jobs:
            topic = None if opening is None else self._state.topics[key[0]]
            outcomes += sound(self, [self.job(key, topic, is_removed=is_removed)])
        return outcomes

    return replaced(Logs, "run_jobs", run_jobs)


def latched_directory() -> AbstractContextManager[Any]:
    """A data directory is never used again after a failure of one operation."""

    def disk(self: Any) -> DiskGuard:
        return vars(self).setdefault("_guard", DiskGuard(str(self.path)))

    return replaced(LogDirectory, "_disk", disk)


def latched_log() -> AbstractContextManager[Any]:
    """A log is never used again after a lack of disk space or file descriptors."""
    return replaced(disk_guard, "OUT_OF_RESOURCES", frozenset[int]())


class _Tail:
    """The index entries in memory when a flush begins. It writes them to the index's path."""

    def __init__(self, file: EntryFile) -> None:
        before, tail = file._tail
        self._path, self._position, self._tail = file.path, before * file.entry_bytes, bytes(tail)
        self._fd = -1

    @property
    def fd(self) -> int:
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.pwrite(self._fd, self._tail, self._position)
        return self._fd

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def index_by_path() -> AbstractContextManager[Any]:
    """A flush writes index entries to a path, where a truncated log may have a new index."""
    sound = Durability.job

    def job(self: Any, directory: Any, segments: Any, *given: Any, **kinds: Any) -> FlushJob:
        made = sound(self, directory, segments, *given, **kinds)
        indexes = segments.active.offset_index, segments.active.time_index
        made.files += cast("list[OpenPath]", [_Tail(index) for index in indexes])
        return made

    return together(
        replaced(Durability, "job", job),
        replaced(Durability, "is_cut_unsynced", property(lambda _: False)),
    )


def late_recovery_point() -> AbstractContextManager[Any]:
    """A compaction leaves gaps above the synced recovery point."""

    async def reach(*_: Any) -> bool:
        return True

    return replaced(CheckpointWriter, "reach", reach)


def early_recovery_point() -> AbstractContextManager[Any]:
    """A log is truncated below the synced recovery point, which is not lowered."""
    return replaced(CheckpointWriter, "is_at_most", lambda *_: True)


def deaf_leader() -> AbstractContextManager[Any]:
    """A broker that sends heartbeats but gets no answers stays the leader."""
    return replaced(controller, "DEAF_SESSIONS", 1_000_000)
