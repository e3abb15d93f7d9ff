"""Disks of simulated machines, with real files and their possible state after a power cut.

The storage code runs unchanged on a temporary directory. While `Disks` is installed, functions of
`os` are replaced for all paths below that directory, and record the changes since the last fsync.

After a kill all changes stay, as in a page cache. A power cut may revert unsynced changes. In a
file it reverts random pages, or all changes after a random sector. Changes of names (create,
rename, remove) are ordered as in a journaling file system. A random number of the last ones is
reverted.

File descriptors are virtual numbers, so those of a dead process refer to no file.
"""

import contextlib
import errno
import fcntl
import itertools
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock
from zlib import crc32

from .virtual_loop import Timeline
from .virtual_threads import Stopped, pause_point

FIRST_DESCRIPTOR = 1 << 24
# Never one twice: a file of an ended cluster may be closed while another one runs.
_descriptors = itertools.count(FIRST_DESCRIPTOR)
SECTOR_BYTES, PAGE_BYTES = 512, 4096
TRASH = ".trash"
REPLACED = (
    "open", "close", "pread", "pwrite", "write", "ftruncate", "truncate", "fsync", "fdatasync",
    "fstat", "rename", "replace", "unlink", "mkdir", "posix_fadvise", "posix_fallocate",
    "utime", "urandom", "getpid",
)  # fmt: skip
REAL = {name: getattr(os, name) for name in REPLACED}
REAL_FLOCK = fcntl.flock


@dataclass(slots=True)
class _Change:
    """A change of a file's bytes since its last fsync."""

    position: int
    old: bytes
    new: bytes | None  # None: the file was cut to `position`
    old_size: int


@dataclass(slots=True)
class _Name:
    """A created, renamed or removed name, since the last fsync of its directory."""

    what: str
    path: str
    other: str = ""  # its new name
    saved: str | None = None  # where the replaced or removed file is kept


@dataclass(slots=True)
class _Opened:
    """An open file, which a virtual file descriptor refers to."""

    disk: "NodeDisk"
    real: int
    path: str
    inode: int
    is_directory: bool
    position: int = 0


@dataclass(slots=True)
class NodeDisk:
    """The disk of one node, with its unsynced changes and its present faults."""

    number: int
    path: str
    random: random.Random
    is_in_use: bool = True  # False: its process is dead, and the rest of its stack stops
    is_full: bool = False
    sync_errors: int = 0
    error: int = 0  # temporary: ENOSPC, EMFILE when files are opened, EIO when read
    operations_left: int | None = None
    on_last_operation: Callable[[], bool] = lambda: False  # returns whether the process stopped
    on_regrowth: Callable[[], None] | None = None  # see `segment_begun`
    truncated: set[str] = field(default_factory=set[str])  # logs
    changes: dict[int, list[_Change]] = field(default_factory=dict)
    modified_ns: dict[int, int] = field(default_factory=dict)
    names: dict[int, "_Name"] = field(default_factory=dict)  # in order
    names_in: dict[str, list[int]] = field(default_factory=dict)  # by directory
    name_count: int = 0
    locks: set[str] = field(default_factory=set)
    trash_count: int = 0

    @property
    def is_failing(self) -> bool:
        """Return whether operations of the disk fail now."""
        return self.is_full or self.sync_errors > 0 or self.error > 0

    def trash(self) -> str:
        """Return a new path to keep a replaced or removed file, which a power cut may restore."""
        self.trash_count += 1
        return f"{os.path.dirname(self.path)}/{TRASH}-{self.number}-{self.trash_count}"

    def named(self, name: "_Name") -> None:
        """Record that a name was created, renamed or removed."""
        self.name_count += 1
        self.names[self.name_count] = name
        self.names_in.setdefault(os.path.dirname(name.path), []).append(self.name_count)

    def segment_begun(self, log: str) -> None:
        """Call `on_regrowth` if a truncated log begins a segment while an older one is unsynced.

        A power cut could now lose the end of the older segment, so the broker must have lowered the
        log's recovery point.
        """
        if self.on_regrowth is not None and log in self.truncated:
            inodes = [os.stat(file).st_ino for file in Path(log).glob("*.log")]
            if any(self.changes.get(inode) for inode in inodes):
                self.on_regrowth()

    def sync_names(self, directory: str, numbers: list[int]) -> None:
        """Forget the changes of names with these numbers in a directory, which are durable now."""
        left = [n for n in self.names_in.pop(directory, ()) if n not in numbers]
        if left:
            self.names_in[directory] = left
        for number in numbers:
            name = self.names.pop(number, None)
            if name is not None and name.saved is not None:
                with contextlib.suppress(FileNotFoundError):
                    REAL["unlink"](name.saved)

    def cut_power(self) -> int:
        """Revert a random part of the unsynced changes. Return how many files had such changes."""
        names = list(self.names.values())
        keep = self.random.choice([0, len(names), self.random.randint(0, len(names))])
        for name in reversed(names[keep:]):
            with contextlib.suppress(OSError):
                if name.what == "make":
                    if os.path.isdir(name.path):
                        shutil.rmtree(name.path)
                    else:
                        REAL["unlink"](name.path)
                elif name.what == "rename":
                    REAL["rename"](name.other, name.path)
                    if name.saved is not None:
                        REAL["rename"](name.saved, name.other)
                elif name.saved is not None:
                    REAL["rename"](name.saved, name.path)
        self.names.clear()
        self.names_in.clear()
        harmed = 0
        for folder, _, files in sorted(os.walk(self.path)):
            for name in sorted(files):
                path = f"{folder}/{name}"
                changes = self.changes.get(os.stat(path).st_ino)
                if changes:
                    harmed += 1
                    content = _after_cut(self.random, Path(path).read_bytes(), changes)
                    Path(path).write_bytes(content)
        self.changes.clear()
        return harmed


def _after_cut(rng: random.Random, content: bytes, changes: list[_Change]) -> bytes:
    """Return a file's content after a power cut, which reverts a random part of the changes."""
    data = bytearray(content)
    for change in reversed(changes):
        if change.new is not None:
            data[change.position : change.position + len(change.old)] = change.old
            del data[change.old_size :]
        else:
            data[change.position :] = change.old
    way = rng.choice(["nothing", "prefix", "pages", "everything"])
    if way == "everything":
        return content
    if way == "prefix":
        count = rng.randint(0, len(changes))
        for change in changes[:count]:
            _apply(data, change, 0, None)
        if count < len(changes) and changes[count].new:
            sectors = len(changes[count].new or b"") // SECTOR_BYTES
            _apply(data, changes[count], 0, rng.randint(0, sectors) * SECTOR_BYTES)
    elif way == "pages":
        for change in changes:
            for start in range(0, len(change.new or b"") or 1, PAGE_BYTES):
                if rng.random() < 0.5:
                    _apply(data, change, start, start + PAGE_BYTES)
    return bytes(data)


def _apply(data: bytearray, change: _Change, start: int, end: int | None) -> None:
    if change.new is None:
        del data[change.position :]
        return
    piece = change.new[start:end]
    if piece:
        position = change.position + start
        if len(data) < position:
            data.extend(bytes(position - len(data)))
        data[position : position + len(piece)] = piece


class Disks:
    """The disks of all nodes, in the directories node-1, node-2 and so on below `root`."""

    def __init__(self, root: Path, timeline: Timeline, nodes: list[int]) -> None:
        self.root = str(root)
        self._prefix = f"{root}/node-"
        self._timeline = timeline
        self._opened: dict[int, _Opened] = {}
        self.nodes: dict[int, NodeDisk] = {}
        for number in nodes:
            path = f"{self._prefix}{number}"
            Path(path).mkdir(parents=True)
            rng = random.Random(timeline.random.getrandbits(64))
            self.nodes[number] = NodeDisk(number, path, rng)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Replace functions of `os` by those of this object while the context is open."""
        with contextlib.ExitStack() as stack:
            for name in REPLACED:
                stack.enter_context(mock.patch.object(os, name, getattr(self, name)))
            stack.enter_context(mock.patch.object(fcntl, "flock", self.flock))
            try:
                yield
            finally:
                for opened in self._opened.values():
                    REAL["close"](opened.real)
                self._opened.clear()

    def died(self, number: int) -> None:
        """Close the files of a node's dead process, and release its locks."""
        disk = self.nodes[number]
        for descriptor in [d for d, opened in self._opened.items() if opened.disk is disk]:
            REAL["close"](self._opened.pop(descriptor).real)
        disk.locks.clear()
        disk.operations_left = None
        disk.is_in_use = False

    def wipe(self, number: int) -> None:
        disk = self.nodes[number]
        shutil.rmtree(disk.path)
        REAL["mkdir"](disk.path)
        disk.changes.clear()
        disk.names.clear()
        disk.names_in.clear()

    # -- owners

    def _disk_of(self, path: Any) -> tuple[NodeDisk | None, str]:
        if type(path) is int:
            return None, ""
        text = os.fspath(path)
        if type(text) is not str or not text.startswith(self._prefix):
            return None, ""
        number = text[len(self._prefix) :].partition("/")[0]
        return self.nodes[int(number)], text

    def _step(self, disk: NodeDisk, what: int, size: int = 0) -> None:
        """Prepare a change of a file. Raises Stopped if the process ends before the change."""
        pause_point()
        if not disk.is_in_use:
            raise Stopped
        self._timeline.note(4, disk.number, what, size)
        if disk.operations_left is not None:
            disk.operations_left -= 1
            if disk.operations_left < 0:
                disk.operations_left = None
                if disk.on_last_operation():
                    raise Stopped

    @staticmethod
    def _room(disk: NodeDisk) -> None:
        if disk.is_full or disk.error == errno.ENOSPC:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @staticmethod
    def _may_fail(disk: NodeDisk, *errors: int) -> None:
        if disk.error in errors and disk.is_in_use:
            raise OSError(disk.error, os.strerror(disk.error))

    # -- the functions of os

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        disk, text = (None, "") if dir_fd is not None else self._disk_of(path)
        if disk is not None:
            pause_point()
            self._may_fail(disk, errno.EMFILE)
        if disk is None or flags == os.O_RDONLY:
            return REAL["open"](path, flags, mode, dir_fd=dir_fd)
        is_new = bool(flags & os.O_CREAT) and not os.path.exists(text)
        if is_new:
            self._step(disk, 1)
            self._room(disk)
        old = b""
        if flags & os.O_TRUNC and not is_new:
            old = Path(text).read_bytes()
        real = REAL["open"](path, flags, mode)
        inode = REAL["fstat"](real).st_ino
        if is_new:
            disk.changes.pop(inode, None)
            disk.modified_ns[inode] = self._wall_ns()
            disk.named(_Name("make", text))
            if text.endswith(".log"):
                disk.segment_begun(os.path.dirname(text))
        elif old:
            disk.changes.setdefault(inode, []).append(_Change(0, old, None, len(old)))
        is_directory = bool(flags & os.O_DIRECTORY)
        descriptor = next(_descriptors)
        self._opened[descriptor] = _Opened(disk, real, text, inode, is_directory)
        return descriptor

    def close(self, fd: int) -> None:
        if fd < FIRST_DESCRIPTOR:
            REAL["close"](fd)
        elif (opened := self._opened.pop(fd, None)) is not None:
            opened.disk.locks.discard(f"{opened.path}:{fd}")
            REAL["close"](opened.real)

    def _of(self, fd: int) -> _Opened:
        opened = self._opened.get(fd)
        if opened is None:
            raise OSError(errno.EBADF, "the process of this descriptor is dead, or it is closed")
        return opened

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        pause_point()
        if fd < FIRST_DESCRIPTOR:
            return REAL["pread"](fd, count, offset)
        opened = self._of(fd)
        self._may_fail(opened.disk, errno.EIO)
        return REAL["pread"](opened.real, count, offset)

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        if fd < FIRST_DESCRIPTOR:
            return REAL["pwrite"](fd, data, offset)
        opened = self._of(fd)
        disk, new = opened.disk, bytes(data)
        size = REAL["fstat"](opened.real).st_size
        self._step(disk, 2, len(new))
        if offset + len(new) > size:
            self._room(disk)
        self._timeline.note(5, crc32(new))
        old = REAL["pread"](opened.real, len(new), offset) if offset < size else b""
        changes = disk.changes.setdefault(opened.inode, [])
        changes.append(_Change(offset, old, new, size))
        disk.modified_ns[opened.inode] = self._wall_ns()
        return REAL["pwrite"](opened.real, new, offset)

    def write(self, fd: int, data: Any) -> int:
        if fd < FIRST_DESCRIPTOR:
            return REAL["write"](fd, data)
        opened = self._of(fd)
        written = self.pwrite(fd, data, opened.position)
        opened.position += written
        return written

    def ftruncate(self, fd: int, length: int) -> None:
        if fd < FIRST_DESCRIPTOR:
            REAL["ftruncate"](fd, length)
            return
        opened = self._of(fd)
        disk = opened.disk
        if opened.path.endswith(".log") and length < REAL["fstat"](opened.real).st_size:
            disk.truncated.add(os.path.dirname(opened.path))
        self._cut(disk, opened.inode, opened.real, length)

    def truncate(self, path: Any, length: int) -> None:
        disk, _ = self._disk_of(path)
        if disk is None:
            REAL["truncate"](path, length)
            return
        real = REAL["open"](path, os.O_RDWR)
        try:
            self._cut(disk, REAL["fstat"](real).st_ino, real, length)
        finally:
            REAL["close"](real)

    def _cut(self, disk: NodeDisk, inode: int, real: int, length: int) -> None:
        size = REAL["fstat"](real).st_size
        if size == length:
            return
        self._step(disk, 3, length)
        changes = disk.changes.setdefault(inode, [])
        if length < size:
            old = REAL["pread"](real, size - length, length)
            changes.append(_Change(length, old, None, size))
        else:
            changes.append(_Change(size, b"", bytes(length - size), size))
        REAL["ftruncate"](real, length)

    def posix_fadvise(self, fd: int, offset: int, length: int, advice: int) -> None:
        if fd < FIRST_DESCRIPTOR:
            REAL["posix_fadvise"](fd, offset, length, advice)
        else:
            self._of(fd)  # the bytes that a sync could not write are still there, here

    def posix_fallocate(self, fd: int, offset: int, length: int) -> None:
        if fd < FIRST_DESCRIPTOR:
            REAL["posix_fallocate"](fd, offset, length)
            return
        opened = self._of(fd)
        self._room(opened.disk)
        if REAL["fstat"](opened.real).st_size < offset + length:
            self._cut(opened.disk, opened.inode, opened.real, offset + length)

    def fsync(self, fd: int) -> None:
        if fd < FIRST_DESCRIPTOR:
            inode = REAL["fstat"](fd).st_ino  # of Python's own open()
            for disk in self.nodes.values():
                disk.changes.pop(inode, None)
            return
        opened = self._of(fd)
        disk, changes = opened.disk, opened.disk.changes.get(opened.inode, [])
        # Writes during a long sync are not covered.
        count, names = len(changes), list(disk.names_in.get(opened.path, ()))
        pause_point(self._timeline.sync_s)
        self._step(disk, 4)
        if disk.sync_errors:
            disk.sync_errors -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if opened.is_directory:
            disk.sync_names(opened.path, names)
        elif disk.changes.get(opened.inode) is changes:
            del changes[:count]

    fdatasync = fsync

    def fstat(self, fd: int) -> os.stat_result:
        if fd < FIRST_DESCRIPTOR:
            return REAL["fstat"](fd)
        opened = self._of(fd)
        found = list(REAL["fstat"](opened.real))
        modified_ns = opened.disk.modified_ns.get(opened.inode, 0)
        found[8] = modified_ns // 1_000_000_000
        times = {"st_mtime_ns": modified_ns, "st_atime_ns": modified_ns}
        return os.stat_result(found, times)

    def utime(self, path: Any, *args: Any, **keywords: Any) -> None:
        if type(path) is int and path >= FIRST_DESCRIPTOR:
            opened = self._of(path)
            opened.disk.modified_ns[opened.inode] = keywords["ns"][1]
        else:
            REAL["utime"](path, *args, **keywords)

    def rename(self, src: Any, dst: Any, **keywords: Any) -> None:
        disk, source = self._disk_of(src)
        if disk is None:
            REAL["rename"](src, dst, **keywords)
            return
        self._step(disk, 5)
        target, saved = os.fspath(dst), None
        if os.path.isfile(target):
            saved = disk.trash()
            os.link(target, saved)
        REAL["rename"](src, dst)
        disk.named(_Name("rename", source, target, saved))
        if os.path.isdir(target):
            self._moved(disk, source, target)

    replace = rename

    def _moved(self, disk: NodeDisk, source: str, target: str) -> None:
        """Update the paths of open files after a directory was renamed."""
        for opened in self._opened.values():
            if opened.disk is disk and opened.path.startswith(source + "/"):
                opened.path = target + opened.path[len(source) :]

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        disk, text = (None, "") if dir_fd is not None else self._disk_of(path)
        if disk is None:
            REAL["unlink"](path, dir_fd=dir_fd)
            return
        self._step(disk, 6)
        if not os.path.exists(text):
            REAL["unlink"](path)  # raises
        saved = disk.trash()
        REAL["rename"](text, saved)
        disk.named(_Name("unlink", text, "", saved))

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        disk, text = (None, "") if dir_fd is not None else self._disk_of(path)
        if disk is not None:
            self._step(disk, 7)
            if not os.path.exists(text):
                self._room(disk)
        REAL["mkdir"](path, mode, dir_fd=dir_fd)
        if disk is not None:
            disk.named(_Name("make", text))

    def flock(self, fd: Any, operation: int) -> None:
        if type(fd) is not int or fd < FIRST_DESCRIPTOR:
            REAL_FLOCK(fd, operation)
            return
        opened = self._of(fd)
        if any(lock.startswith(f"{opened.path}:") for lock in opened.disk.locks):
            raise BlockingIOError(errno.EAGAIN, "it is locked")
        opened.disk.locks.add(f"{opened.path}:{fd}")

    @staticmethod
    def getpid() -> int:
        return 4_242

    def urandom(self, size: int) -> bytes:
        return self._timeline.random.randbytes(size)

    def _wall_ns(self) -> int:
        return 1_700_000_000_000_000_000 + self._timeline.now_ns
