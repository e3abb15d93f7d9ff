"""A broker that was fenced a moment ago still stands in Metadata, with nothing to lead."""

import asyncio

import pytest

from oncelog.coordinator.metadata.commands import FenceBroker, UnfenceBroker
from oncelog.node.membership import recently_fenced_brokers

from ..fake_broker import FakeBroker

METADATA = 3
TOPICS = {"topics": None, "allow_auto_topic_creation": False}


async def listed(broker: FakeBroker) -> list[int]:
    answer = await broker.answer(METADATA, 9, TOPICS)
    return sorted(b.node_id for b in answer.brokers)


def fence(broker: FakeBroker, node_id: int) -> None:
    broker.controller.apply(FenceBroker(node_id, broker.state.brokers[node_id].broker_epoch))


async def test_it_is_listed_for_a_while_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recently_fenced_brokers, "LISTED_MS", 50)
    broker = FakeBroker()
    fenced = broker.services.recently_fenced_brokers
    fenced.watch(broker.state)
    await broker.answer(19, 7, {"topics": [{"name": "t", "num_partitions": 1}]})
    fence(broker, 2)
    assert await listed(broker) == [1, 2, 3]
    async with asyncio.timeout(5):
        while 2 in fenced:
            await asyncio.sleep(0.005)
    assert await listed(broker) == [1, 3], "what was encoded before is not given again"


async def test_one_that_is_back_and_goes_again_is_listed_again() -> None:
    broker = FakeBroker()
    fenced = broker.services.recently_fenced_brokers
    fenced.watch(broker.state)
    await broker.answer(19, 7, {"topics": [{"name": "t", "num_partitions": 1}]})
    for _ in range(2):
        fence(broker, 2)
        assert 2 in fenced and 3 not in fenced
        broker.controller.apply(UnfenceBroker(2, broker.state.brokers[2].broker_epoch))
    assert await listed(broker) == [1, 2, 3]
