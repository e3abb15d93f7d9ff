"""Facts from the Linux kernel about the machine, processes, and connections.

On another system each function returns None, or a default for a missing feature.
"""

import fcntl
import os
import socket
import struct
import sys
import termios
from pathlib import Path

PROC = Path("/proc")
NAMESPACES = ("pid", "mnt")
# Linux only; the first byte of the result is the state.
TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)
TCP_ESTABLISHED = 1
# The offset of tcpi_last_data_recv, the ms since the last data.
TCP_INFO_LAST_DATA_RECEIVED = 8 + 4 * 11


def boot_id() -> str | None:
    """Return the id of this boot of the machine."""
    return _text("sys/kernel/random/boot_id")


def first_outgoing_port() -> int | None:
    """Return the lowest port that the kernel assigns to outgoing connections."""
    numbers = (_text("sys/net/ipv4/ip_local_port_range") or "").split()
    return int(numbers[0]) if numbers else None


def processor_model() -> str | None:
    """Return the name of the machine's processor."""
    for line in (_text("cpuinfo") or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return None


def open_process_file(name: str, pid: int | None = None) -> int | None:
    """Open a file such as `stat` in the /proc directory of a process, by default of this process.

    Returns the file descriptor, or None if the file cannot be opened.
    """
    try:
        return os.open(PROC / str(pid or "self") / name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def shares_our_namespaces(pid: int) -> bool:
    """Return whether a process has the same PID and mount namespaces, as within one container."""
    try:
        return all(
            os.readlink(PROC / str(pid) / "ns" / name) == os.readlink(PROC / "self/ns" / name)
            for name in NAMESPACES
        )
    except OSError:  # another user's process, an ended process, or a kernel without these files
        return not (PROC / "self/ns").exists()


def has_peer_closed(peer: socket.socket) -> bool:
    """Return whether the peer has closed its end, which a socket reports only when it is read."""
    info = _tcp_info(peer, 1)
    return bool(info) and info[0] != TCP_ESTABLISHED


def unread_bytes(peer: socket.socket) -> int:
    """Return the number of received bytes that wait in the kernel, or 0 if the socket is closed."""
    return _count(peer, termios.FIONREAD)


def unacknowledged_bytes(peer: socket.socket) -> int:
    """Return the number of sent bytes that wait in the kernel, or 0 if the socket is closed."""
    return _count(peer, termios.TIOCOUTQ)


def since_last_data_ms(peer: socket.socket) -> int:
    """Return the age of a connection's newest bytes, read or not, or 0 if unknown."""
    size_bytes = TCP_INFO_LAST_DATA_RECEIVED + 4
    info = _tcp_info(peer, size_bytes)
    if len(info) < size_bytes:
        return 0
    return struct.unpack_from("=I", info, TCP_INFO_LAST_DATA_RECEIVED)[0]


def _count(peer: socket.socket, request: int) -> int:
    try:
        count = fcntl.ioctl(peer.fileno(), request, bytes(4))
    except (OSError, ValueError):
        return 0
    return int.from_bytes(count, sys.byteorder)


def _tcp_info(peer: socket.socket, size_bytes: int) -> bytes:
    """Return TCP_INFO of a connection, or empty bytes if it is closed or on other systems."""
    if TCP_INFO is None:
        return b""
    try:
        return peer.getsockopt(socket.IPPROTO_TCP, TCP_INFO, size_bytes)
    except (OSError, ValueError):  # the socket was closed; uvloop's sockets raise ValueError
        return b""


def _text(name: str) -> str | None:
    try:
        return (PROC / name).read_text().strip()
    except OSError:
        return None
