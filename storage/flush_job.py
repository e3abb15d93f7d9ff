"""One flush of a log to the disk, as a job that any thread can execute.

The log's own thread creates the job and opens the files. Therefore neither a truncation nor a new
segment of the same name can change which files are synced. The executor only makes system calls.
The log's own thread records the result, unless the log was truncated meanwhile.
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
    """The offset below which the log is on the disk. Each truncation creates a new object."""

    offset: int


class OpenPath:
    """A file or directory that is open for syncing, and closes with its last reference."""

    __slots__ = ("fd",)

    def __init__(self, path: Path, *, is_directory: bool = False) -> None:
        self.fd = -1
        kind = os.O_DIRECTORY if is_directory else 0
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | kind)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


def open_existing(paths: Iterable[Path]) -> list[OpenPath]:
    """Open the existing paths, or raise OSError for a path that cannot be opened."""
    found: list[OpenPath] = []
    for path in paths:
        with suppress(FileNotFoundError):
            found.append(OpenPath(path))
    return found


@dataclass(slots=True, kw_only=True)
class FlushJob:
    """The files to sync and the new recovery point (see the top of the file)."""

    directory: Path
    logs: list[LogFile]
    files: list[OpenPath]
    directories: list[OpenPath]
    point: RecoveryPoint
    end_offset: int
    names_changed: int
    is_whole: bool  # False if another job must follow
    is_cut: bool
    fault_point: FaultPoint

    def run(self) -> None:
        """Sync all files (blocks), in any thread, or raise OSError."""
        sync = os.fsync if self.is_cut else os.fdatasync  # a truncation changes the file's length
        self.fault_point("log.flush.before-fsync")
        with noting_failed_flush(self.directory):
            for file in (*self.logs, *self.files):
                sync(file.fd)
            for directory in self.directories:
                os.fsync(directory.fd)
        self.fault_point("log.flush.after-fsync")


@contextmanager
def noting_failed_flush(directory: Path) -> Generator[None, None, None]:
    """Mark the directory if a sync fails, since the kernel may drop the unwritten pages.

    The kernel reports the failure only once. After the mark, recovery does not trust the writes of
    a killed process.
    """
    try:
        yield
    except OSError:
        with suppress(OSError):
            os.close(os.open(directory / FLUSH_FAILED, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
        raise
