"""Test that a message on a stream is decoded as encoded, and that other bytes are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.replication.peer.handlers import ENVELOPE_BYTES, What
from oncelog.replication.peer.stream_message import COPY_BELOW_BYTES, decode, encode
from oncelog.wire.primitives import MalformedFrame

FRAMES = st.lists(st.binary(max_size=200) | st.just(bytes(COPY_BELOW_BYTES)), max_size=5)


def frame_of(parts: list) -> memoryview:
    sent = b"".join(parts)
    assert int.from_bytes(sent[:4]) == len(sent) - 4
    return memoryview(bytearray(sent[4:]))


@given(st.sampled_from(What), st.integers(0, 255), st.integers(0, 2**64 - 1), st.binary(), FRAMES)
def test_stream_message_is_decoded_as_encoded(what, kind, correlation_id, header, frames) -> None:
    parts, size_bytes = encode(what, kind, correlation_id, header, frames)
    assert sum(map(len, parts)) == size_bytes
    assert decode(frame_of(parts)) == (what, kind, correlation_id, header, frames)


def test_stream_message_with_large_frames_is_not_copied() -> None:
    large, small = memoryview(bytes(COPY_BELOW_BYTES)), b"x"
    parts, _ = encode(What.REPLY, 0, 1, b"head", [large, small])
    assert parts[1] is large
    received = frame_of(parts)
    frame = decode(received).frames[0]
    assert isinstance(frame, memoryview)
    received[-2] = 7  # the last byte of the large one
    assert frame[-1] == 7


@given(st.binary(max_size=60))
def test_stream_message_of_any_bytes_is_decoded_or_refused(frame: bytes) -> None:
    try:
        message = decode(memoryview(frame))
    except MalformedFrame:
        return
    parts = [message.header, *map(bytes, message.frames)]
    assert sum(map(len, parts)) + ENVELOPE_BYTES + 4 * (1 + len(message.frames)) == len(frame)


@pytest.mark.parametrize("place", range(ENVELOPE_BYTES - 4, ENVELOPE_BYTES + 12))
def test_stream_message_with_a_wrong_length_is_refused(place: int) -> None:
    parts, _ = encode(What.REQUEST, 1, 2, b"head", [b"one", b"two"])
    for step in (1, 0x80):
        damaged = frame_of(parts)
        damaged[place] ^= step
        with pytest.raises(MalformedFrame):
            decode(damaged)
