"""A case in which a node with much data is killed and restarted."""

import os
import time

from oncelog.wire.records import Record, encode_batch

from .stage import Stage

BATCH_RECORDS, RECORD_BYTES = 16, 1_000


def restart(stage: Stage) -> None:
    partitions = stage.size(600, 60)
    total_bytes = stage.size(2_000_000_000, 60_000_000)
    fill(stage, "big", partitions, total_bytes)
    victim = next(i for i in stage.cluster.node_ids if i != stage.cluster.controller())
    with stage.watched(
        f"kill -9 and restart of a node with {total_bytes / 1e9:g} GB in {partitions} partitions"
    ) as watch:
        watch.kill(victim)
        time.sleep(stage.size(10, 3) / 10)
        began = time.monotonic()
        watch.start(victim)
        serving_s = time.monotonic() - began
        stage.wait_in_sync("big", partitions)
        in_sync_s = time.monotonic() - began
    stage.note(f"serving after {serving_s:.1f} s, in sync after {in_sync_s:.1f} s")


def fill(stage: Stage, topic: str, partitions: int, total_bytes: int, rf: int = 3) -> None:
    """Write this many bytes in small batches, evenly over the partitions of a new topic."""
    stage.create(topic, partitions, rf)
    value = os.urandom(RECORD_BYTES)
    batch = encode_batch([Record(i, 0, None, value) for i in range(BATCH_RECORDS)])
    times = max(1, total_bytes // (len(batch) * partitions))
    stage.produce_everywhere(topic, batch, times=times, pipelined=32)
