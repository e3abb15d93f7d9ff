"""What the kernel knows of a client's connection, on Linux (TCP_INFO)."""

import socket
import struct

TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)  # Linux; its first byte is the state
TCP_ESTABLISHED = 1
TCP_INFO_LAST_DATA_RECEIVED = 8 + 4 * 11  # where the kernel says how many ms ago that was


def has_peer_closed(peer: socket.socket) -> bool:
    """Whether the other end has closed, which a socket that is not read does not tell by itself."""
    info = _tcp_info(peer, 1)
    return bool(info) and info[0] != TCP_ESTABLISHED


def since_last_data_ms(peer: socket.socket) -> int:
    """How long the newest bytes of a connection have been here, in the kernel too; 0 unknown."""
    size_bytes = TCP_INFO_LAST_DATA_RECEIVED + 4
    info = _tcp_info(peer, size_bytes)
    if len(info) < size_bytes:
        return 0
    return struct.unpack_from("=I", info, TCP_INFO_LAST_DATA_RECEIVED)[0]


def _tcp_info(peer: socket.socket, size_bytes: int) -> bytes:
    """What the kernel says of a connection; nothing of one that is closed, or without Linux."""
    if TCP_INFO is None:
        return b""
    try:
        return peer.getsockopt(socket.IPPROTO_TCP, TCP_INFO, size_bytes)
    except (OSError, ValueError):  # closed meanwhile: uvloop's sockets say the latter
        return b""
