"""The lock of a data directory, which is released whenever its broker process ends."""

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path

LOCK = ".lock"
OTHERS = 0o077
ROOT = 0  # root owns the files that a container mounts, and is trusted anyway


class DirectoryInUse(Exception):
    """The error of a directory that another broker process has locked."""


class DirectoryOfAnother(Exception):
    """The error of a data directory that belongs to another user, and is not trusted."""


class DirectoryRemoved(Exception):
    """The error of a data directory that was removed or moved while its broker runs."""


def make_directory(path: Path) -> None:
    """Create a missing directory and its parents, and sync their names to the disk."""
    # Imported here since it is slow, and commands need other parts of this file.
    from ..checkpoint import sync_directory

    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for made in missing:
        sync_directory(made.parent)


def close_to_others(path: Path) -> bool:
    """Remove the rights of other users on a directory. Return whether that changed anything.

    An older release or an administrator may have left the directory open to others.
    """
    if not is_open_to_others(path):
        return False
    with contextlib.suppress(PermissionError):  # owned by root, or a file system without modes
        path.chmod(0o700)
    return not is_open_to_others(path)


def is_open_to_others(path: Path) -> bool:
    """Return whether other users have any right on a directory or file."""
    return bool(stat.S_IMODE(path.stat().st_mode) & OTHERS)


def other_owner(path: Path) -> int | None:
    """Return the id of the user that owns `path`, or None if that is this user or root."""
    owner = path.stat().st_uid
    return owner if owner not in (ROOT, os.geteuid()) else None


def take_lock(path: Path) -> int:
    """Lock a data directory. Return the descriptor that holds the lock.

    Raises DirectoryInUse, and DirectoryOfAnother if another user owns the directory or has put a
    link in place of the lock.
    """
    if (owner := other_owner(path)) is not None:
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


def identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode numbers of a directory, or None if it does not exist."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def lock_inode(path: Path) -> int | None:
    """Return the inode number of a directory's lock file, or None without a lock file.

    A lock file that was deleted and created again has another inode number. Raises OSError if the
    disk fails.
    """
    try:
        return (path / LOCK).stat().st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None
