"""One broker process on a data directory: a lock that ends with the process, however that ends."""

import fcntl
import os
from pathlib import Path

from ..checkpoint import sync_directory

LOCK = ".lock"


class DirectoryInUse(Exception):
    """Another broker process holds the lock of the directory."""


def make_directory(path: Path) -> None:
    """Make it if it is missing, with those above it, so that it outlives a power cut."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync_directory(made.parent)


def take_lock(path: Path) -> int:
    """The descriptor that holds the lock of a data directory. Raises DirectoryInUse."""
    fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip()
        os.close(fd)
        raise DirectoryInUse(
            f"{path} is in use by another broker process (pid {holder or 'unknown'}). "
            "Stop it first, or give this node a directory of its own"
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd
