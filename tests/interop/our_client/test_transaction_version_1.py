"""Test aborts of oncelog's client on an Apache Kafka with transaction.version 1."""

import asyncio
from collections.abc import Iterator

import pytest

from oncelog.client import Producer
from oncelog.deploy.faults.protocol_proxy.proxy import ProtocolProxy
from oncelog.deploy.faults.protocol_proxy.rules import LoseAnswer, LoseRequest, Match, Rule

from ..client_peers import QUICK, TIMEOUT_S, new_topic, values
from ..kafka_peer import KafkaPeer

pytestmark = [pytest.mark.cluster, pytest.mark.kafka]
SLOW_RETRIES = {**QUICK, "retry_backoff_ms": 1_000, "retry_backoff_max_ms": 1_000, "linger_ms": 0}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the bootstrap address of an Apache Kafka with transaction.version 1."""
    version = ("--feature", "transaction.version=1")
    with KafkaPeer(tmp_path_factory.mktemp("kafka"), format_options=version) as peer:
        yield peer.bootstrap


@pytest.mark.parametrize(
    ("api", "fault"),
    [
        ("Produce", LoseAnswer()),
        ("AddPartitionsToTxn", LoseAnswer()),
        ("AddPartitionsToTxn", LoseRequest()),
    ],
    ids=["produce answer", "add answer", "add request"],
)
async def test_producer_commits_after_it_aborted_without_an_answer(kafka, api, fault):
    """This Kafka fences a producer that calls InitProducerId within its own transaction."""
    topic = await new_topic(kafka, 1)
    with ProtocolProxy(kafka) as proxy:
        async with Producer(
            proxy.address_for("app"), transactional_id=topic, **SLOW_RETRIES
        ) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send(topic, b"first")
            await producer.commit_transaction()
            await producer.begin_transaction()
            rule = Rule(Match(apis={api}), fault)
            proxy.add(rule)
            await producer.send(topic, b"aborted")
            async with asyncio.timeout(TIMEOUT_S):
                while not proxy.made(rule):
                    await asyncio.sleep(0.01)
            await producer.abort_transaction()
            await producer.begin_transaction()
            await producer.send(topic, b"next")
            await producer.commit_transaction()
    assert await values(kafka, topic) == [b"first", b"next"]
