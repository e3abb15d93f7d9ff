"""A plain connection to one broker that sends requests without waiting for answers."""

import itertools
import socket
from typing import Any

from oncelog.wire.framing import encode_request_header, encode_response_header
from oncelog.wire.messages import control

from ..request_bodies import CODECS, encode_request_body

PRODUCE, FETCH, LIST_OFFSETS, METADATA, CREATE_TOPICS, INIT_PRODUCER_ID = 0, 1, 2, 3, 19, 22
TIMEOUT_S = 120.0
Address = tuple[str, int]


class Connection:
    """A blocking connection to a broker.

    A caller that pipelines requests counts the answers itself.
    """

    def __init__(self, address: Address, *, receive_bytes: int | None = None) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_ids = itertools.count(1)
        self._unread = bytearray()

    def close(self) -> None:
        self.socket.close()

    def send(self, api_key: int, version: int, body: bytes) -> None:
        self.socket.sendall(self.frame(api_key, version, body))

    def receive(self, api_key: int, version: int) -> memoryview:
        """Return the next answer without its header."""
        size = int.from_bytes(self._take(4), "big")
        return memoryview(self._take(size))[len(encode_response_header(api_key, version, 0)) :]

    def ask(self, api_key: int, version: int, values: Any) -> Any:
        self.send(api_key, version, encode_request_body(api_key, version, values))
        answer = self.receive(api_key, version)
        if api_key in CODECS:
            return CODECS[api_key].decode_response(answer, version)
        return control.decode_response(api_key, version, answer)

    def frame(self, api_key: int, version: int, body: bytes) -> bytes:
        header = encode_request_header(api_key, version, next(self._correlation_ids), "size")
        return (len(header) + len(body)).to_bytes(4, "big") + header + body

    def receive_some(self) -> list[bytes]:
        """Receive at least one byte, and return all complete frames with their headers."""
        self._receive()
        frames: list[bytes] = []
        position = 0
        while len(self._unread) - position >= 4:
            end = position + 4 + int.from_bytes(self._unread[position : position + 4], "big")
            if end > len(self._unread):
                break
            frames.append(bytes(self._unread[position + 4 : end]))
            position = end
        del self._unread[:position]
        return frames

    def _receive(self) -> None:
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the broker closed the connection")
        self._unread += data

    def _take(self, size: int) -> bytes:
        while len(self._unread) < size:
            self._receive()
        taken = bytes(self._unread[:size])
        del self._unread[:size]
        return taken
