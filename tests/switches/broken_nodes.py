"""What can be wrong in how a node starts, and in what it makes of its disk."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from oncelog.coordinator import controller
from oncelog.node.checkpoint_writer import CheckpointWriter
from oncelog.node.logs import DirectoryJob, Logs
from oncelog.storage import disk_guard
from oncelog.storage.disk_guard import DiskGuard
from oncelog.storage.log_directory import LogDirectory

from .patching import replaced


def shared_tables() -> AbstractContextManager[Any]:
    """The thread that opens logs looks into the metadata's tables, which the loop changes."""
    sound = Logs.carry_out

    def carry_out(self: Any, jobs: Iterable[DirectoryJob]) -> list[Any]:
        outcomes: list[Any] = []
        for key, is_removed, opening in jobs:
            topic = None if opening is None else self._state.topics[key[0]]
            outcomes += sound(self, [self.job(key, topic, is_removed=is_removed)])
        return outcomes

    return replaced(Logs, "carry_out", carry_out)


def latched_directory() -> AbstractContextManager[Any]:
    """A disk that failed once for something small is never asked again."""

    def disk(self: Any) -> DiskGuard:
        return vars(self).setdefault("_guard", DiskGuard(str(self.path)))

    return replaced(LogDirectory, "_disk", disk)


def latched_log() -> AbstractContextManager[Any]:
    """A log that had no room or no descriptor once has failed for good."""
    return replaced(disk_guard, "OUT_OF_RESOURCES", frozenset[int]())


def late_recovery_point() -> AbstractContextManager[Any]:
    """A compaction leaves gaps above what the disk says is synced."""

    async def reach(*_: Any) -> bool:
        return True

    return replaced(CheckpointWriter, "reach", reach)


def deaf_leader() -> AbstractContextManager[Any]:
    """A broker that is heard leads on, however long it has heard nobody."""
    return replaced(controller, "DEAF_SESSIONS", 1_000_000)
