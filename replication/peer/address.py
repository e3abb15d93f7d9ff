"""The addresses of the links between brokers, and the access to them.

Each broker has two sockets, control (ZeroMQ) and bulk (streams, `streams`), so that a heartbeat
never waits behind megabytes.

The sockets are Unix sockets in a directory that only the owner may enter. There is no other access
control, so the directory's mode is checked. A sender is identified by the routing id of its
connection, never by the content of its message.
"""

import contextlib
import os
from functools import lru_cache
from pathlib import Path

SOCKET_PATH_BYTES_MAX = 107  # sun_path of Linux, without the closing zero byte


class PeerSocketError(Exception):
    """The error of a link's socket that cannot be opened. Its text has the remedy."""


def prepare_directory(directory: Path) -> None:
    """Create the directory for its owner only. Refuse a directory that others may enter."""
    try:
        directory.mkdir(mode=0o700, parents=True)
        return
    except FileExistsError:
        pass
    status = directory.stat()
    if not directory.is_dir() or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PeerSocketError(
            f"{directory} must be a directory of mode 0700 owned by this user: whoever may "
            f"enter it may speak as a broker (found mode {status.st_mode & 0o777:04o}, "
            f"owner {status.st_uid})"
        )


def socket_path(directory: Path, channel: str, node_id: int) -> Path:
    """Return the path of a broker's socket for the channel "control" or "bulk".

    Raises PeerSocketError if the path is too long for Linux.
    """
    path = directory / f"{channel}-{node_id}"
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        raise PeerSocketError(
            f"{path} is longer than {SOCKET_PATH_BYTES_MAX} bytes, the limit for a socket: "
            "choose a shorter oncelog.peer.directory"
        )
    return path


def remove_sockets(directory: Path, node_id: int) -> None:
    """Remove the sockets of a broker, and the directory with the last socket."""
    for path in directory.glob(f"*-{node_id}"):
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        directory.rmdir()


def routing_id(node_id: int) -> bytes:
    """Return the routing id of a broker's connections."""
    return b"n%d" % node_id


@lru_cache
def node_of(routing_id: bytes) -> int | None:
    """Return the id of the broker with this routing id, or None if no broker can have it."""
    digits = routing_id[1:]
    if routing_id[:1] != b"n" or not digits.isdigit() or len(digits) > 10:
        return None
    return int(digits)
