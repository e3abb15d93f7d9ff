"""The files of the Raft engine, zero-filled log segments and one snapshot per group.

Only this file accesses the file system. All methods block, and the engine calls the slow methods in
an executor. The simulator has another Disk, which loses unsynced bytes.
"""

import fcntl
import os
import threading
from pathlib import Path
from typing import Protocol

from ....runtime.fault_point import FaultPoint, no_fault_point

_ZEROS = bytes(1 << 20)


class Disk(Protocol):
    """The file system for the journal and the snapshots."""

    def open(self) -> None:
        """Create the directory and lock it, or raise BlockingIOError if it is already locked."""

    def segments(self) -> list[int]:
        """Return the numbers of the existing segments, ascending."""
        ...

    def segment_name(self, number: int) -> str:
        """Return the path of a segment, for an error message."""
        ...

    def read_segment(self, number: int) -> bytes: ...

    def ensure_segment(self, number: int, size_bytes: int) -> None:
        """Create a durable zero-filled segment unless it exists."""

    def write(self, number: int, position: int, data: bytes) -> None:
        """Overwrite bytes of a segment, without a sync."""

    def sync(self, number: int) -> None:
        """Make the bytes of a segment durable."""

    def delete_segment(self, number: int) -> None: ...

    def read_snapshot(self, group_id: int) -> bytes | None:
        """Return the bytes of a group's published snapshot file, or None if there is no file."""
        ...

    def snapshot_name(self, group_id: int) -> str:
        """Return the path of a group's snapshot file, for an error message."""
        ...

    def prepare_snapshot(self, group_id: int, data: bytes) -> None:
        """Write a new snapshot beside the published one, durably."""

    def publish_snapshot(self, group_id: int) -> None:
        """Replace the published snapshot by the prepared one, atomically and durably."""

    def close(self) -> None: ...


class DirectoryDisk:
    """A Disk in one directory.

    A segment is filled with zeros and synced before its first use. In a growing file every
    fdatasync would also have to write the inode, while here it writes only the data.
    """

    def __init__(self, directory: Path, fault_point: FaultPoint = no_fault_point) -> None:
        self._directory = directory
        self._fault_point = fault_point
        self._files: dict[int, int] = {}
        self._lock = threading.Lock()  # two threads may create the same segment
        self._lock_file = -1

    def open(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock_file = os.open(self._directory / ".lock", flags, 0o600)
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock_file)
            raise BlockingIOError(f"{self._directory} is in use by another process") from None
        self._lock_file = lock_file
        for leftover in self._directory.glob("*.tmp"):
            leftover.unlink()

    def segments(self) -> list[int]:
        return sorted(int(path.stem) for path in self._directory.glob("*.wal"))

    def segment_name(self, number: int) -> str:
        return str(self._segment_path(number))

    def read_segment(self, number: int) -> bytes:
        return self._segment_path(number).read_bytes()

    def ensure_segment(self, number: int, size_bytes: int) -> None:
        with self._lock:
            path = self._segment_path(number)
            if path.exists():
                return
            temporary = path.with_suffix(".tmp")
            with open(temporary, "wb") as file:
                for position in range(0, size_bytes, len(_ZEROS)):
                    file.write(_ZEROS[: size_bytes - position])
                file.flush()
                os.fsync(file.fileno())
            self._fault_point("raft.segment.before-rename")
            temporary.rename(path)
            self._sync_directory()
            self._fault_point("raft.segment.after-rename")

    def write(self, number: int, position: int, data: bytes) -> None:
        file = self._file(number)
        self._fault_point("raft.journal.before-write")
        written = 0
        while written < len(data):
            written += os.pwrite(file, memoryview(data)[written:], position + written)
        self._fault_point("raft.journal.after-write")

    def sync(self, number: int) -> None:
        self._fault_point("raft.journal.before-sync")
        os.fdatasync(self._file(number))
        self._fault_point("raft.journal.after-sync")

    def delete_segment(self, number: int) -> None:
        file = self._files.pop(number, None)
        if file is not None:
            os.close(file)
        self._segment_path(number).unlink(missing_ok=True)

    def read_snapshot(self, group_id: int) -> bytes | None:
        try:
            return self._snapshot_path(group_id).read_bytes()
        except FileNotFoundError:
            return None

    def snapshot_name(self, group_id: int) -> str:
        return str(self._snapshot_path(group_id))

    def prepare_snapshot(self, group_id: int, data: bytes) -> None:
        self._fault_point("raft.snapshot.before-write")
        with open(self._snapshot_path(group_id).with_suffix(".tmp"), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self._fault_point("raft.snapshot.after-write")

    def publish_snapshot(self, group_id: int) -> None:
        path = self._snapshot_path(group_id)
        self._fault_point("raft.snapshot.before-rename")
        path.with_suffix(".tmp").rename(path)
        self._sync_directory()
        self._fault_point("raft.snapshot.after-rename")

    def close(self) -> None:
        for file in self._files.values():
            os.close(file)
        self._files.clear()
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1

    def _file(self, number: int) -> int:
        """Return the open file of a segment, which must exist.

        Only the journal's thread calls this.
        """
        file = self._files.get(number)
        if file is None:
            flags = os.O_RDWR | os.O_CLOEXEC
            file = self._files[number] = os.open(self._segment_path(number), flags)
        return file

    def _segment_path(self, number: int) -> Path:
        return self._directory / f"{number:012d}.wal"

    def _snapshot_path(self, group_id: int) -> Path:
        return self._directory / f"group-{group_id}.snapshot"

    def _sync_directory(self) -> None:
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
