"""One broker process on a data directory: a lock that ends with the process, however that ends."""

import contextlib
import errno
import fcntl
import logging
import os
import stat
from pathlib import Path

from ..checkpoint import sync_directory

logger = logging.getLogger(__name__)
LOCK = ".lock"
OTHERS = 0o077
ROOT = 0  # owns what a container mounts, and may do anything anyway


class DirectoryInUse(Exception):
    """Another broker process holds the lock of the directory."""


class DirectoryOfAnother(Exception):
    """The directory belongs to another user, who could put anything into it."""


class DirectoryRemoved(Exception):
    """The directory of a running broker has been removed, or moved away."""


def make_directory(path: Path) -> None:
    """Make it if it is missing, with those above it, so that it outlives a power cut."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for made in missing:
        sync_directory(made.parent)


def close_to_others(path: Path) -> None:
    """Let only its owner enter a data directory that an older release, or a person, left open."""
    if not stat.S_IMODE(path.stat().st_mode) & OTHERS:
        return
    with contextlib.suppress(PermissionError):  # root's, or of a file system without modes
        path.chmod(0o700)
    is_closed = not stat.S_IMODE(path.stat().st_mode) & OTHERS
    now = "it is its owner's alone now" if is_closed else "and cannot be closed to them"
    logger.warning("%s was open to other users; %s", path, now)


def take_lock(path: Path) -> int:
    """Return the descriptor that holds the lock of a data directory.

    Raises DirectoryInUse, and DirectoryOfAnother when another user owns the directory or has put a
    link where the lock is.
    """
    owner = path.stat().st_uid
    if owner not in (ROOT, os.geteuid()):
        raise DirectoryOfAnother(
            f"{path} belongs to user {owner}, and this is user {os.geteuid()}. Run the node as "
            "that user, or give it a directory of its own"
        )
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(path / LOCK, flags, 0o600)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise DirectoryOfAnother(f"{path / LOCK} is a link. Remove it") from None
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


def lock_inode(path: Path) -> int | None:
    """Return what tells a directory's lock from one that was made later; None: there is none.

    Raises OSError where the disk does not say.
    """
    try:
        return (path / LOCK).stat().st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None
