"""A compacted topic: of each key the value that was acknowledged last, or a later one, stays.

The judge's checks are about logs that keep everything. Here a writer counts up, key by key, while
the topic is compacted behind it, and at the end the topic is read.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from oncelog.client.admin import LATEST, Admin
from oncelog.client.consumer import Consumer
from oncelog.client.producer import Producer
from oncelog.wire.errors import KafkaError

TOPIC, PARTITIONS, KEYS = "latest", 2, 6
PAUSE_MS, ROUND_MAX = 100, 3
CONFIGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "400",
    "min.cleanable.dirty.ratio": "0.1",
    "index.interval.bytes": "100",
}


async def make_topic(admin: Admin, replication_factor: int) -> None:
    await admin.create_topic(
        TOPIC, partitions=PARTITIONS, replication_factor=replication_factor, configs=CONFIGS
    )


@dataclass(slots=True)
class LatestValues:
    """What was acknowledged: of each key in each partition the highest number."""

    acknowledged: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])

    async def compare(self, bootstrap: str) -> list[str]:
        """Read the topic, and say which keys have a lower number than was acknowledged."""
        found: dict[tuple[int, int], int] = {}
        async with Admin(bootstrap) as admin, Consumer(bootstrap) as consumer:
            wanted = dict.fromkeys([(TOPIC, p) for p in range(PARTITIONS)], LATEST)
            ends = await admin.list_offsets(wanted)
            consumer.assign(dict.fromkeys(wanted, 0))
            while any(consumer.position(*key) < end for key, end in ends.items()):
                for record in await consumer.poll(200):
                    key = (record.partition, int(record.key or b"0"))
                    found[key] = max(found.get(key, -1), int(record.value or b"-1"))
        return [
            f"partition {place[0]}, key {place[1]}: {number} was acknowledged, and "
            f"{found.get(place)} is the latest there is"
            for place, number in sorted(self.acknowledged.items())
            if found.get(place, -1) < number
        ]


async def write_latest(
    bootstrap: str,
    values: LatestValues,
    stop: Callable[[], bool],
    rng: random.Random,
    pace: float,
) -> None:
    """Write until `stop()`, some numbers at a time; after an error with a new producer."""
    number = 0
    while not stop():
        try:
            async with Producer(bootstrap, delivery_timeout_ms=4_000) as producer:
                while not stop():
                    sent = []
                    for _ in range(rng.randint(1, ROUND_MAX)):
                        number += 1
                        place = rng.randrange(PARTITIONS), rng.randrange(KEYS)
                        key, value = str(place[1]).encode(), b"%d" % number
                        future = await producer.send(TOPIC, value, key=key, partition=place[0])
                        sent.append((place, number, future))
                    for place, value, future in sent:
                        await future
                        values.acknowledged[place] = value
                    pause_s = PAUSE_MS * pace / 1_000
                    await asyncio.sleep(min(rng.expovariate(1 / pause_s), 3 * pause_s))
        except KafkaError:
            await asyncio.sleep(0.2)
