"""Test that all replicas store the corrected maximum timestamp of a batch."""

import asyncio
import dataclasses
import struct
from pathlib import Path

from oncelog.node.clock import SystemClock
from oncelog.storage.partition_log import PartitionLog
from oncelog.wire.record_batch import MAX_TIMESTAMP_AT, check_crc, decode_header, rewrite_crc
from oncelog.wire.records import Record, encode_batch

from ....awaiting import until
from ....interop.raw_peer import RawPeer
from ....log_batches import batches_in
from ...three_brokers import three_brokers

HOUR_MS = 3_600_000


async def test_replicas_store_the_corrected_maximum_timestamp_of_a_batch(tmp_path: Path) -> None:
    """With a wrong maximum timestamp, retention would delete new records."""
    now_ms = SystemClock.wall_ms()
    async with three_brokers(tmp_path) as cluster:
        leader = await cluster.create_topic()
        peer = RawPeer("the leader", ("127.0.0.1", leader.server.port))
        for time_ms, compression in ((now_ms - 2 * HOUR_MS, 0), (now_ms, 0), (now_ms, 4)):
            records = [Record(i, time_ms - i, b"k", b"v") for i in range(3)]
            batch = bytearray(encode_batch(records, compression=compression))
            struct.pack_into(">q", batch, MAX_TIMESTAMP_AT, -1)
            rewrite_crc(batch)
            answer = await asyncio.to_thread(peer.produce, 9, "t", bytes(batch))
            assert answer["topics"][0]["partitions"][0]["error_code"] == 0, answer
        peer.close()
        logs: list[PartitionLog] = []
        for broker in cluster.brokers:
            hosted = broker.replicas.get("t", 0)
            assert hosted is not None
            logs.append(hosted.log)
        await until(lambda: all(log.high_watermark == 9 for log in logs))
        first, *others = [batches_in(log) for log in logs]
        assert all(other == first for other in others)
        headers = [decode_header(batch) for batch in first]
        for batch, header in zip(first, headers, strict=True):
            check_crc(batch, 0, header)
        assert [header.max_timestamp for header in headers] == [
            now_ms - 2 * HOUR_MS,
            now_ms,
            now_ms,
        ]
        for log in logs:
            log.config = dataclasses.replace(log.config, retention_ms=HOUR_MS)
            assert log.retention.delete_old_segments(now_ms) == 0
            assert log.log_start_offset == 0
