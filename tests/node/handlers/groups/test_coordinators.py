"""Test FindCoordinator, for groups and for transactional ids."""

import asyncio

import pytest

from oncelog.coordinator.sharding import shard_for
from oncelog.wire.errors import ErrorCode, RequestTimedOut

from ....awaiting import turns_until
from ...fake_broker import FakeBroker

FIND = 10
GROUP, TRANSACTION, SHARE = 0, 1, 2
OFFSETS_TOPIC = "__consumer_offsets"
NOBODY = (-1, "", -1)


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


class Transactions:
    def __init__(self, leaders: dict[str, int]) -> None:
        self.leaders = leaders

    def leader_of(self, transactional_id: str) -> int | None:
        return self.leaders.get(transactional_id)


def find(
    broker: FakeBroker, version: int, *keys: str, key_type: int = GROUP
) -> list[tuple[int, tuple]]:
    """Send FindCoordinator, and return (error, (node, host, port)) for each key."""
    question = {"key": keys[0], "key_type": key_type, "coordinator_keys": list(keys)}
    answer = broker.ask(FIND, version, question)
    if version < 4:
        return [(answer.error_code, (answer.node_id, answer.host, answer.port))]
    assert tuple(each.key for each in answer.coordinators) == keys
    return [(each.error_code, (each.node_id, each.host, each.port)) for each in answer.coordinators]


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator_first_request_creates_the_offsets_topic(
    broker: FakeBroker, version: int
) -> None:
    ((error, address),) = find(broker, version, "g")
    topic = broker.state.topics[OFFSETS_TOPIC]
    assert (error, len(topic.partitions)) == (0, 8)
    leader = topic.partitions[shard_for("g", 8)].leader
    assert address == (leader, "127.0.0.1", 9090 + leader)


def test_find_coordinator_creates_the_offsets_topic_without_auto_creation() -> None:
    broker = FakeBroker(auto_create_topics_enable="false")
    ((error, _),) = find(broker, 4, "g")
    assert error == 0


def test_find_coordinator_of_many_keys_answers_each_key(broker: FakeBroker) -> None:
    groups = [f"group {i}" for i in range(50)]
    found = find(broker, 4, *groups)
    partitions = broker.state.topics[OFFSETS_TOPIC].partitions
    assert [address[0] for _, address in found] == [
        partitions[shard_for(group, 8)].leader for group in groups
    ]
    assert len({address for _, address in found}) == 3, "all brokers coordinate some"
    assert len(broker.controller.commands) == 1


def test_find_coordinator_of_a_leaderless_partition_is_not_available(broker: FakeBroker) -> None:
    assert find(broker, 4, "g")[0][0] == 0
    for node in (1, 2, 3):
        broker.fence(node)
    assert find(broker, 4, "g") == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, NOBODY)]


def test_find_coordinator_without_an_offsets_topic_is_not_available(broker: FakeBroker) -> None:
    broker.controller.failure = RequestTimedOut()
    for version in (0, 3, 4):
        assert find(broker, version, "g") == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, NOBODY)]
    broker.controller.failure = None
    assert find(broker, 0, "g")[0][0] == 0


async def test_find_coordinator_requests_share_one_topic_creation(broker: FakeBroker) -> None:
    broker.controller.gate = asyncio.Event()
    gate = broker.controller.gate
    question = {"key": "", "key_type": GROUP, "coordinator_keys": ["g"]}
    questions = [asyncio.ensure_future(broker.answer(FIND, 4, question)) for _ in range(5)]
    await turns_until(lambda: broker.controller.commands)
    gate.set()
    for answer in await asyncio.gather(*questions):
        assert answer.coordinators[0].error_code == 0
    assert len(broker.controller.commands) == 1


@pytest.mark.parametrize("version", range(1, 7))
def test_find_coordinator_of_a_transactional_id_returns_its_shard_leader(
    broker: FakeBroker, version: int
) -> None:
    broker.services.transactions = Transactions({"x": 2, "y": 9})  # type: ignore[assignment]
    assert find(broker, version, "x", key_type=TRANSACTION) == [(0, (2, "127.0.0.1", 9092))]
    for unknown in ("without a leader", "y"):
        assert find(broker, version, unknown, key_type=TRANSACTION) == [
            (ErrorCode.COORDINATOR_NOT_AVAILABLE, NOBODY)
        ]
    assert broker.controller.commands == [], "no topic is needed"


@pytest.mark.parametrize("version", [1, 4, 6])
@pytest.mark.parametrize("key_type", [SHARE, 3, -1])
def test_find_coordinator_of_an_unknown_key_type_is_refused(
    broker: FakeBroker, version: int, key_type: int
) -> None:
    assert find(broker, version, "k", key_type=key_type) == [(ErrorCode.INVALID_REQUEST, NOBODY)]
    answer = broker.ask(FIND, 4, {"coordinator_keys": ["k"], "key_type": key_type})
    assert bool(answer.coordinators[0].error_message) == (key_type != SHARE), "as in Kafka"


def test_find_coordinator_has_the_same_error_messages_as_kafka(broker: FakeBroker) -> None:
    answer = broker.ask(FIND, 1, {"key": "g"})
    assert answer.error_message == "NONE"
    answer = broker.ask(FIND, 1, {"key": "g", "key_type": SHARE})
    assert answer.error_message
    answer = broker.ask(FIND, 4, {"coordinator_keys": ["g"]})
    assert answer.coordinators[0].error_message == ""


def test_find_coordinator_with_too_many_keys_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.node.handlers.groups.coordinators.KEYS_MAX", 2)
    answer = FakeBroker().ask(FIND, 4, {"coordinator_keys": ["a", "b", "c"]})
    assert [each.error_code for each in answer.coordinators] == [ErrorCode.INVALID_REQUEST] * 2
