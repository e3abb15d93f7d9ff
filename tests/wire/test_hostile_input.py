"""Test that damaged or false frames of each API and version raise no error but MalformedFrame.

docs/decisions/0001 sets the limits. A request has at most 100,000 array elements, and memory is
allocated only for received bytes.
"""

import contextlib
import random
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from oncelog.wire.messages import control, fetch, produce
from oncelog.wire.messages.apis import APIS
from oncelog.wire.primitives import MalformedFrame

from .samples import Samples, sample_body

Decode = Callable[[bytes], Any]
LIES = [
    b"\x7f\xff\xff\xff",  # an int32 count, or a length
    b"\x00\x0f\x42\x40",  # a million
    b"\xff\xff\xff\xfe",
    b"\xff\xff\xff\xff\x0f",  # the same as varints
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x80",
    b"\x7f\xff",
    b"\x80\x00",
]
every_api = pytest.mark.parametrize(
    "api_key", [pytest.param(key, id=api.name) for key, api in APIS.items()]
)


def decoder(api_key: int, version: int, direction: str) -> Decode:
    name = f"decode_{direction}"
    if api_key in (0, 1):
        by_hand = getattr((produce, fetch)[api_key], name)
        return lambda data: by_hand(memoryview(data), version)
    decode = getattr(control, name)
    return lambda data: decode(api_key, version, memoryview(data))


def cases(api_key: int) -> list[tuple[Decode, bytes]]:
    samples = Samples(api_key)
    api = APIS[api_key]
    return [
        (decoder(api_key, version, direction), sample_body(api_key, version, direction, samples))
        for version in range(api.oldest, api.newest + 1)
        for direction in ("request", "response")
        for _ in range(2)
    ]


@every_api
def test_decoders_given_a_truncated_message_decode_or_refuse_the_bytes(api_key: int) -> None:
    rng = random.Random(api_key)
    for decode, body in cases(api_key):
        decode(body)
        ends = range(len(body)) if len(body) < 60 else rng.sample(range(len(body)), 60)
        for end in ends:
            with contextlib.suppress(MalformedFrame):
                decode(body[:end])


@every_api
def test_decoders_given_flipped_bytes_or_false_lengths_decode_or_refuse_the_bytes(
    api_key: int,
) -> None:
    rng = random.Random(api_key)
    refused = 0
    for decode, body in cases(api_key):
        for _ in range(25):
            data = bytearray(body)
            for _ in range(rng.choice([1, 1, 2, 5])):
                if data:
                    data[rng.randrange(len(data))] = rng.choice([0, 0xFF, 0x7F, 0x80, 1])
            lie = rng.choice(LIES)
            if rng.random() < 0.5 and len(data) > len(lie):
                at = rng.randrange(len(data) - len(lie))
                data[at : at + len(lie)] = lie
            try:
                decode(bytes(data))
            except MalformedFrame:
                refused += 1
    assert refused > 0


@every_api
def test_decoder_given_a_false_count_takes_little_cpu_time(api_key: int) -> None:
    """A false count of 100 million stands at several places before 50 kB of small elements."""
    api = APIS[api_key]
    samples = Samples(api_key)
    for version in {api.oldest, api.newest}:
        for direction in ("request", "response"):
            decode = decoder(api_key, version, direction)
            start = sample_body(api_key, version, direction, samples)[:24]
            for at in (0, 2, 4, 6, 10, len(start)):
                for lie in (b"\x05\xf5\xe1\x00", b"\xff\xff\xff\x2f"):
                    for filling in (b"\0", b"\1"):
                        assert_bounded(decode, start[:at] + lie + filling * 50_000)


def assert_bounded(decode: Decode, data: bytes) -> None:
    spent_s = []
    while not spent_s or (spent_s[-1] >= 2 and len(spent_s) < 3):  # garbage is collected at times
        started = time.process_time()
        with contextlib.suppress(MalformedFrame):
            decode(data)
        spent_s.append(time.process_time() - started)
    assert spent_s[-1] < 2, spent_s  # 100 million steps take far longer


def test_decoder_given_a_false_length_allocates_only_for_received_bytes() -> None:
    frames = [
        (3, 1, b"\x7f\xff\xff\xff"),  # each of these four made kio's reader abort the process
        (3, 9, b"\xff\xff\xff\xff\x0f"),
        (2, 1, b"\xff\xff\xff\xff" + b"\0\0\0\1" + b"\0\1a" + b"\x7f\xff\xff\xff"),
        (23, 2, b"\x40\0\0\0"),
        (36, 0, b"\x7f\xff\xff\xff"),
        (0, 3, b"\xff\xff" + bytes(6) + b"\x7f\xff\xff\xff"),
        (0, 9, b"\0" + bytes(6) + b"\xff\xff\xff\xff\x0f"),
        (1, 4, bytes(17) + b"\x7f\xff\xff\xff"),
        (1, 12, bytes(25) + b"\xff\xff\xff\xff\x0f"),
    ]
    for api_key, version, _ in frames:  # imports are not measured
        with contextlib.suppress(MalformedFrame):
            decoder(api_key, version, "request")(b"")
    tracemalloc.start()
    try:
        for api_key, version, body in frames:
            with pytest.raises(MalformedFrame):
                decoder(api_key, version, "request")(body)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("version", [1, 12])
def test_request_with_too_many_elements_is_refused(version: int) -> None:
    topics = [{"name": "", "topic_id": None}] * 100_001
    body = control.encode_request(3, version, {"topics": topics})
    with pytest.raises(MalformedFrame):
        control.decode_request(3, version, body)
    body = control.encode_request(3, version, {"topics": topics[1:]})
    assert len(control.decode_request(3, version, body).topics) == 100_000
