"""Test that each poll of `consume` reads the consumer's assignment only once."""

import asyncio
from typing import Any, cast

from oncelog.cli.records.reading import ReadOrder, _Reader
from oncelog.client.cluster_view import ClusterView
from oncelog.client.consumer import ConsumerRecord

PARTITIONS = 1_000


class CountingConsumer:
    """A consumer that counts reads of its assignment. Only partition 0 has records left to read."""

    def __init__(self) -> None:
        self.looks = 0
        self.paused = set[tuple[str, int]]()

    @property
    def assignment(self) -> list[tuple[str, int]]:
        self.looks += 1
        return [("t", p) for p in range(PARTITIONS)]

    async def poll(self, timeout_ms: int, limit: int | None) -> list[ConsumerRecord]:
        return [ConsumerRecord("t", 0, 0, 0, None, b"v", ())]

    def position(self, topic: str, partition: int) -> int:
        return 1 if partition == 0 else 7

    def pause(self, key: tuple[str, int]) -> None:
        self.paused.add(key)


def test_consume_poll_with_1000_partitions_reads_the_assignment_once() -> None:
    """A consumer sorts its assignment whenever it is read.

    When `consume` read it once for each partition, a poll took 5 s at 10,000 partitions.
    """
    out: list[ConsumerRecord] = []
    reader = _Reader(ClusterView("127.0.0.1:1"), ReadOrder(topic="t"), out.extend)
    for partition in range(PARTITIONS):
        reader._stops.add(("t", partition), 7, 0)
    consumer = CountingConsumer()
    asyncio.run(reader._turn(cast(Any, consumer)))
    assert len(out) == 1 and len(consumer.paused) == PARTITIONS - 1
    assert consumer.looks == 1 and reader._stops.unfinished == {("t", 0)}
