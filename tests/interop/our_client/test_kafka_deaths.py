"""Test oncelog's client while Apache Kafka's only node is killed and restarted."""

import asyncio
from pathlib import Path

import pytest

from oncelog.client import Consumer, Producer, ProducerState
from oncelog.wire.errors import KafkaError

from ..client_peers import PREPARES, QUICK, SCAN, new_topic, read_to_end
from ..kafka_peer import KafkaPeer

pytestmark = [pytest.mark.cluster, pytest.mark.kafka, pytest.mark.chaos]
SETTINGS = {"request_timeout_ms": 4_000, "retry_backoff_max_ms": 200, "linger_ms": 1}
RETURN_S = 100.0  # a JVM starts on a busy machine, and reads its logs


async def plain(bootstrap: str, topic: str, over: asyncio.Event) -> None:
    """Produce until `over`, and assert that the log has each record once and in order."""
    async with Producer(bootstrap, **SETTINGS) as producer:
        sent = []
        while not over.is_set():
            sent.append(await producer.send(topic, b"%d" % len(sent), partition=0))
            await asyncio.sleep(0.002)
        await asyncio.wait_for(producer.flush(), RETURN_S)
        assert [d.result().offset for d in sent] == list(range(len(sent)))
        assert producer.state is ProducerState.READY
    rows = await read_to_end(bootstrap, topic)
    assert [int(r.value or b"") for r in rows] == list(range(len(sent)))


async def transactions(bootstrap: str, topic: str, version: int, over: asyncio.Event) -> None:
    """Run transactions until `over`, and assert that each committed record is in the log once.

    The group's offset must be that of the last commit, and no error may be fatal.
    """
    committed: list[int] = []
    async with Producer(
        bootstrap,
        transactional_id=topic,
        oncelog_transaction_version_max=version,
        max_block_ms=int(RETURN_S * 1_000),
        **SETTINGS,
    ) as producer:
        await producer.init_transactions()
        number = after = 0
        while after < 3:
            after += over.is_set()
            await producer.begin_transaction()
            try:
                await producer.send(topic, b"%d" % number, partition=0)
                await producer.send_offsets_to_transaction({(topic, 0): number}, topic)
                await producer.commit_transaction()
                committed.append(number)
            except KafkaError as problem:
                assert problem.abortable and not problem.fatal, repr(problem)
                await producer.abort_transaction()
            number += 1
    rows = await read_to_end(bootstrap, topic)
    assert [int(r.value or b"") for r in rows] == committed
    assert committed[-1] == number - 1
    async with Consumer(bootstrap, group_id=topic, **QUICK) as consumer:
        assert (await consumer.committed([(topic, 0)]))[(topic, 0)].offset == committed[-1]


def test_clients_of_a_killed_and_restarted_apache_kafka_are_exactly_once(tmp_path: Path):
    async def main(peer: KafkaPeer) -> None:
        topics = [await new_topic(peer.bootstrap, 1) for _ in range(3)]
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        work = [
            asyncio.ensure_future(plain(peer.bootstrap, topics[0], over)),
            asyncio.ensure_future(transactions(peer.bootstrap, topics[1], 1, over)),
            asyncio.ensure_future(transactions(peer.bootstrap, topics[2], 2, over)),
        ]
        for _ in range(2):
            await asyncio.sleep(2)
            await loop.run_in_executor(None, peer.kill, 1)
            await loop.run_in_executor(None, peer.start, 1)
        await asyncio.sleep(2)
        over.set()
        await asyncio.wait_for(asyncio.gather(*work), RETURN_S)

    with KafkaPeer(tmp_path, settings=PREPARES | SCAN) as peer:
        asyncio.run(main(peer))
