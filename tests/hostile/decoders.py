"""Decoders of bytes from clients and brokers, for requests, batches and messages of brokers."""

import random
from collections.abc import Callable
from typing import Any, Protocol

import msgpack
from crc32c import crc32c

from oncelog.coordinator.controller.controller import Heartbeat
from oncelog.coordinator.metadata.commands import KINDS, decode_command
from oncelog.coordinator.transactions.messages import (
    DescribeTransaction,
    VerifyTransaction,
    WriteMarkers,
)
from oncelog.node.controller.metadata_barrier import UntilApplied
from oncelog.replication.messages import decode_fetch_request, decode_fetch_response
from oncelog.replication.peer import stream_message
from oncelog.replication.peer.codec import decode_message
from oncelog.replication.peer.handlers import What
from oncelog.runtime.steps import run_to_end
from oncelog.storage.batch_checks import UnexpectedAppendOffset, replicated_batches
from oncelog.wire.compression import decompress
from oncelog.wire.errors import InvalidTimestamp, KafkaError
from oncelog.wire.framing import decode_request_header, encode_request_header
from oncelog.wire.messages import control, fetch, large_produce, produce
from oncelog.wire.messages.apis import APIS
from oncelog.wire.messages.fetch_rows import fetch_rows
from oncelog.wire.primitives import MalformedFrame
from oncelog.wire.record_batch import (
    CRC_AT,
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LENGTH_COUNTS_FROM,
    iterate_batches,
    split_batches,
    validate_client_batch,
)
from oncelog.wire.record_walk import (
    first_record_not_older,
    records_without_key,
    timestamps,
    walk_skeleton,
)
from oncelog.wire.records import Record, decode_batch, encode_batch

from ..lying_batches import lying_batches
from ..wire.samples import Samples, sample_body
from .mutations import mutated

Input = tuple[bytes, ...]
T0_MS = 1_700_000_000_000
UNFOLDED_MAX = 64 * 1024
INT64 = range(-(1 << 63), 1 << 63)


Errors = tuple[type[Exception], ...]


class Core(Protocol):
    """A decoder under attack, which also generates its inputs.

    An exception outside `errors` is a finding. share: the fraction of all inputs for this decoder.
    """

    name: str
    share: float
    errors: Errors

    def make(self, rng: random.Random) -> Input: ...
    def feed(self, data: Input) -> None: ...


class Requests:
    """Request frames of all APIs and versions, decoded by each of the decoders for the same API."""

    name, share = "requests", 0.5
    errors: Errors = (MalformedFrame,)
    SAMPLES = 4  # of each version

    def __init__(self) -> None:
        self._frames = [
            encode_request_header(key, version, number, "hostile"[: number * 3])
            + sample_body(key, version, "request", Samples(number))[:2_000]
            for key, api in APIS.items()
            for version in range(api.oldest, api.newest + 1)
            for number in range(self.SAMPLES)
        ]

    def make(self, rng: random.Random) -> Input:
        return (mutated(rng, self._frames[int(rng.random() * len(self._frames))]),)

    def feed(self, data: Input) -> None:
        """Decode a frame with each decoder of its API.

        Raise AssertionError if one decoder refuses the frame and another does not. Some malformed
        frames raise MalformedFrame.
        """
        frame = memoryview(bytearray(data[0]))
        header = decode_request_header(frame)
        key, version, body = header.api_key, header.api_version, frame[header.body_offset :]
        if key not in APIS or not APIS[key].oldest <= version <= APIS[key].newest:
            return
        if key == 0:
            ways = [
                lambda: produce.decode_request(body, version),
                lambda: run_to_end(large_produce.decode_parts_steps(body, version)),
            ]
            large_produce.peek_acks(body, version)
        elif key == 1:
            ways = [lambda: fetch.decode_request(body, version)]
            run_to_end(fetch_rows(body, version))
        else:
            ways = [
                lambda: control.decode_request(key, version, body),
                lambda: run_to_end(control.decode_request_steps(key, version, body)),
            ]
        refused = [_refusal(way) for way in ways]
        assert len(set(map(bool, refused))) == 1, f"read in one way, not in another: {refused}"


def _refusal(way: Callable[[], Any]) -> str:
    try:
        way()
    except MalformedFrame as refused:
        return repr(refused)
    return ""


class Batches:
    """Record batches with random contents, most with a correct length and checksum."""

    name, share = "batches", 0.25
    errors: Errors = (KafkaError, UnexpectedAppendOffset)

    def __init__(self) -> None:
        headers = (("h", b"1"), ("", None))
        records = [
            Record(i, T0_MS + i, b"k" * (i % 3) or None, b"v" * 9 * i, headers[: i % 3])
            for i in range(6)
        ]
        self._batches = [
            encode_batch(records[:count], compression=codec, **producer)
            for codec in range(5)
            for count in (1, 2, 6)
            for producer in ({}, {"producer_id": 5, "producer_epoch": 0, "base_sequence": 3})
        ] + [lie.data for lie in lying_batches(T0_MS)]

    def make(self, rng: random.Random) -> Input:
        batch = bytearray(rng.choice(self._batches))
        start = 0 if rng.random() < 0.2 else HEADER_BYTES if rng.random() < 0.6 else CRC_COVERS_FROM
        batch[start:] = mutated(rng, bytes(batch[start:]))
        if rng.random() < 0.9 and len(batch) >= HEADER_BYTES:
            batch[8:12] = (len(batch) - LENGTH_COUNTS_FROM).to_bytes(4, "big")
            batch[CRC_AT:CRC_COVERS_FROM] = crc32c(batch[CRC_COVERS_FROM:]).to_bytes(4, "big")
        return (bytes(batch),)

    def feed(self, data: Input) -> None:
        """Decode a batch as a broker, a follower and a consumer do, and raise the broker's refusal.

        Raise AssertionError if the broker accepts a batch that a follower refuses, or refuses the
        records of a batch that a consumer decodes without a gap.
        """
        batch = memoryview(bytearray(data[0]))
        list(split_batches(batch, 3, 100))
        replicated = _refused(lambda: replicated_batches(batch, 0))
        _refused(lambda: list(iterate_batches(batch)))
        header = validate_client_batch(batch, max_message_bytes=1 << 20)
        assert replicated is None, f"a follower would refuse it: {replicated}"
        records = decompress(header.compression, batch[HEADER_BYTES:], UNFOLDED_MAX)
        _refused(lambda: run_to_end(records_without_key(records, header)))
        _refused(lambda: list(timestamps(records, header)))
        _refused(lambda: _search(records, header))
        skeleton = _refused(lambda: run_to_end(walk_skeleton(records, header)))
        decoded = decode_batch(batch, max_decompressed_bytes=UNFOLDED_MAX)
        is_dense = [record.offset for record in decoded] == list(range(header.record_count))
        is_odd = skeleton is not None and not isinstance(skeleton, InvalidTimestamp)
        assert not (is_odd and is_dense), f"readers take it: {skeleton}"


def _search(records: bytes, header: Any) -> None:
    for least_ms in (0, T0_MS, INT64[-1]):
        found = run_to_end(first_record_not_older(records, header, least_ms, 0))
        assert found is None or (found[0] in INT64 and found[1] in INT64), f"no answer: {found}"


def _refused(way: Callable[[], Any]) -> KafkaError | UnexpectedAppendOffset | None:
    try:
        way()
    except (KafkaError, UnexpectedAppendOffset) as refused:
        return refused
    return None


class PeerMessages:
    """Messages from one broker to another, such as streams, replica fetches and commands."""

    name, share = "peers", 0.15
    errors: Errors = (KafkaError, MalformedFrame)
    CLASSES = (Heartbeat, VerifyTransaction, DescribeTransaction, WriteMarkers, UntilApplied)
    READERS = (
        stream_message.decode,
        lambda data: decode_fetch_request(bytes(data)),
        lambda data: decode_fetch_response(bytes(data), [b"12345678", bytes(data[-9:])]),
        lambda data: decode_command(bytes(data)),
        *(lambda data, cls=cls: decode_message(cls, bytes(data)) for cls in CLASSES),
    )
    VALUES = (0, 1, -1, 5, 2**31, 2**63 - 1, 2**64 - 1, b"", b"x" * 16, "", "a", None, True, 0.5)

    def make(self, rng: random.Random) -> Input:
        number = rng.randrange(len(self.READERS))
        values = self._list(rng, 3)
        if number == 1:
            values = [1, 2, 3, 4, 5, *(rng.choices(self.VALUES, k=rng.randrange(9)) for _ in "amr")]
        elif number == 2:
            values = [1, 2, 0, 4, rng.choices((0, 8, *self.VALUES), k=rng.choice((7, 7, 14)))]
        elif number == 3:
            values = [rng.choice(list(KINDS)), b"", msgpack.packb(values)]
        packed = msgpack.packb(values) or b""
        if number == 0:
            parts, _ = stream_message.encode(
                What.REQUEST, 2, 3, packed, [bytes(7)] * rng.randrange(3)
            )
            packed = b"".join(parts)[4:]
        data = mutated(rng, packed) if rng.random() < 0.6 else packed
        return bytes((number,)), data

    def _list(self, rng: random.Random, depth: int) -> list[Any]:
        return [
            self._list(rng, depth - 1) if depth and rng.random() < 0.2 else rng.choice(self.VALUES)
            for _ in range(rng.randrange(12))
        ]

    def feed(self, data: Input) -> None:
        """Decode a message of one kind, and raise the error of its decoder."""
        self.READERS[data[0][0]](memoryview(data[1]))
