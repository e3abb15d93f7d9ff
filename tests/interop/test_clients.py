"""Test unchanged client libraries that write, read and administer three nodes.

The consumers here assign partitions manually. Groups are in test_groups.py, kafkajs in
test_kafkajs.py.
"""

# pyright: reportPrivateImportUsage=false, reportAttributeAccessIssue=false
# The libraries hand names on from modules of their own, some at run time only.

import asyncio
import shutil
import time
from contextlib import closing

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster

from ..programs import printed_by
from ..waiting import until
from .readers import WITH_LIBRARIES, messages

pytestmark = WITH_LIBRARIES
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
T0 = int(time.time() * 1000) - 3_600_000
ROWS = [
    (None, b"no key", []),
    (b"key", b"value", [("one", b"1"), ("two", b""), ("one", b"again")]),
    (b"tombstone", None, []),
    (b"", b"", []),
    ("ключ".encode(), "ценность 🎈".encode(), [("ü", "ö".encode())]),
    *((b"k%d" % i, b"v%d" % i * 50, []) for i in range(200)),
]


def _confluent_rows(bootstrap: str, topic: str) -> list[tuple[object, object, object]]:
    """Return key, value and headers of the records in partition 0, as librdkafka reads them."""
    found = messages(bootstrap, topic, 1)
    return [(each.key(), each.value(), each.headers() or []) for each in found]


class TestConfluentKafka:
    def admin(self, cluster: Cluster):
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    @pytest.mark.parametrize("codec", CODECS)
    def test_confluent_kafka_reads_its_written_rows(self, cluster, codec):
        from confluent_kafka import Producer

        topic = f"confluent-{codec}"
        failed = []
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
            }
        )
        for key, value, headers in ROWS:
            producer.produce(
                topic, value, key, 0, headers=headers,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )  # fmt: skip
        assert producer.flush(30) == 0
        assert not failed
        assert _confluent_rows(cluster.bootstrap, topic) == ROWS

    def test_confluent_kafka_looks_up_offsets_and_deletes_records(self, cluster):
        from confluent_kafka import Consumer, Producer, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        topic = "confluent-offsets"
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for i in range(10):
            producer.produce(topic, b"v", partition=0, timestamp=T0 + i * 1000)
            producer.flush(10)
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
            }
        )
        try:
            assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 10)
            asked = [TopicPartition(topic, 0, T0 + 3500)]
            assert consumer.offsets_for_times(asked, timeout=10)[0].offset == 4
        finally:
            consumer.close()
        admin = self.admin(cluster)
        for spec, offset in (
            (OffsetSpec.earliest(), 0),
            (OffsetSpec.latest(), 10),
            (OffsetSpec.max_timestamp(), 9),
            (OffsetSpec.for_timestamp(T0 + 1), 1),
        ):
            assert spec is not None
            (found,) = admin.list_offsets({TopicPartition(topic, 0): spec}).values()
            assert found.result(10).offset == offset
        (deleted,) = admin.delete_records([TopicPartition(topic, 0, 6)]).values()
        assert deleted.result(10).low_watermark == 6

    def test_confluent_kafka_administers_topics_configs_and_partitions(self, cluster):
        from confluent_kafka import ElectionType, TopicCollection
        from confluent_kafka.admin import (
            AlterConfigOpType,
            ConfigEntry,
            ConfigResource,
            NewPartitions,
            NewTopic,
            ResourceType,
        )

        admin, topic = self.admin(cluster), "confluent-admin"
        new = NewTopic(topic, 2, 3, config={"retention.ms": "1000000"})
        admin.create_topics([new])[topic].result(10)
        admin.create_partitions([NewPartitions(topic, 4)])[topic].result(10)
        (described,) = admin.describe_topics(TopicCollection([topic])).values()
        assert [len(p.replicas) for p in described.result(10).partitions] == [3] * 4
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (configs,) = admin.describe_configs([resource]).values()
        assert configs.result(10)["retention.ms"].value == "1000000"
        change = ConfigEntry(
            "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND
        )
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
        (changed,) = admin.incremental_alter_configs([resource]).values()
        changed.result(10)
        (configs,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        assert configs.result(10)["cleanup.policy"].value == "delete,compact"
        seen = admin.describe_cluster().result(10)
        assert len(seen.nodes) == 3 and seen.cluster_id == cluster.file.cluster_id
        admin.elect_leaders(ElectionType.PREFERRED).result(10)
        admin.delete_topics([topic])[topic].result(10)
        until(lambda: topic not in admin.list_topics(timeout=10).topics)


class TestKafkaPython:
    @pytest.mark.parametrize("codec", ("none", "gzip", "lz4", "zstd"))  # snappy: no library here
    def test_kafka_python_reads_its_written_rows(self, cluster, codec):
        from kafka import KafkaConsumer, KafkaProducer, TopicPartition

        topic = f"kafka-python-{codec}"
        producer = KafkaProducer(
            bootstrap_servers=cluster.bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=True,
        )
        with closing(producer):
            sent = [producer.send(topic, v, k, headers=h, partition=0) for k, v, h in ROWS]
            producer.flush(30)
            assert [future.get(10).offset for future in sent] == list(range(len(ROWS)))
        assert _confluent_rows(cluster.bootstrap, topic) == ROWS
        consumer = KafkaConsumer(
            bootstrap_servers=cluster.bootstrap, consumer_timeout_ms=10_000, group_id=None
        )
        with closing(consumer):
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek_to_beginning()
            rows = []
            while len(rows) < len(ROWS):
                message = next(consumer)
                rows.append((message.key, message.value, list(message.headers)))
        assert rows == ROWS

    def test_kafka_python_looks_up_offsets_and_administers_topics(self, cluster):
        from kafka import KafkaConsumer, KafkaProducer, TopicPartition
        from kafka.admin import KafkaAdminClient, NewTopic

        topic = "kafka-python-admin"
        servers = {"bootstrap_servers": cluster.bootstrap}
        partition = TopicPartition(topic, 0)
        with closing(KafkaAdminClient(**servers)) as admin:
            admin.create_topics([NewTopic(name=topic, num_partitions=2, replication_factor=3)])
            cluster.wait_for_isr(topic, 3)
            until(lambda: topic in admin.list_topics())
            (described,) = admin.describe_topics([topic])
            assert len(described["partitions"]) == 2
            with closing(KafkaProducer(**servers)) as producer:
                for i in range(10):
                    sent = producer.send(topic, b"v", partition=0, timestamp_ms=T0 + i * 1000)
                    assert sent.get(10).offset == i
            with closing(KafkaConsumer(**servers)) as consumer:
                assert consumer.beginning_offsets([partition]) == {partition: 0}
                assert consumer.end_offsets([partition]) == {partition: 10}
                found = consumer.offsets_for_times({partition: T0 + 3500})[partition]
                assert found is not None
                assert (found.offset, found.timestamp) == (4, T0 + 4000)
            admin.delete_topics([topic])
            until(lambda: topic not in admin.list_topics())


class TestAiokafka:
    @pytest.mark.parametrize("codec", ("none", "gzip", "snappy", "lz4", "zstd"))
    def test_aiokafka_reads_its_written_rows(self, cluster, codec):
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

        topic = f"aiokafka-{codec}"

        async def run() -> list:
            producer = AIOKafkaProducer(
                bootstrap_servers=cluster.bootstrap,
                enable_idempotence=True,
                compression_type=None if codec == "none" else codec,
            )
            await producer.start()
            try:
                for key, value, headers in ROWS:
                    await producer.send(topic, value, key, partition=0, headers=headers)
                await producer.flush()
            finally:
                await producer.stop()
            consumer = AIOKafkaConsumer(
                bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
            )
            await consumer.start()
            rows = []
            try:
                partition = TopicPartition(topic, 0)
                consumer.assign([partition])
                assert await consumer.end_offsets([partition]) == {partition: len(ROWS)}
                while len(rows) < len(ROWS):
                    message = await asyncio.wait_for(consumer.getone(), 10)
                    rows.append((message.key, message.value, list(message.headers)))
            finally:
                await consumer.stop()
            return rows

        assert asyncio.run(run()) == ROWS
        assert _confluent_rows(cluster.bootstrap, topic) == ROWS

    def test_aiokafka_creates_topics_and_adds_partitions(self, cluster):
        from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

        async def run() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
            await admin.start()
            try:
                await admin.create_topics([NewTopic("aiokafka-admin", 2, 3)])
                await admin.create_partitions({"aiokafka-admin": NewPartitions(3)})
                cluster.wait_for_isr("aiokafka-admin", 3)
                found = []
                async with asyncio.timeout(5):  # any broker that is asked follows at once
                    while len(found) < 3:
                        (described,) = await admin.describe_topics(["aiokafka-admin"])
                        found = described["partitions"]
                assert len((await admin.describe_cluster())["brokers"]) == 3
                await admin.delete_topics(["aiokafka-admin"])
            finally:
                await admin.close()

        asyncio.run(run())


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_produces_consumes_and_lists_topics(cluster):
    def kcat(*arguments: str, text: str = "") -> str:
        command = ["kcat", "-b", cluster.bootstrap, *arguments]
        return printed_by(command, input=text)

    kcat("-P", "-t", "kcat", "-p", "0", "-K", ":", "-z", "gzip", text="a:1\nb:2\n")
    assert kcat("-C", "-t", "kcat", "-p", "0", "-e", "-q", "-K", ":") == "a:1\nb:2\n"
    assert 'topic "kcat"' in kcat("-L", "-t", "kcat")
    assert "kcat [0] offset 2" in kcat("-Q", "-t", "kcat:0:-1")
