"""Test the parsing of feature levels for `up --feature`, and that a cluster keeps its levels."""

from pathlib import Path

import pytest

from oncelog.cli.common import feature_levels
from oncelog.client import Admin, Consumer, Producer
from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.wire.errors import KafkaError

from ..interop.client_peers import new_topic, values


@pytest.mark.parametrize(
    "text", ["transaction.version=3", "group.version=x", "metadata.version=7", "share.version=0"]
)
def test_feature_level_outside_the_known_range_is_refused_before_a_start(text: str) -> None:
    with pytest.raises(Failure, match=r"transaction\.version 0-2\.$") as caught:
        feature_levels([text])
    assert caught.value.exit_code == 2


def test_feature_levels_are_parsed_by_name() -> None:
    given = ["transaction.version=0", "group.version=1", "metadata.version=33"]
    assert feature_levels(given) == {
        "transaction.version": 0,
        "group.version": 1,
        "metadata.version": 33,
    }
    assert feature_levels(None) == {}


async def levels_of(bootstrap: str) -> list[dict[str, int]]:
    """Return the finalized feature levels that each broker reports to a new client."""
    async with Admin(bootstrap) as admin:
        nodes = list((await admin.view.refresh([])).brokers)
        return [{**(await admin.view.broker(node)).features} for node in nodes]


async def commit(bootstrap: str, topic: str, value: bytes) -> None:
    async with Producer(bootstrap, transactional_id="app") as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send(topic, value)
        await producer.commit_transaction()


@pytest.mark.cluster
@pytest.mark.in_turn
async def test_feature_levels_set_by_an_admin_persist_after_a_kill_of_all_nodes(
    tmp_path: Path,
) -> None:
    with Cluster(nodes=3, data=tmp_path / "data") as cluster:
        async with Admin(cluster.bootstrap) as admin:
            await admin.update_features({"transaction.version": 0, "group.version": 0})
        topic = await new_topic(cluster.bootstrap, 1)
        await commit(cluster.bootstrap, topic, b"before")
        for node in cluster.node_ids:
            cluster.kill(node)
        cluster.start_all(cluster.node_ids)
        for levels in await levels_of(cluster.bootstrap):
            assert not {"transaction.version", "group.version"} & levels.keys()
        await commit(cluster.bootstrap, topic, b"after")
        assert await values(cluster.bootstrap, topic) == [b"after", b"before"]
        with pytest.raises(KafkaError):
            async with Consumer(
                cluster.bootstrap, group_id="g", group_protocol="consumer"
            ) as consumer:
                consumer.subscribe([topic])
                await consumer.poll(5_000)
        async with Admin(cluster.bootstrap) as admin:
            await admin.update_features({"transaction.version": 2, "group.version": 1})
        for levels in await levels_of(cluster.bootstrap):
            assert (levels["transaction.version"], levels["group.version"]) == (2, 1)
