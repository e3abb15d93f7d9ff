"""The frames and headers around the body of every request and response.

A frame is a 4-byte length and this number of bytes. The length is not trusted. A frame's memory
grows with the received bytes, to at most GROWTH times their number. A frame of more than
GROWN_BYTES_MAX bytes gets an address range, of which the kernel provides only the part that has
been received. To copy it as a whole would hold the event loop for 50 ms.

`FrameReceiver` is made for `asyncio.BufferedProtocol`. Small frames, and the beginning of large
frames, are received in a staging buffer that all receivers share, and are then copied. A frame that
does not fit into the staging buffer gets its own memory once BEGUN_BYTES of it have been received,
and the rest is received directly into that memory. Every returned frame owns its memory and may be
written to (a leader writes offsets into batches).
"""

import struct
from typing import NamedTuple

from .frame_memory import STAGING_BYTES, FrameMemory, reserved
from .messages.apis import FLEXIBLE_FROM, NEVER
from .primitives import MalformedFrame, Reader

Buffer = bytes | bytearray | memoryview

API_VERSIONS = 18
FRAME_BYTES_MAX = 100 * 1024 * 1024
BEGUN_BYTES = 16 * 1024
GROWTH = 4
GROWN_BYTES_MAX = 16 * 1024 * 1024
HEADER_BYTES_MIN = 8  # key, version, correlation id
_PREFIX = 4
_size = struct.Struct(">i")
_peek = struct.Struct(">hh")
_request_start = struct.Struct(">hhih")
_response_v0 = struct.Struct(">i")
_response_v1 = struct.Struct(">ib")


class RefusedFrame(MalformedFrame):  # pyright: ignore[reportUntypedBaseClass]
    """The error of a length out of bounds, or of a frame for which there is no memory.

    `frames` are the complete frames before it.
    """

    def __init__(self, reason: str, frames: list[memoryview]) -> None:
        super().__init__(reason)
        self.frames = frames


class FrameReceiver:
    """A receiver that turns a stream of bytes into frames."""

    __slots__ = (
        "_filled",
        "_frame",
        "_frame_bytes",
        "_is_trusted",
        "_memory",
        "_rest",
        "max_bytes",
    )

    def __init__(
        self,
        max_frame_bytes: int = FRAME_BYTES_MAX,
        memory: FrameMemory | None = None,
        *,
        is_trusted: bool = False,
    ) -> None:
        """Create a receiver of frames with at most `max_frame_bytes`.

        is_trusted: each large frame gets all of its memory when it begins.
        """
        self.max_bytes = max_frame_bytes
        self._is_trusted = is_trusted
        self._memory = memory or FrameMemory()
        self._rest = b""  # received bytes without a complete frame
        self._filled = 0  # in the staging buffer, or in the current frame
        self._frame: memoryview | None = None  # as far as the length is trusted
        self._frame_bytes = 0

    def peek(self, count: int) -> bytes:
        """Return the first bytes after the complete frames, to explain a malformed length."""
        return self._rest[:count]

    def drop_incomplete(self) -> None:
        """Drop the bytes of an incomplete frame, of which the rest will not arrive."""
        self._frame, self._filled, self._rest = None, 0, b""

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Return the buffer, never empty, into which the transport writes the next bytes."""
        if self._frame is not None:
            return self._frame[self._filled :]
        staging, rest = self._memory.staging, self._rest
        if not rest:
            return staging
        staging[: len(rest)] = rest
        return staging[len(rest) :]

    def buffer_updated(self, count: int) -> list[memoryview]:
        """Record that `count` bytes were received, and return the frames that are complete now.

        Raises RefusedFrame for a frame with a length out of bounds or without memory.
        """
        filled = self._filled = self._filled + count
        frame = self._frame
        if frame is None:
            if not self._rest and filled > _PREFIX:
                staging = self._memory.staging
                size = _size.unpack_from(staging)[0]
                # Exactly one complete frame.
                if size == filled - _PREFIX and size <= self.max_bytes:
                    self._filled = 0
                    return [memoryview(bytearray(staging[_PREFIX:filled]))]
            return self._take_staged()
        if filled < self._frame_bytes:
            if filled == len(frame):
                self._grow(frame)
            return []
        self._frame, self._filled = None, 0
        return [frame]

    def _take_staged(self) -> list[memoryview]:
        filled, staging = self._filled, self._memory.staging
        frames: list[memoryview] = []
        position = 0
        while filled - position >= _PREFIX:
            size = _size.unpack_from(staging, position)[0]
            if not 0 < size <= self.max_bytes:
                self._rest = bytes(staging[position:filled])
                raise RefusedFrame(f"a frame of {size} bytes is not accepted here", frames)
            start, end = position + _PREFIX, position + _PREFIX + size
            if end <= filled:
                frames.append(memoryview(bytearray(staging[start:end])))
                position = end
            elif size > STAGING_BYTES - _PREFIX and filled - start >= BEGUN_BYTES:
                self._begin_large(staging[start:filled], size, frames)
                return frames
            else:
                break
        self._rest = bytes(staging[position:filled])
        self._filled = filled - position
        return frames

    def _begin_large(self, begun: memoryview, size: int, frames: list[memoryview]) -> None:
        arrived = len(begun)
        self._frame = frame = self._large(size, arrived, frames)
        frame[:arrived] = begun
        self._frame_bytes, self._filled, self._rest = size, arrived, b""

    def _grow(self, frame: memoryview) -> None:
        self._frame = grown = self._large(self._frame_bytes, len(frame), [])
        grown[: len(frame)] = frame

    def _large(self, size: int, received_bytes: int, frames: list[memoryview]) -> memoryview:
        """Return memory for a frame, or for its beginning.

        A beginning is a fourth of the frame, or a fourth of that, and so on. So a fourth of the
        frame is the most that is copied in the last step.
        """
        size_bytes = size
        try:
            if not self._is_trusted:
                if size > GROWN_BYTES_MAX:
                    return reserved(size)
                while size_bytes > GROWTH * received_bytes:
                    size_bytes = -(-size_bytes // GROWTH)
            return memoryview(self._memory.large(size_bytes))[:size_bytes]
        except (MemoryError, OSError):
            reason = f"there is no memory for a frame of {size} bytes"
            raise RefusedFrame(reason, frames) from None


class RequestHeader(NamedTuple):
    """The header of a request. The body begins at body_offset of the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def peek_api(frame: Buffer) -> tuple[int, int]:
    """Return API key and version, before any other field is checked."""
    if len(frame) < HEADER_BYTES_MIN:
        raise MalformedFrame("a request header takes at least 8 bytes")
    return _peek.unpack_from(frame)


def decode_request_header(frame: memoryview) -> RequestHeader:
    """Decode a header of version 0, 1 or 2 (client_id is never compact).

    Raises MalformedFrame.
    """
    try:
        key, version, correlation_id, length = _request_start.unpack_from(frame)
    except struct.error:
        if len(frame) == HEADER_BYTES_MIN:  # header version 0 had no client id
            key, version = _peek.unpack_from(frame)
            return RequestHeader(key, version, _size.unpack_from(frame, 4)[0], None, 8)
        raise MalformedFrame("the request header is cut short") from None
    position = _request_start.size
    client_id = None
    if length >= 0:
        end = position + length
        if end > len(frame):
            raise MalformedFrame("the client id is cut short")
        try:
            client_id = str(frame[position:end], "utf-8")
        except UnicodeDecodeError:
            raise MalformedFrame("the client id is not UTF-8") from None
        position = end
    elif length != -1:
        raise MalformedFrame("the client id has a negative length")
    if version >= FLEXIBLE_FROM.get(key, NEVER):
        if position < len(frame) and frame[position] == 0:
            position += 1
        else:
            reader = Reader(frame, position)
            reader.tags()
            position = reader.position
    return RequestHeader(key, version, correlation_id, client_id, position)


def encode_request_header(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Encode the request header for a version of the API."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    tags = b"\0" if api_version >= FLEXIBLE_FROM.get(api_key, NEVER) else b""
    return _request_start.pack(api_key, api_version, correlation_id, length) + name + tags


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """Encode a response header of version 0 or 1.

    ApiVersions always uses version 0, because its client knows no versions yet.
    """
    if api_key != API_VERSIONS and api_version >= FLEXIBLE_FROM.get(api_key, NEVER):
        return _response_v1.pack(correlation_id, 0)
    return _response_v0.pack(correlation_id)


def frame_response(header: bytes, body: list[Buffer]) -> list[Buffer]:
    """Return the parts of a response frame, which are length and header, and the parts of the body.

    The body is not copied.
    """
    size = len(header)
    for piece in body:
        size += len(piece)
    return [_size.pack(size) + header, *body]
