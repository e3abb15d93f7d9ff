"""Test that the audit of a correct topic reports no fault, on Apache Kafka and on oncelog."""

import asyncio

import pytest

from oncelog.client.admin import Admin
from oncelog.client.cluster_view import ClusterView
from oncelog.client.producer import Producer
from oncelog.proof.judge.logs.topic_audit import TopicAudit, audit_topic

from .raw_peer import RawPeer

# One worker already runs a Kafka and a broker of ours for those tests.
pytestmark = pytest.mark.xdist_group("same answers")
TOPIC = "audited"


async def prepare(bootstrap: str) -> None:
    view = ClusterView(bootstrap)
    try:
        await Admin(view).create_topic(TOPIC, partitions=2, replication_factor=1)
    finally:
        await view.close()


async def write(bootstrap: str) -> None:
    """Write twelve transactions of each version, every third aborted, and other records between."""
    for version in (1, 2):
        settings = {"transactional_id": f"v{version}", "oncelog_transaction_version_max": version}
        async with Producer(bootstrap, **settings) as producer, Producer(bootstrap) as plain:
            await producer.init_transactions()
            for number in range(12):
                await producer.begin_transaction()
                for partition in (0, 1):
                    await producer.send(TOPIC, b"%d" % number, partition=partition)
                    await plain.send(TOPIC, b"plain", partition=partition)
                await producer.flush()
                await plain.flush()
                if number % 3:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()


def write_with_librdkafka(bootstrap: str) -> None:
    from confluent_kafka import Producer as Librdkafka

    producer = Librdkafka({"bootstrap.servers": bootstrap, "transactional.id": "librdkafka"})
    producer.init_transactions(30)
    for number in range(9):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(TOPIC, str(number), partition=partition)
        producer.flush(30)
        (producer.commit_transaction if number % 3 else producer.abort_transaction)(30)


def judged(audit: TopicAudit) -> list[tuple[int, int, int]]:
    assert audit.findings == (), [case for f in audit.findings for case in f.cases]
    return [
        (p.transactions["committed"], p.transactions["aborted"], len(p.open_transactions()))
        for p in audit.partitions
    ]


def audit_of(peer: RawPeer) -> TopicAudit:
    bootstrap = "{}:{}".format(*peer.address)
    asyncio.run(prepare(bootstrap))
    asyncio.run(write(bootstrap))
    write_with_librdkafka(bootstrap)
    return asyncio.run(audit_topic(bootstrap, TOPIC))


@pytest.mark.kafka
@pytest.mark.filterwarnings("ignore")
def test_audit_of_a_topic_on_apache_kafka_counts_its_transactions(kafka: RawPeer) -> None:
    assert judged(audit_of(kafka)) == [(22, 11, 0)] * 2


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore")
def test_audit_of_a_topic_on_our_cluster_counts_its_transactions(ours: RawPeer) -> None:
    assert judged(audit_of(ours)) == [(22, 11, 0)] * 2
