"""Cases of ordinary load, one of synced appends and one of a consumer at the end of the log."""

import os
import threading
import time

from confluent_kafka import Producer

from oncelog.wire.messages import fetch
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.record_batch import iterate_batches
from oncelog.wire.records import Record, encode_batch

from .connection import FETCH, PRODUCE, Connection
from .stage import Stage, produce_body, require_appended

TAIL_P99_MS = 20.0
BURST, PARTITIONS = 3, 6


def flush(stage: Stage) -> None:
    seconds = stage.size(10, 2)
    stage.create("flush", PARTITIONS, flush_messages=1)
    producer = Producer({
        "bootstrap.servers": stage.cluster.bootstrap, "linger.ms": 0, "batch.size": 100_000,
    })  # fmt: skip
    value, count = os.urandom(50_000), 0
    with stage.watched(f"flush.messages=1, 50 kB records for {seconds} s"):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            producer.produce("flush", value, partition=count % PARTITIONS)
            count += 1
            while len(producer) > 50:
                producer.poll(0.05)
        stage.require(producer.flush(60) == 0, "not all records were acknowledged")
    stage.note(f"{count * len(value) / 1e6 / stage.outcome.seconds:.0f} MB/s")


def tail(stage: Stage) -> None:
    bursts = stage.size(200, 30)
    stage.create("tail", 1)
    (leader,) = stage.leaders("tail")
    sent_s: dict[int, float] = {}
    taken_s: dict[int, float] = {}
    reader = threading.Thread(
        target=_read_tail, args=(Connection(stage.address(leader)), taken_s, bursts * BURST)
    )
    producing = Connection(stage.address(leader))
    batch = encode_batch([Record(0, 0, None, b"x" * 20)])
    body = produce_body("tail", 0, batch)
    with stage.watched(f"{bursts} bursts of {BURST} pipelined records to a consumer at the tail"):
        reader.start()
        time.sleep(0.3)
        for burst in range(bursts):
            for i in range(BURST):
                sent_s[burst * BURST + i] = time.perf_counter()
                producing.send(PRODUCE, 9, body)
                time.sleep(0.0004 * (1 + burst % 5))
            for _ in range(BURST):
                require_appended(producing, 0)
            # The intervals vary, so that bursts do not coincide with a periodic job.
            time.sleep(0.6 if burst % 10 == 9 else 0.02 + 0.007 * (burst % 7))
        reader.join(30)
    producing.close()
    late = sorted((taken_s[i] - sent_s[i]) * 1000 for i in sent_s if i in taken_s)
    stage.require(len(late) == bursts * BURST, "not all records were read")
    p50, p90, p99 = (late[int(len(late) * p)] for p in (0.5, 0.9, 0.99))
    stage.note(f"p50 {p50:.1f}, p90 {p90:.1f}, p99 {p99:.1f} ms")
    if not stage.is_short:
        stage.require(p99 <= TAIL_P99_MS, f"p99 {p99:.1f} ms is over {TAIL_P99_MS:.0f} ms")


def _read_tail(connection: Connection, taken_s: dict[int, float], wanted: int) -> None:
    position = 0
    while position < wanted:
        topics = [FetchTopic("tail", None, [FetchPartition(0, position, 1 << 20)])]
        request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics)
        connection.send(FETCH, 12, b"".join(fetch.encode_request(request, 12)))
        answer = fetch.decode_response(connection.receive(FETCH, 12), 12)
        now_s = time.perf_counter()
        for partition in answer.topics[0].partitions:
            for _, header in iterate_batches(partition.records or b""):
                for offset in range(header.base_offset, header.next_offset):
                    taken_s[offset] = now_s
                position = header.next_offset
    connection.close()
