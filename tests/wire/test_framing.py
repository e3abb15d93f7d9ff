"""Test request frames in a byte stream of arbitrary pieces, and headers as encoded by kio."""

import errno
import io
import mmap
import os
import struct
import tracemalloc
from importlib import import_module
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_writer

from oncelog.wire.frame_memory import STAGING_BYTES, FrameMemory
from oncelog.wire.framing import (
    GROWN_BYTES_MAX,
    GROWTH,
    FrameReceiver,
    RefusedFrame,
    decode_request_header,
    encode_request_header,
    encode_response_header,
    frame_response,
    peek_api,
)
from oncelog.wire.messages.apis import ADDED, APIS
from oncelog.wire.messages.control import _schema
from oncelog.wire.primitives import MalformedFrame

MIB = 1024 * 1024
PRODUCE, METADATA, API_VERSIONS = 0, 3, 18
every_api = pytest.mark.parametrize(
    ("api_key", "version"),
    [(key, version) for key, api in APIS.items() for version in {api.oldest, api.newest}],
)


def feed(receiver: FrameReceiver, data: bytes, chunk_bytes: int) -> list[memoryview]:
    """Feed a byte stream in pieces of at most `chunk_bytes`, and return the received frames."""
    frames: list[memoryview] = []
    view = memoryview(data)
    while view:
        buffer = receiver.get_buffer(-1)
        count = min(len(buffer), chunk_bytes, len(view))
        assert count > 0
        buffer[:count] = view[:count]
        view = view[count:]
        frames += receiver.buffer_updated(count)
    return frames


def stream_of(bodies: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


sizes = st.sampled_from(
    [1, 2, 3, 100, 5000, 200_000]
    + [STAGING_BYTES + more for more in (-5, -4, -3, 0, 1)]  # where a frame no longer fits
)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(sizes, max_size=6),
    chunk_bytes=st.sampled_from([1, 3, 7, 1000, 16384, 65536, 10**7]),
)
def test_frame_receiver_returns_frames_whole_however_the_stream_is_cut(
    sizes: list[int], chunk_bytes: int
) -> None:
    if chunk_bytes < 100:
        sizes = [min(size, 3000) for size in sizes]
    bodies = [bytes((at & 0xFF,)) * size for at, size in enumerate(sizes)]
    receiver = FrameReceiver()
    frames = feed(receiver, stream_of(bodies), chunk_bytes)
    assert [bytes(frame) for frame in frames] == bodies
    assert receiver.peek(1) == b""


@pytest.mark.parametrize("size", [5 * 1024 * 1024, GROWN_BYTES_MAX + 256])
def test_frame_receiver_returns_a_very_long_frame_whole(size: int) -> None:
    body = bytes(range(256)) * (size // 256)
    assert [bytes(f) for f in feed(FrameReceiver(), stream_of([body, b"x"]), 60_000)] == [
        body,
        b"x",
    ]


def test_received_frame_is_writable_and_changed_by_no_other_frame() -> None:
    receiver = FrameReceiver()
    first, second = feed(receiver, stream_of([b"aaaa", b"bbbb"]), 10**6)
    first[0] = ord("z")
    feed(receiver, stream_of([b"cccc" * 10_000]), 10**6)
    assert bytes(first) == b"zaaa"
    assert bytes(second) == b"bbbb"


def test_frame_receivers_that_share_buffers_mix_no_received_bytes() -> None:
    memory = FrameMemory()
    receivers = [FrameReceiver(memory=memory) for _ in range(6)]
    streams = [stream_of([bytes((at,)) * 300] * 3) for at in range(6)]
    frames: list[list[memoryview]] = [[] for _ in range(6)]
    for start in range(0, len(streams[0]), 100):  # in turns, with frames begun everywhere
        for at, receiver in enumerate(receivers):
            frames[at] += feed(receiver, streams[at][start : start + 100], 100)
    assert [[bytes(f) for f in mine] for mine in frames] == [
        [bytes((at,)) * 300] * 3 for at in range(6)
    ]


@pytest.mark.parametrize("size", [0, -1, -(2**31), 1001, 2**31 - 1])
def test_frame_receiver_refuses_a_length_out_of_bounds_immediately(size: int) -> None:
    with pytest.raises(MalformedFrame):
        feed(FrameReceiver(max_frame_bytes=1000), struct.pack(">i", size), 4)


def test_frame_receiver_accepts_the_largest_allowed_frame() -> None:
    assert len(feed(FrameReceiver(max_frame_bytes=1000), stream_of([bytes(1000)]), 77)[0]) == 1000


@pytest.mark.parametrize("size", [MIB, 16 * MIB, 100 * MIB])
@pytest.mark.parametrize("received", [1, 100_000, 700_000])
def test_frame_receiver_takes_memory_in_proportion_to_the_received_bytes(
    size: int, received: int
) -> None:
    """2,000 clients could fill 2.5 GB by five bytes each."""
    memory, process = FrameMemory(), psutil.Process()
    before = process.memory_info().rss
    receivers = [FrameReceiver(memory=memory) for _ in range(40)]
    for receiver in receivers:
        assert feed(receiver, struct.pack(">i", size) + bytes(received), 10**6) == []
    grown = process.memory_info().rss - before
    assert grown < (GROWTH * received + 64 * 1024) * len(receivers) + 4 * MIB


def test_frame_receiver_takes_little_memory_for_the_beginning_of_a_slow_frame() -> None:
    memory = FrameMemory()
    tracemalloc.start()
    try:
        receivers = [FrameReceiver(memory=memory) for _ in range(40)]
        for receiver in receivers:
            assert feed(receiver, struct.pack(">i", MIB) + bytes(20_000), 10**6) == []
        assert tracemalloc.get_traced_memory()[0] < 40 * (GROWTH * 20_000 + 1000)
    finally:
        tracemalloc.stop()


def test_frame_receiver_copies_at_most_the_beginning_of_a_very_long_frame() -> None:
    """The copy of 64 MB, and new memory for the frame, held the event loop for 50 ms."""
    receiver, size = FrameReceiver(), 100 * MIB
    feed(receiver, struct.pack(">i", size) + bytes(100_000), 10**6)
    assert receiver._frame is not None and len(receiver._frame) == size


@pytest.mark.parametrize("size", [STAGING_BYTES, 200_000, MIB + 100, 4 * MIB + 1, GROWN_BYTES_MAX])
@pytest.mark.parametrize("chunk_bytes", [5000, 10**6])
def test_frame_receiver_copies_at_most_half_of_a_frame_while_it_grows(
    size: int, chunk_bytes: int
) -> None:
    """A frame of slightly more than 1 MB was copied as a whole for its last bytes."""
    taken = list[int]()

    class NotedMemory(FrameMemory):
        def large(self, size_bytes: int) -> bytearray:
            taken.append(size_bytes)
            return super().large(size_bytes)

    feed(FrameReceiver(memory=NotedMemory()), stream_of([bytes(size)]), chunk_bytes)
    assert taken[-1] == size and sum(taken[:-1]) <= size / 2


@pytest.mark.parametrize("size", [5 * MIB, GROWN_BYTES_MAX + 1])
def test_frame_receiver_without_memory_refuses_the_frame_and_returns_earlier_ones(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    def refused(*_: int) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(mmap, "mmap", refused)
    monkeypatch.setattr(FrameMemory, "large", lambda *_: bytearray(1 << 62))
    with pytest.raises(RefusedFrame, match=f"no memory for a frame of {size} bytes") as refusal:
        feed(FrameReceiver(), stream_of([b"first"]) + stream_of([bytes(size)]), 10**6)
    assert refusal.value.frames == [b"first"]


def test_frame_receiver_without_pending_bytes_holds_no_buffer() -> None:
    receiver = FrameReceiver()
    feed(receiver, stream_of([b"abc"]), 10**6)
    assert receiver._rest == b""
    assert receiver._frame is None


def test_frame_receiver_with_half_a_frame_holds_only_the_received_bytes() -> None:
    memory = FrameMemory()
    tracemalloc.start()
    try:
        receivers = [FrameReceiver(memory=memory) for _ in range(200)]
        for receiver in receivers:
            assert feed(receiver, struct.pack(">i", 20_000) + b"abc", 10**6) == []
        assert tracemalloc.get_traced_memory()[0] < 200 * 1000
    finally:
        tracemalloc.stop()
    assert len(feed(receivers[0], bytes(19_997), 10**6)[0]) == 20_000


def header_class_of(api_key: int, version: int, direction: str) -> type:
    """Return kio's header class for a message, also for the messages in `wire/messages/added`."""
    if (api_key, version) in ADDED:
        is_first_contact = (api_key, direction) == (18, "response")  # any client can read it
        number = 0 if is_first_contact else {"request": 2, "response": 1}[direction]
        module = import_module(f"kio.schema.{direction}_header.v{number}.header")
        return getattr(module, f"{direction.capitalize()}Header")
    return _schema(api_key, version, direction).__header_schema__  # type: ignore[attr-defined]


def written_by_kio(header: Any) -> bytes:
    stream = io.BytesIO()
    entity_writer(type(header))(stream, header)
    return stream.getvalue()


@every_api
def test_request_header_equals_that_of_kio(api_key: int, version: int) -> None:
    header_class = header_class_of(api_key, version, "request")
    for client_id in (None, "", "rdkafka", "é" * 100):
        header = header_class(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=-7,
            client_id=client_id,
        )
        data = encode_request_header(api_key, version, -7, client_id)
        assert data == written_by_kio(header)
        decoded = decode_request_header(memoryview(data + b"body"))
        assert decoded == (api_key, version, -7, client_id, len(data))
        assert peek_api(data) == (api_key, version)


@every_api
def test_response_header_equals_that_of_kio(api_key: int, version: int) -> None:
    theirs = written_by_kio(header_class_of(api_key, version, "response")(correlation_id=258))
    assert encode_response_header(api_key, version, 258) == theirs
    assert len(encode_response_header(api_key, version, 0)) == len(theirs)


def test_api_versions_response_header_never_has_tags() -> None:
    assert encode_response_header(API_VERSIONS, 4, 1) == b"\0\0\0\1"


def test_request_header_with_unknown_tags_is_decoded() -> None:
    data = encode_request_header(METADATA, 9, 1, "c")[:-1] + b"\x01\x09\x02xx"
    assert decode_request_header(memoryview(data + b"body")).body_offset == len(data)


def test_request_header_that_is_truncated_is_refused() -> None:
    whole = encode_request_header(PRODUCE, 9, 1, "client")
    for end in range(len(whole)):
        if end != 8:  # which is the header of version 0
            with pytest.raises(MalformedFrame):
                decode_request_header(memoryview(whole[:end]))
    with pytest.raises(MalformedFrame):
        peek_api(whole[:7])


@pytest.mark.parametrize("name", [b"\xff\xfe", b"\x7f\xff", b"\x00\x01\xff"])
def test_request_header_with_an_invalid_client_id_is_refused(name: bytes) -> None:
    with pytest.raises(MalformedFrame):
        decode_request_header(memoryview(b"\0\3\0\1\0\0\0\1" + name))


def test_response_frame_is_written_without_copying_its_body() -> None:
    body = [b"abc", memoryview(b"defg")]
    framed = frame_response(b"head", body)
    assert framed[1] is body[0]
    assert framed[2] is body[1]
    assert b"".join(framed) == b"\0\0\0\x0bheadabcdefg"


def test_frame_receiver_shows_the_first_bytes_of_a_malformed_frame() -> None:
    memory = FrameMemory()
    receiver, other = FrameReceiver(memory=memory), FrameReceiver(memory=memory)
    with pytest.raises(MalformedFrame):
        feed(receiver, b"\xff\xff\xff\xffHTTP", 100)
    feed(other, stream_of([b"something else"]), 100)
    assert receiver.peek(8) == b"\xff\xff\xff\xffHTTP"
