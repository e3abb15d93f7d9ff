"""Requests about records, such as Produce, Fetch, ListOffsets and DeleteRecords.

A scenario is a function of a peer and a version. It yields (case, comparable answer).
"""

import struct
import time
from collections.abc import Iterator
from typing import Any

from crc32c import crc32c

from oncelog.wire.messages.fetch import FetchPartition, ForgottenTopic
from oncelog.wire.messages.fetch_answer import TOPIC_IDS_FROM
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from oncelog.wire.records import Record, encode_batch

from ..raw_peer import LIST_OFFSETS, PRODUCE, RawPeer

Scenario = Iterator[tuple[str, Any]]
DELETE_RECORDS, OFFSET_FOR_LEADER_EPOCH = 21, 23
T0 = int(time.time() * 1000) - 60_000  # young enough for every retention


def batch(count: int = 1, *, size: int = 10, key: bytes | None = b"k", **fields: Any) -> bytes:
    records = [Record(i, T0 + i, key, b"v" * size) for i in range(count)]
    return encode_batch(records, **fields)


def edited(data: bytes, position: int, form: str, *values: int, sums: bool = True) -> bytes:
    """Return the batch `data` with `values` packed in the struct format `form` at `position`.

    The checksum is recomputed if `sums` is True.
    """
    changed = bytearray(data)
    struct.pack_into(form, changed, position, *values)
    if sums:
        struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def from_producer(peer_id: int, sequence: int, count: int = 1, epoch: int = 0) -> bytes:
    return batch(count, producer_id=peer_id, producer_epoch=epoch, base_sequence=sequence)


def _bad_batches() -> dict[str, Any]:
    good = batch(2)
    marker = encode_batch(
        [Record(0, T0, b"\0\0\0\1", b"\0\0\0\0\0\0")],
        control=True, transactional=True, producer_id=9000, producer_epoch=0,
    )  # fmt: skip
    return {
        "bad CRC": good[:-1] + b"\0" if good[-1] else good[:-1] + b"\1",
        "empty records": b"",
        "two batches": good + good,
        "half a header": good[:30],
        "cut short": good[:-5],
        "trailing bytes": good + b"abc",
        "length too small": edited(good, 8, ">i", 10),
        "length negative": edited(good, 8, ">i", -1),
        "length too large": edited(good, 8, ">i", len(good)),
        "magic 0": edited(good, 16, ">b", 0),
        "magic 1": edited(good, 16, ">b", 1),
        "magic 3": edited(good, 16, ">b", 3),
        "magic -1": edited(good, 16, ">b", -1),
        "control batch": marker,
        "count 0": edited(good, 57, ">i", 0),
        "count 1 of 2": edited(good, 57, ">i", 1),
        "count 3 of 2": edited(good, 57, ">i", 3),
        "count negative": edited(good, 57, ">i", -1),
        "last offset delta 0 of 2": edited(good, 23, ">i", 0),
        "last offset delta 7 of 2": edited(good, 23, ">i", 7),
        "last offset delta negative": edited(good, 23, ">i", -1),
        "compression 5": edited(good, 21, ">h", 5),
        "compression 7": edited(good, 21, ">h", 7),
        "base offset 77": edited(good, 0, ">q", 77),
        "leader epoch 9": edited(good, 12, ">i", 9),
        "append time bit": edited(good, 21, ">h", 8),
        "delete horizon bit": edited(good, 21, ">h", 64),
        "unknown attribute bits": edited(good, 21, ">h", 0x300),
        "producer id without sequence": edited(good, 43, ">q", 5),
        "producer id with epoch, no sequence": edited(good, 43, ">qh", 5, 0),
        "transactional without producer": batch(transactional=True),
    }


def produce(peer: RawPeer, version: int) -> Scenario:
    topic = f"produce-{version}"
    peer.create_topic(topic)
    yield "one record", peer.produce(version, topic, batch())
    yield "acks 1", peer.produce(version, topic, batch(3), acks=1)
    for acks in (2, -2):
        yield f"acks {acks}", peer.produce(version, topic, batch(), acks=acks)
    yield "unknown partition", peer.produce(version, topic, batch(), index=7)
    yield "negative partition", peer.produce(version, topic, batch(), index=-1)
    yield "unknown topic", peer.produce(version, "no-such-topic", batch())
    yield "invalid topic name", peer.produce(version, "no/such", batch())
    yield "no topics", peer.ask(PRODUCE, version, ProduceRequest(None, -1, 1000, []))
    empty = ProduceTopic(topic, peer.topic_ids[topic], [])
    yield "no partitions", peer.ask(PRODUCE, version, ProduceRequest(None, -1, 1000, [empty]))
    twice = ProduceTopic(
        topic,
        peer.topic_ids[topic],
        [ProducePartition(0, batch()), ProducePartition(5, batch())],
    )
    yield "one good, one bad", peer.ask(PRODUCE, version, ProduceRequest(None, -1, 1000, [twice]))
    both = [ProducePartition(0, batch()), ProducePartition(0, batch(2))]
    again = ProduceTopic(topic, peer.topic_ids[topic], both)
    yield "a partition twice", peer.ask(PRODUCE, version, ProduceRequest(None, -1, 1000, [again]))


def produce_batches(peer: RawPeer, version: int) -> Scenario:
    """Produce each good or bad batch to its own partition, so that the outcomes are independent."""
    topic = f"batches-{version}"
    batches = _bad_batches()
    batches |= {f"codec {codec}": batch(5, compression=codec) for codec in range(5)}
    batches |= {
        "garbage, marked as lz4": edited(batch(3), 21, ">h", 3),
        "too large": batch(1, size=1_100_000),
        "negative timestamp": encode_batch([Record(0, -1, b"k", b"v")]),
        "a time to come": encode_batch([Record(0, T0 + 7_200_000_000, b"k", b"v")]),
    }
    peer.create_topic(topic, partitions=len(batches))
    for index, (name, records) in enumerate(batches.items()):
        yield name, peer.produce(version, topic, records, index=index)


def produce_in_sequence(peer: RawPeer, version: int) -> Scenario:
    topic = f"sequences-{version}"
    peer.create_topic(topic, partitions=2)
    pid = peer.new_producer_id()
    for name, sequence, epoch in (
        ("first", 0, 0),
        ("second", 1, 0),
        ("duplicate of the second", 1, 0),
        ("duplicate of the first", 0, 0),
        ("gap", 5, 0),
        ("third", 2, 0),
        ("newer epoch, not at 0", 3, 1),
        ("newer epoch at 0", 0, 1),
        ("older epoch", 3, 0),
        ("older epoch, duplicate", 2, 0),
        *((f"number {i}", i, 1) for i in range(1, 7)),
        ("older than the window", 0, 1),
        ("last of the window", 6, 1),
    ):
        answer = peer.produce(version, topic, from_producer(pid, sequence, epoch=epoch))
        yield name, answer
    yield "overlapping", peer.produce(version, topic, from_producer(pid, 6, 2, epoch=1))
    yield (
        "unknown producer, not at 0",
        peer.produce(version, topic, from_producer(pid + 1_000_000, 40), index=1),
    )
    top = 2**31 - 1
    wrapped = pid + 2_000_000
    yield "at the top", peer.produce(version, topic, from_producer(wrapped, top - 1), index=1)
    yield "over the top", peer.produce(version, topic, from_producer(wrapped, top, 3), index=1)
    yield "after the top", peer.produce(version, topic, from_producer(wrapped, 2), index=1)
    two = from_producer(pid, 7, epoch=1) + from_producer(pid, 8, epoch=1)
    yield "two batches of one producer", peer.produce(version, topic, two)


def produce_to_configured(peer: RawPeer, version: int) -> Scenario:
    compact, stamped, small = f"compact-{version}", f"stamped-{version}", f"small-{version}"
    timely = f"timely-{version}"
    peer.create_topic(timely, message_timestamp_after_max_ms="1000")
    late = [Record(i, T0 + (7_200_000 if i % 3 == 1 else 0), b"k", b"v") for i in range(7)]
    yield "some too early", peer.produce(version, timely, encode_batch(late))
    peer.create_topic(compact, cleanup_policy="compact")
    peer.create_topic(stamped, message_timestamp_type="LogAppendTime")
    peer.create_topic(small, max_message_bytes="500")
    yield "compacted, no key", peer.produce(version, compact, batch(3, key=None))
    mixed = [Record(i, T0, None if i % 10 == 3 else b"k", b"v") for i in range(100)]
    yield "compacted, some without key", peer.produce(version, compact, encode_batch(mixed))
    yield "compacted, key", peer.produce(version, compact, batch(3))
    yield "append time", peer.produce(version, stamped, batch(3))
    yield "append time, compressed", peer.produce(version, stamped, batch(9, compression=4))
    pid = peer.new_producer_id()
    yield "append time, idempotent", peer.produce(version, stamped, from_producer(pid, 0))
    yield "append time, duplicate", peer.produce(version, stamped, from_producer(pid, 0))
    yield "message too large", peer.produce(version, small, batch(1, size=600))
    yield "message just fits", peer.produce(version, small, batch(1, size=500 - len(batch(size=0))))
    yield "compressed fits", peer.produce(version, small, batch(1, size=600, compression=1))


def produce_in_no_transaction(peer: RawPeer, version: int) -> Scenario:
    topic = f"transactional-{version}"
    peer.create_topic(topic)
    pid = peer.new_producer_id()
    records = batch(transactional=True, producer_id=pid, producer_epoch=0, base_sequence=0)
    yield "transactional batch, no id", peer.produce(version, topic, records)
    yield "id, plain batch", peer.produce(version, topic, batch(), transactional_id="nobody")


def _filled(peer: RawPeer, topic: str, **configs: str) -> None:
    peer.create_topic(topic, partitions=2, **configs)
    for first in (0, 10, 20):
        records = [Record(i, T0 + (first + i) * 10, b"k", b"v" * 100) for i in range(10)]
        peer.produce(9, topic, encode_batch(records))


def fetch(peer: RawPeer, version: int) -> Scenario:
    topic = f"fetch-{version}"
    _filled(peer, topic)
    everything = FetchPartition(0, 0, 1 << 20)
    yield "from 0", peer.fetch(version, topic, everything)
    yield "committed only", peer.fetch(version, topic, everything, isolation_level=1)
    yield "isolation 2", peer.fetch(version, topic, everything, isolation_level=2)
    for offset in (5, 10, 29, 30, 31, -1, -5, 2**62):
        part = FetchPartition(0, offset, 1 << 20)
        yield f"from {offset}", peer.fetch(version, topic, part)
    for limit in (0, 1, 500, -1):
        yield f"partition limit {limit}", peer.fetch(version, topic, FetchPartition(0, 0, limit))
        yield f"limit {limit}", peer.fetch(version, topic, everything, max_bytes=limit)
    yield "empty partition", peer.fetch(version, topic, FetchPartition(1, 0, 1 << 20))
    both = (FetchPartition(1, 0, 1 << 20), everything)
    yield "two partitions", peer.fetch(version, topic, *both)
    yield "two, tiny limit", peer.fetch(version, topic, *both[::-1], max_bytes=1)
    yield "unknown partition", peer.fetch(version, topic, FetchPartition(9, 0, 100))
    yield "negative partition", peer.fetch(version, topic, FetchPartition(-1, 0, 100))
    yield "unknown topic", peer.fetch(version, "no-such-topic", everything)
    yield "no partitions", peer.fetch(version, topic)
    yield "no topics", peer.fetch(version, topic, topics=[])
    for epoch in (0, 1, 7, -2):
        part = FetchPartition(0, 0, 100, current_leader_epoch=epoch)
        yield f"leader epoch {epoch}", peer.fetch(version, topic, part)
        part = FetchPartition(0, 5, 100, last_fetched_epoch=epoch)
        yield f"last fetched epoch {epoch}", peer.fetch(version, topic, part)
    beyond = FetchPartition(0, 35, 100, last_fetched_epoch=0)
    yield "beyond the end of the last epoch", peer.fetch(version, topic, beyond)
    yield "min bytes met", peer.fetch(version, topic, everything, min_bytes=10, max_wait_ms=5000)
    yield (
        "min bytes not met",
        peer.fetch(version, topic, everything, min_bytes=1 << 20, max_wait_ms=30),
    )
    yield "negative wait", peer.fetch(version, topic, everything, max_wait_ms=-5, min_bytes=1 << 20)
    yield "unknown rack", peer.fetch(version, topic, everything, rack_id="nowhere")


def fetch_sessions(peer: RawPeer, version: int) -> Scenario:
    topic = f"fetch-sessions-{version}"
    _filled(peer, topic)
    part = FetchPartition(0, 0, 1 << 20)
    if version < 7:
        return

    def named(answer: Any) -> Any:
        """Return an answer with a fixed text in place of its random session id."""
        known = {0: "NO SESSION", session: "THE SESSION"}
        return answer | {"session_id": known.get(answer["session_id"], "ANOTHER SESSION")}

    def fetch(epoch: int, *partitions: FetchPartition, **fields: Any) -> Any:
        fields = {"session_id": session, "session_epoch": epoch} | fields
        if not partitions:
            fields["topics"] = []
        return named(peer.fetch(fields.pop("version", version), topic, *partitions, **fields))

    session = 0
    yield "no session", peer.fetch(version, topic, part, session_id=0, session_epoch=-1)
    answer = peer.fetch(version, topic, part, session_id=0, session_epoch=0)
    session = answer["session_id"]
    yield "a new session", named(answer)
    yield "session, nothing is new but what was not taken", fetch(1)
    yield "session, an epoch again", fetch(1)
    yield "session, an epoch ahead", fetch(7, part)
    yield "session, a negative epoch", fetch(-2, part)
    end = FetchPartition(0, 40, 1 << 20)
    yield "session, beyond the end", fetch(2, end)
    yield "session, beyond the end again", fetch(3)
    end = FetchPartition(0, answer["topics"][0]["partitions"][0]["high_watermark"], 1 << 20)
    yield "session, at the end after an error", fetch(4, end)
    yield "session, at the end", fetch(5)
    yield "session, a wait", fetch(6, max_wait_ms=30)
    yield "session, a partition that is not there", fetch(7, FetchPartition(9, 0, 1 << 20))
    yield "session, that again", fetch(8)
    gone = [_forgotten(peer, version, topic, 9)]
    yield "session, one is forgotten", fetch(9, forgotten_topics=gone)
    if version >= 13:
        yield "session, by name", fetch(10, part, version=12)
    elif version == 12:
        yield "session, by id", fetch(10, part, version=13)
    everything = [_forgotten(peer, version, topic, 0)]
    yield "session, all are forgotten", fetch(10, forgotten_topics=everything)
    yield "session, gone with its last partition", fetch(11, part)
    answer = peer.fetch(version, topic, part, session_id=0, session_epoch=0)
    session = answer["session_id"]
    yield "session, closed by a full fetch", fetch(-1, part)
    yield "session, after its end", fetch(1, part)
    answer = peer.fetch(version, topic, part, session_id=0, session_epoch=0)
    session = answer["session_id"]
    yield "session, another in its place", fetch(0, part)
    yield "session, replaced", fetch(1, part)
    session = 0
    yield "session, of no partition", fetch(0)
    yield "a later epoch of no session", fetch(5, part)
    yield "unknown session", fetch(1, part, session_id=77)
    yield "end of an unknown session", fetch(-1, part, session_id=77)


def _forgotten(peer: RawPeer, version: int, topic: str, *indexes: int) -> ForgottenTopic:
    by_id = version >= TOPIC_IDS_FROM
    topic_id = peer.topic_ids[topic] if by_id else None
    return ForgottenTopic(None if by_id else topic, topic_id, list(indexes))


def fetch_as_replica(peer: RawPeer, version: int) -> Scenario:
    topic = f"fetch-replica-{version}"
    _filled(peer, topic)
    part = FetchPartition(0, 0, 1 << 20)
    for replica in (-2, 5):
        yield f"replica {replica}", peer.fetch(version, topic, part, replica_id=replica)


def _offsets_of(topic: str, *partitions: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"replica_id": -1, "topics": [{"name": topic, "partitions": list(partitions)}]} | fields


def list_offsets(peer: RawPeer, version: int) -> Scenario:
    topic, empty = f"offsets-{version}", f"offsets-empty-{version}"
    _filled(peer, topic)
    peer.create_topic(empty)
    last = T0 + 290
    times = (-1, -2, -3, -4, -5, -6, -7, -100, 0, T0, T0 + 1, T0 + 105, last, last + 1, 2**62)
    for isolation in (0, 1):
        for time_ms in times:
            part = {"partition_index": 0, "timestamp": time_ms, "current_leader_epoch": -1}
            for name in (topic, empty):
                values = _offsets_of(name, part, isolation_level=isolation)
                kind = "empty" if name == empty else "filled"
                label = time_ms - T0 if 0 < time_ms - T0 < 10_000 else time_ms
                case = f"{kind}, time {label if time_ms != T0 else 'T0'}, isolation {isolation}"
                yield case, peer.ask(LIST_OFFSETS, version, values)
    for epoch in (0, 3, -2):
        part = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": epoch}
        yield f"leader epoch {epoch}", peer.ask(LIST_OFFSETS, version, _offsets_of(topic, part))
    part = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    for replica in (-2, 4):
        values = _offsets_of(topic, part, replica_id=replica)
        yield f"replica {replica}", peer.ask(LIST_OFFSETS, version, values)
    yield (
        "isolation 7",
        peer.ask(LIST_OFFSETS, version, _offsets_of(topic, part, isolation_level=7)),
    )
    yield "twice", peer.ask(LIST_OFFSETS, version, _offsets_of(topic, part, part))
    yield "unknown topic", peer.ask(LIST_OFFSETS, version, _offsets_of("no-such-topic", part))
    yield "invalid topic", peer.ask(LIST_OFFSETS, version, _offsets_of("no/such", part))
    part = {"partition_index": 9, "timestamp": -1, "current_leader_epoch": -1}
    yield "unknown partition", peer.ask(LIST_OFFSETS, version, _offsets_of(topic, part))
    yield "no partitions", peer.ask(LIST_OFFSETS, version, _offsets_of(topic))
    yield "no topics", peer.ask(LIST_OFFSETS, version, {"replica_id": -1, "topics": []})


def offset_for_leader_epoch(peer: RawPeer, version: int) -> Scenario:
    topic = f"epochs-{version}"
    _filled(peer, topic)

    def asked(name: str, index: int, epoch: int, current: int = -1, replica: int = -1) -> Any:
        part = {"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}
        return peer.ask(
            OFFSET_FOR_LEADER_EPOCH,
            version,
            {"replica_id": replica, "topics": [{"topic": name, "partitions": [part]}]},
        )

    for epoch in (-1, 0, 1, 9, -3):
        yield f"epoch {epoch}", asked(topic, 0, epoch)
        yield f"epoch {epoch} of an empty one", asked(topic, 1, epoch)
    for current in (0, 1, -2):
        yield f"current epoch {current}", asked(topic, 0, 0, current)
    yield "unknown partition", asked(topic, 8, 0)
    yield "unknown topic", asked("no-such-topic", 0, 0)
    yield "debugging replica", asked(topic, 0, 0, replica=-2)
    nothing = {"replica_id": -1, "topics": []}
    yield "nothing", peer.ask(OFFSET_FOR_LEADER_EPOCH, version, nothing)


def delete_records(peer: RawPeer, version: int) -> Scenario:
    topic, compact = f"delete-{version}", f"delete-compact-{version}"
    _filled(peer, topic)
    _filled(peer, compact, cleanup_policy="compact")
    both = f"delete-both-{version}"
    _filled(peer, both, cleanup_policy="compact,delete")

    def delete(name: str, offset: int, index: int = 0, timeout: int = 5000) -> Any:
        part = {"partition_index": index, "offset": offset}
        values = {"topics": [{"name": name, "partitions": [part]}], "timeout": timeout}
        return peer.ask(DELETE_RECORDS, version, values)

    for offset in (0, 5, 3, 15, 31, -2, -1, 30, 29):
        yield f"to {offset}", delete(topic, offset)
    yield "timeout 0", delete(topic, 30, timeout=0)
    yield "fetch below the start", peer.fetch(12, topic, FetchPartition(0, 5, 1 << 20))
    yield (
        "earliest afterwards",
        peer.ask(
            LIST_OFFSETS,
            9,
            _offsets_of(topic, {"partition_index": 0, "timestamp": -2, "current_leader_epoch": -1}),
        ),
    )
    yield "produce afterwards", peer.produce(9, topic, batch())
    yield "compacted", delete(compact, 5)
    yield "compacted and deleted", delete(both, 5)
    yield "unknown partition", delete(topic, 0, index=9)
    yield "unknown topic", delete("no-such-topic", 0)
    yield "nothing", peer.ask(DELETE_RECORDS, version, {"topics": [], "timeout": 1000})
