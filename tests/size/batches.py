"""Load cases with batches of very many records.

One case searches such batches by timestamp. The other case writes such a batch to a compacted
topic, for which the broker checks that each record has a key.
"""

import time

from confluent_kafka import Consumer, TopicPartition

from oncelog.wire.compression import ZSTD
from oncelog.wire.records import Record, encode_batch

from .stage import Stage

TOPIC_BATCH_BYTES_MAX = 1024 * 1024


def search(stage: Stage) -> None:
    partitions, records = 12, stage.size(600_000, 200_000)
    stage.create("times", partitions)
    now_ms = int(time.time() * 1000)
    lines = [Record(i, now_ms, None, b"GET /index.html 200 %d" % (i % 10)) for i in range(records)]
    lines.append(Record(records, now_ms + 50, None, b"last"))
    batch = encode_batch(lines, compression=ZSTD)
    stage.produce_everywhere("times", batch)
    consumer = Consumer({"bootstrap.servers": stage.cluster.bootstrap, "group.id": "search"})
    asked = [TopicPartition("times", p, now_ms + 50) for p in range(partitions)]
    consumer.list_topics("times")
    with stage.watched(
        f"offsetsForTimes over {partitions} partitions, a batch of {records:,} records each"
    ):
        found = consumer.offsets_for_times(asked, timeout=60)
        stage.require({p.offset for p in found} == {records}, "the search found other records")
    consumer.close()


def compacted(stage: Stage) -> None:
    records = 500_000
    stage.create("compacted", 1, cleanup_policy="compact")
    batch = encode_batch([Record(i, 0, b"k", b"v") for i in range(records)], compression=ZSTD)
    with stage.watched(f"{records:,} records in a batch of {len(batch):,} bytes, to be compacted"):
        stage.require(len(batch) < TOPIC_BATCH_BYTES_MAX, "the batch is too large")
        stage.produce_everywhere("compacted", batch)
