"""Test that the first produce to a new topic of three brokers succeeds without a retry."""

from collections import Counter
from pathlib import Path

import pytest

from oncelog.coordinator.metadata.commands import CreateTopics, NewTopic
from oncelog.node.listener.dispatch import RequestContext
from oncelog.wire.messages import produce
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic

from ..fake_broker import PRODUCE, request
from ..leading_broker import plain
from ..three_brokers import three_brokers

TOPICS = 60


@pytest.mark.uvloop
@pytest.mark.parametrize("by_id", [False, True])
async def test_first_produce_to_a_new_topic_is_not_refused(tmp_path: Path, by_id: bool) -> None:
    """The broker that confirms the creation leads only some of the partitions."""
    errors, leaders = Counter[int](), Counter[int]()
    async with three_brokers(tmp_path) as cluster:
        asked, nodes = cluster.brokers[0], {each.config.node_id: each for each in cluster.brokers}
        for number in range(TOPICS):
            name, topic_id = f"new-{number}", f"id-{number}".encode().ljust(16)
            command = CreateTopics((NewTopic(name, topic_id, 1, 1),))
            await asked._controller.submit(command, timeout_ms=10_000)
            registration = asked.state.partition(name, 0)
            assert registration is not None
            leaders[registration.leader] += 1
            leader = nodes[registration.leader]
            named = (None, topic_id) if by_id else (name, None)
            topic = ProduceTopic(*named, [ProducePartition(0, plain())])
            version = 13 if by_id else 9
            body = b"".join(
                produce.encode_request(ProduceRequest(None, 1, 9_000, [topic]), version)
            )
            connection = RequestContext(leader.services, number, "127.0.0.1")
            answer = request(leader.server.dispatcher, connection, PRODUCE, version, body)
            errors.update((await answer.errors()).values())
    assert set(leaders) == set(nodes)
    assert errors == {0: TOPICS}
