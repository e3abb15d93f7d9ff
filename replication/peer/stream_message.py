"""A message on a stream between brokers, as one frame of `wire/framing.py`.

length of the frame | envelope | frames, each one's length | header | frames

A received frame owns its memory, and header and frames of a message are views of that memory.

Almost every message is a replica fetch, either a poll without frames, or an answer with one frame.
Their envelope and lengths are packed and unpacked together, in one step.
"""

import struct
from collections.abc import Sequence

from ...runtime.c_calls import new_tuple
from ...wire.primitives import MalformedFrame
from .handlers import ENVELOPE_BYTES, Buffer, PeerPacket, What

COPY_BELOW_BYTES = 4 * 1024  # below this size one copy costs less than a second write
_SIZE_BYTES = 4
# The total length, the fields of `handlers.envelope`, the number of frames, and their lengths.
_PLAIN, _ONE_FRAME = struct.Struct(">IBBQII"), struct.Struct(">IBBQIII")
_START = struct.Struct(">BBQII")  # without the total length, which is not part of a frame
_START_BYTES = _START.size
assert _START_BYTES == ENVELOPE_BYTES + _SIZE_BYTES


def encode(
    what: What, kind: int, correlation_id: int, header: bytes, frames: Sequence[Buffer]
) -> tuple[list[Buffer], int]:
    """Return the parts of a message to write, and their total size in bytes.

    Frames are copied only into a small message.
    """
    header_bytes = len(header)
    if not frames:
        length = _START_BYTES + header_bytes
        start = _PLAIN.pack(length, what, kind, correlation_id, header_bytes, 0) + header
        return [start], _SIZE_BYTES + length
    if len(frames) > 1:
        return _encode_many(what, kind, correlation_id, header, frames)
    frame = frames[0]
    size_bytes = frame.nbytes if type(frame) is memoryview else len(frame)
    length = _START_BYTES + _SIZE_BYTES + header_bytes + size_bytes
    start = _ONE_FRAME.pack(length, what, kind, correlation_id, header_bytes, 1, size_bytes)
    if length < COPY_BELOW_BYTES:
        return [b"".join((start, header, frame))], _SIZE_BYTES + length
    return [start + header, frame], _SIZE_BYTES + length


def _encode_many(
    what: What, kind: int, correlation_id: int, header: bytes, frames: Sequence[Buffer]
) -> tuple[list[Buffer], int]:
    sizes = [part.nbytes if type(part) is memoryview else len(part) for part in frames]
    count = len(sizes)
    length = _START_BYTES + _SIZE_BYTES * count + len(header) + sum(sizes)
    start = b"".join(
        (
            _PLAIN.pack(length, what, kind, correlation_id, len(header), count),
            struct.pack(f">{count}I", *sizes),
            header,
        )
    )
    parts: list[Buffer] = [start, *frames]
    if length < COPY_BELOW_BYTES:
        parts = [b"".join(parts)]
    return parts, _SIZE_BYTES + length


def decode(frame: memoryview) -> PeerPacket:
    """Decode a frame without its length, or raise MalformedFrame."""
    length = len(frame)
    try:
        what, kind, correlation_id, header_bytes, count = _START.unpack_from(frame)
        position = _START_BYTES + _SIZE_BYTES * count
        if not count:
            if position + header_bytes != length:
                raise MalformedFrame("its parts do not fill it")
            header = bytes(frame[position:])
            return new_tuple(PeerPacket, (what, kind, correlation_id, header, []))
        if position > length:
            raise MalformedFrame("it has fewer frames than it says")
        sizes = struct.unpack_from(f">{count}I", frame, _START_BYTES)
    except struct.error:
        raise MalformedFrame("it is shorter than its beginning") from None
    if position + header_bytes + sum(sizes) != length:
        raise MalformedFrame("its parts do not fill it")
    header = bytes(frame[position : position + header_bytes])
    position += header_bytes
    frames: list[Buffer] = []
    for size in sizes:
        frames.append(frame[position : position + size])
        position += size
    return new_tuple(PeerPacket, (what, kind, correlation_id, header, frames))
