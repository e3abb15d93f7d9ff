"""Test that Metadata still lists a broker for a while after it was fenced."""

import pytest

from oncelog.node.membership import recently_fenced_brokers

from ...awaiting import until
from ..fake_broker import FakeBroker

METADATA = 3
TOPICS = {"topics": None, "allow_auto_topic_creation": False}


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


async def listed(broker: FakeBroker) -> list[int]:
    answer = await broker.answer(METADATA, 9, TOPICS)
    return sorted(b.node_id for b in answer.brokers)


async def test_fenced_broker_is_listed_as_recently_fenced_for_a_while(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recently_fenced_brokers, "LISTED_MS", 50)
    fenced = broker.services.recently_fenced_brokers
    fenced.watch(broker.state)
    await broker.answer(19, 7, {"topics": [{"name": "t", "num_partitions": 1}]})
    broker.fence(2)
    assert await listed(broker) == [1, 2, 3]
    await until(lambda: 2 not in fenced)
    assert await listed(broker) == [1, 3], "the answer encoded before is not sent"


async def test_broker_fenced_again_is_listed_as_recently_fenced_again(broker: FakeBroker) -> None:
    fenced = broker.services.recently_fenced_brokers
    fenced.watch(broker.state)
    await broker.answer(19, 7, {"topics": [{"name": "t", "num_partitions": 1}]})
    for _ in range(2):
        broker.fence(2)
        assert 2 in fenced and 3 not in fenced
        broker.unfence(2)
    assert await listed(broker) == [1, 2, 3]
