"""A message on a stream between brokers: one frame of `wire/framing.py`, in whose memory it stays.

    length of the frame | envelope | frames, each one's length | header | frames

What is received owns its memory; header and frames of a message are parts of it.
"""

import struct
from collections.abc import Sequence

from ...wire.primitives import MalformedFrame
from .handlers import ENVELOPE_BYTES, Buffer, PeerPacket, What, envelope, open_envelope

COPY_BELOW_BYTES = 4 * 1024  # one write of a copy costs less than one of two parts
_LENGTH, _COUNT = struct.Struct(">I"), struct.Struct(">I")
_SIZE_BYTES = 4


def encode(
    what: What, kind: int, correlation_id: int, header: bytes, frames: Sequence[Buffer]
) -> tuple[list[Buffer], int]:
    """The parts to be written, and their bytes. Frames are not copied, unless they are small."""
    sizes = [part.nbytes if type(part) is memoryview else len(part) for part in frames]
    count = len(sizes)
    start_bytes = ENVELOPE_BYTES + _SIZE_BYTES * (1 + count) + len(header)
    length = start_bytes + sum(sizes)
    start = b"".join((
        _LENGTH.pack(length),
        envelope(what, kind, correlation_id, len(header)),
        struct.pack(f">{count + 1}I", count, *sizes),
        header,
    ))  # fmt: skip
    parts: list[Buffer] = [start, *frames]
    if length < COPY_BELOW_BYTES:
        parts = [b"".join(parts)]
    return parts, _LENGTH.size + length


def decode(frame: memoryview) -> PeerPacket:
    """The message in a frame without its length. Raises MalformedFrame."""
    try:
        what, kind, correlation_id, header_bytes = open_envelope(frame)
        (count,) = _COUNT.unpack_from(frame, ENVELOPE_BYTES)
        position = ENVELOPE_BYTES + _COUNT.size + _SIZE_BYTES * count
        if position > len(frame):
            raise MalformedFrame("it has fewer frames than it says")
        sizes = struct.unpack_from(f">{count}I", frame, ENVELOPE_BYTES + _COUNT.size)
    except struct.error:
        raise MalformedFrame("it is shorter than its beginning") from None
    if position + header_bytes + sum(sizes) != len(frame):
        raise MalformedFrame("its parts do not fill it")
    header = bytes(frame[position : position + header_bytes])
    position += header_bytes
    frames: list[Buffer] = []
    for size in sizes:
        frames.append(frame[position : position + size])
        position += size
    return PeerPacket(what, kind, correlation_id, header, frames)
