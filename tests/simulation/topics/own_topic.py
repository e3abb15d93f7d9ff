"""Topics with retention or compaction, which are also deleted and created again.

The judge checks only topics that keep all records. Here the simulation reads each topic at the end,
and reports acknowledged records that are missing. One writer uses several producers in turn, and
numbers its records.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from oncelog.client.admin import EARLIEST, LATEST, Admin
from oncelog.client.consumer import Consumer, ConsumerRecord
from oncelog.client.producer import Producer
from oncelog.storage.partition_log import PartitionLog
from oncelog.storage.segments.log_file import scan_batches
from oncelog.wire.errors import KafkaError, TopicAlreadyExists, UnknownTopicOrPartition
from oncelog.wire.records import decode_batch

from ..virtual_cluster import VirtualCluster

PARTITIONS = 2
PAUSE_MS, ROUND_MAX, PRODUCERS = 100, 3, 3
AT_ONCE = 0.3  # of the rounds: the next one follows without a pause
RETRY_S, LOOKS_MAX, LOOK_AGAIN_S, WATCH_S = 0.2, 20, 5.0, 0.5
NUMBER = "number"  # the header with the number of a record
ANEW = (0.0, 0.04)  # of the rounds: the topic is deleted and made again; one of these for a seed


class Drawn(NamedTuple):
    """A record to send to a topic."""

    partition: int
    key: bytes | None
    value: bytes | None


class OwnTopic:
    """A topic with a check of its records.

    `life` is raised when the topic is created again, and after each error of the writer.
    """

    name: ClassVar[str]

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"{self.name} of {seed}")
        self.life = 0
        self.gap_s = 0.0  # the time that a replica was behind the committed end, or absent
        self._level_s: dict[tuple[int, int], float] = {}  # (node, partition): last time level
        self._topic_id = b""  # of the topic made last
        self._is_certain = True

    # -- methods that a kind of topic overrides

    @property
    def configs(self) -> Mapping[str, str]:
        raise NotImplementedError

    def draw(self, rng: random.Random, number: int) -> Drawn:
        """Return the record with this number, to be sent next."""
        raise NotImplementedError

    def sent(self, number: int, record: Drawn) -> None:
        """Take note of a record before its send is acknowledged."""

    def acknowledged(self, number: int, record: Drawn, offset: int) -> None:
        raise NotImplementedError

    def forget(self) -> None:
        """Forget all acknowledged records, since the topic is deleted."""
        raise NotImplementedError

    def missing(self, found: Sequence[ConsumerRecord], starts: Mapping[int, int]) -> list[str]:
        """Return a sentence for each acknowledged record that is missing.

        `found` has the records of the topic, and `starts` the log start offset of each partition.
        """
        raise NotImplementedError

    # -- being there

    async def make(self, cluster: VirtualCluster, admin: Admin) -> None:
        """Create the topic, and wait for its id. Raises KafkaError if the creation fails."""
        factor = min(3, len(cluster.ids))
        with contextlib.suppress(TopicAlreadyExists):  # created by a request whose answer was lost
            await admin.create_topic(
                self.name, partitions=PARTITIONS, replication_factor=factor, configs=self.configs
            )
        for _ in range(LOOKS_MAX):
            new = _topic_ids(cluster, self.name) - {self._topic_id}
            self._is_certain = len(new) == 1
            if new:
                self._topic_id = min(new)
                break
            await asyncio.sleep(RETRY_S)

    async def make_anew(self, cluster: VirtualCluster, admin: Admin) -> None:
        """Delete the topic and create it again. Failed attempts are repeated."""
        self.forget()
        self._level_s.clear()
        self.life += 1
        is_gone = False
        while True:
            try:
                if not is_gone:
                    await admin.delete_topics([self.name])
                    is_gone = True
                return await self.make(cluster, admin)
            except UnknownTopicOrPartition:
                is_gone = True
            except KafkaError:
                await asyncio.sleep(RETRY_S)

    async def compare(self, cluster: VirtualCluster) -> list[str]:
        """Read the topic, again if records are missing, and return those missing both times.

        A record that is missing once was compacted meanwhile. If the reads miss no record, the log
        of each replica is compared. The list is empty if a late request has recreated the topic.
        """
        if not self._is_certain or _topic_ids(cluster, self.name) != {self._topic_id}:
            return []
        words = await self._look(cluster.bootstrap)
        if words:
            await asyncio.sleep(LOOK_AGAIN_S)
            again = await self._look(cluster.bootstrap)
            words = [each for each in words if each in again]
        return words or [
            f"{node.node_id}: {each}"
            for node in cluster.nodes.values()
            for hosted in (node.broker.replicas if node.broker is not None else ())
            if hosted.topic == self.name and not hosted.log.is_failed
            for each in self._missing_in(hosted.index, hosted.log)
        ]

    def _missing_in(self, partition: int, log: PartitionLog) -> list[str]:
        """Return a sentence for each acknowledged record that is missing in a replica's log."""
        found = [
            ConsumerRecord(self.name, partition, r.offset, 0, r.key, r.value, tuple(r.headers))
            for segment in log.segments
            for _, header, batch in scan_batches(segment.file, 0, segment.size_bytes, 1 << 16)
            if header.record_count
            for r in decode_batch(batch)
        ]
        return self.missing(found, {partition: log.log_start_offset})

    async def watch(self, cluster: VirtualCluster) -> None:
        """Record regularly how long replicas have lacked records, until the task is cancelled."""
        while True:
            for partition in range(PARTITIONS):
                self._note_level(cluster, partition)
            await asyncio.sleep(WATCH_S)

    def _note_level(self, cluster: VirtualCluster, partition: int) -> None:
        now = cluster.timeline.now
        replicas = {
            node.node_id: node.broker.replicas.get(self.name, partition)
            for node in cluster.nodes.values()
            if node.is_serving and node.broker is not None
        }
        logs = {node_id: hosted.log for node_id, hosted in replicas.items() if hosted is not None}
        committed = max((log.high_watermark for log in logs.values()), default=0)
        for node_id in cluster.ids:
            place, log = (node_id, partition), logs.get(node_id)
            if log is not None and log.log_end_offset >= committed:
                self._level_s[place] = now
            elif log is None and node_id in replicas:
                self._level_s.pop(place, None)  # the replica has moved to another node
            else:
                # A replica that was absent at the first look counts from then on.
                self.gap_s = max(self.gap_s, now - self._level_s.setdefault(place, now))

    async def _look(self, source: str) -> list[str]:
        keys = [(self.name, p) for p in range(PARTITIONS)]
        found: list[ConsumerRecord] = []
        async with Admin(source) as admin, Consumer(source, auto_offset_reset="earliest") as reader:
            ends = await admin.list_offsets(dict.fromkeys(keys, LATEST))
            reader.assign(dict.fromkeys(keys, 0))
            while any(reader.position(*key) < end for key, end in ends.items()):
                found += await reader.poll(200)
            starts = await admin.list_offsets(dict.fromkeys(keys, EARLIEST))  # some may expire
        return self.missing(found, {partition: at for (_, partition), at in starts.items()})


def _topic_ids(cluster: VirtualCluster, name: str) -> set[bytes]:
    """Return the topic's ids in the metadata of all nodes, one id in the normal case."""
    brokers = [node.broker for node in cluster.nodes.values() if node.broker is not None]
    topics = [broker.state.topics.get(name) for broker in brokers]
    return {topic.topic_id for topic in topics if topic is not None}


def number_of(record: ConsumerRecord) -> int:
    """Return the number that the writer has put into a header of the record."""
    return int(dict(record.headers)[NUMBER] or b"")


async def write(
    cluster: VirtualCluster,
    topics: Sequence[OwnTopic],
    stop: Callable[[], bool],
    rng: random.Random,
    pace: float,
) -> None:
    """Send groups of records until `stop()`.

    New producers are used after an error, and after a topic was created again at random.
    """
    number, anew = 0, rng.choice(ANEW)
    async with Admin(cluster.bootstrap) as admin:
        while not stop():
            try:
                async with contextlib.AsyncExitStack() as stack:
                    producers = [
                        await stack.enter_async_context(
                            Producer(cluster.bootstrap, delivery_timeout_ms=4_000)
                        )
                        for _ in range(PRODUCERS)
                    ]
                    # Another topic of the name is for other producers, which begin with 0.
                    while not stop() and rng.random() >= anew:
                        count = rng.randint(1, ROUND_MAX)
                        numbers = range(number, number + count)
                        await _round(rng.choice(producers), topics, rng, numbers)
                        number += count
                        pause_s = PAUSE_MS * pace / 1_000
                        if rng.random() >= AT_ONCE:
                            await asyncio.sleep(min(rng.expovariate(1 / pause_s), 3 * pause_s))
            except KafkaError:
                number += ROUND_MAX
                for topic in topics:
                    topic.life += 1  # pending requests may still arrive
                await asyncio.sleep(RETRY_S)
            else:
                if not stop():
                    await rng.choice(topics).make_anew(cluster, admin)


async def _round(
    producer: Producer, topics: Sequence[OwnTopic], rng: random.Random, numbers: range
) -> None:
    """Send these records by one producer, and wait until all are acknowledged."""
    sent: list[tuple[OwnTopic, int, Drawn, Any]] = []
    for number in numbers:
        for topic in topics:
            record = topic.draw(rng, number)
            topic.sent(number, record)
            headers = ((NUMBER, b"%d" % number),)
            future = await producer.send(
                topic.name,
                record.value,
                key=record.key,
                partition=record.partition,
                headers=headers,
            )
            sent.append((topic, number, record, future))
    for topic, number, record, future in sent:
        topic.acknowledged(number, record, (await future).offset)
