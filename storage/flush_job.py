"""One flush of a log to the disk, as a value that any thread can carry out.

The log's own thread makes the job: the files are open by then, so that neither a truncation nor a
new segment of the same name can change what is synced. The executor does nothing but system calls.
The log's own thread takes note of the result, if the log has not been cut meanwhile.
"""

import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..runtime.fault_point import FaultPoint
from .segments.log_file import LogFile

FLUSH_FAILED = "flush-failed"


@dataclass(slots=True)
class RecoveryPoint:
    """An offset below which all is on the disk. A cut replaces it by another."""

    offset: int


class OpenPath:
    """A file or directory that is open for syncing; it closes with its last reference."""

    __slots__ = ("fd",)

    def __init__(self, path: Path, *, is_directory: bool = False) -> None:
        self.fd = -1
        kind = os.O_DIRECTORY if is_directory else 0
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | kind)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


def open_existing(paths: Iterable[Path]) -> list[OpenPath]:
    """Open the paths that exist. Raises OSError for one that cannot be opened."""
    found: list[OpenPath] = []
    for path in paths:
        with suppress(FileNotFoundError):
            found.append(OpenPath(path))
    return found


@dataclass(slots=True, kw_only=True)
class FlushJob:
    """The files to sync and the recovery point that follows; see the top of the file."""

    directory: Path
    logs: list[LogFile]
    files: list[OpenPath]
    directories: list[OpenPath]
    point: RecoveryPoint
    end_offset: int
    names_changed: int
    is_whole: bool  # else there is more, and another job has to follow
    is_cut: bool
    fault_point: FaultPoint

    def run(self) -> None:
        """Sync all of it (blocks); in any thread. Raises OSError."""
        sync = os.fsync if self.is_cut else os.fdatasync  # a cut changes a file's length
        self.fault_point("log.flush.before-fsync")
        with noting_failed_flush(self.directory):
            for file in (*self.logs, *self.files):
                sync(file.fd)
            for directory in self.directories:
                os.fsync(directory.fd)
        self.fault_point("log.flush.after-fsync")


@contextmanager
def noting_failed_flush(directory: Path) -> Generator[None, None, None]:
    """Mark the directory where a sync fails: the kernel may drop such pages and reports it once.

    Recovery then does not take a write of the killed process for something that is still there.
    """
    try:
        yield
    except OSError:
        with suppress(OSError):
            os.close(os.open(directory / FLUSH_FAILED, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
        raise
