"""Test that replica fetch messages are decoded as encoded, and other bytes are refused."""

import contextlib

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.replication.messages import (
    JOIN_BELOW_BYTES,
    AddedSlot,
    MalformedPeerMessage,
    MovedSlot,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    SlotAnswer,
    decode_fetch_request,
    decode_fetch_response,
    encode_fetch_request,
    encode_fetch_response,
)

NUMBER = st.integers(-1, 2**63 - 1)
ADDED = st.builds(
    AddedSlot, NUMBER, st.binary(min_size=16, max_size=16), NUMBER, NUMBER, NUMBER, NUMBER, NUMBER
)
MOVED = st.builds(MovedSlot, NUMBER, NUMBER, NUMBER, NUMBER)
REQUEST = st.builds(
    ReplicaFetchRequest,
    session_id=NUMBER,
    session_epoch=NUMBER,
    broker_epoch=NUMBER,
    max_wait_ms=NUMBER,
    max_bytes=NUMBER,
    added=st.lists(ADDED, max_size=5),
    moved=st.lists(MOVED, max_size=5),
    removed=st.lists(NUMBER, max_size=5),
)
RECORDS = st.sampled_from([0, 1, 100, JOIN_BELOW_BYTES - 1, JOIN_BELOW_BYTES]).map(
    lambda size: bytes(i % 251 for i in range(size))
)
ANSWER = st.builds(SlotAnswer, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER, RECORDS)
RESPONSE = st.builds(
    ReplicaFetchResponse,
    session_id=NUMBER,
    session_epoch=NUMBER,
    error=NUMBER,
    broker_epoch=NUMBER,
    answers=st.lists(ANSWER, max_size=6),
)


@given(REQUEST)
def test_replica_fetch_request_is_decoded_as_encoded(request_: ReplicaFetchRequest) -> None:
    assert decode_fetch_request(encode_fetch_request(request_)) == request_


@given(RESPONSE)
def test_replica_fetch_response_is_decoded_as_encoded(response: ReplicaFetchResponse) -> None:
    header, frames = encode_fetch_response(response)
    assert decode_fetch_response(header, frames) == response


def test_replica_fetch_response_joins_small_records_and_copies_no_large_records() -> None:
    large = bytes(JOIN_BELOW_BYTES)
    answers = [SlotAnswer(i, records=b"x" * 100) for i in range(5)]
    answers[2] = SlotAnswer(2, records=large)
    response = ReplicaFetchResponse(session_id=1, session_epoch=1, answers=answers)
    _, frames = encode_fetch_response(response)
    assert [len(frame) for frame in frames] == [200, len(large), 200]
    assert frames[1] is large


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",  # an array of 2^32 - 1
        msgpack.packb(7),
        msgpack.packb([1, 2, 3]),
        msgpack.packb([0, 0, 0, 0, "x", [], [], []]),
        msgpack.packb([0, 0, 0, 0, 0, {}, [], []]),
        msgpack.packb([0, 0, 0, 0, 0, [], [1, 2, 3], []]),
        msgpack.packb([0, 0, 0, 0, 0, [], [], [None]]),
        msgpack.packb([0, 0, 0, 0, 0, [1, b"short", 0, 0, 0, 0, 0], [], []]),
        msgpack.packb([0, 0, 0, 0, 0, [1, b"x" * 16, 0, 0, 0, 0, 1.5], [], []]),
        msgpack.packb([True, 0, 0, 0, 0, [], [], []]),
    ],
)
def test_replica_fetch_request_that_is_malformed_is_refused(header: bytes) -> None:
    with pytest.raises(MalformedPeerMessage):
        decode_fetch_request(header)


def answers_of(*sizes: int) -> bytes:
    numbers = [number for size in sizes for number in (1, 0, 0, 0, 0, 0, size)]
    packed = msgpack.packb([1, 1, 0, 1, numbers])
    assert packed is not None
    return packed


@pytest.mark.parametrize(
    ("sizes", "frames"),
    [
        ((5,), []),
        ((5,), [b"four"]),
        ((2, 3), [b"four"]),
        ((4,), [b"four", b"more"]),
        ((2,), [b"four"]),
        ((-4,), [b"four"]),
        ((1 << 62,), [b"four"]),
    ],
)
def test_replica_fetch_response_with_record_sizes_unlike_its_frames_is_refused(
    sizes, frames
) -> None:
    with pytest.raises(MalformedPeerMessage):
        decode_fetch_response(answers_of(*sizes), frames)


@given(st.binary(max_size=60))
def test_replica_fetch_messages_of_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for decode in (decode_fetch_request, lambda header: decode_fetch_response(header, [data])):
        with contextlib.suppress(MalformedPeerMessage):
            decode(data)
