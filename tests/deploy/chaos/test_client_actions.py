"""Faults of clients and topics, on a cluster that is only told of them: what counts as a hit."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.deploy.chaos import client_actions
from oncelog.deploy.chaos.load.settings import APPEND, LoadSettings
from oncelog.deploy.chaos.stage import Stage
from oncelog.deploy.faults.schedule import Planned
from oncelog.deploy.judge.history.recorder import Recorder
from oncelog.wire.errors import KafkaError, PreferredLeaderNotAvailable


class ToldCluster:
    """Two partitions on three nodes; it is its own admin, view and connection."""

    def __init__(self) -> None:
        self.replicas = [[1, 2, 3], [2, 3, 1]]
        self.leaders = [1, 2]
        self.in_sync = {1, 2, 3}
        self.refusal: KafkaError | None = None
        self.elects = True
        self.view = self

    def ask(self, work: Any) -> Any:
        return asyncio.run(work(self))

    async def describe_topics(self, topics: list[str]) -> list[Any]:
        assert topics == [APPEND]
        return [
            SimpleNamespace(
                topic=APPEND, partition=i, leader=self.leaders[i], replicas=tuple(nodes),
                isr=tuple(node for node in nodes if node in self.in_sync),
            )
            for i, nodes in enumerate(self.replicas)
        ]  # fmt: skip

    async def elect_leaders(self, partitions: list[tuple[str, int]]) -> None:
        if self.refusal is not None:
            raise self.refusal
        for _, i in partitions if self.elects else ():
            self.leaders[i] = self.replicas[i][0]

    async def any_broker(self) -> Any:
        return self

    async def call(self, _: int, request: dict[str, Any]) -> Any:
        for wanted in request["topics"][0]["partitions"]:
            self.replicas[wanted["partition_index"]] = list(wanted["replicas"])
        return SimpleNamespace(responses=[], error_code=0)


def elect(cluster: ToldCluster) -> Stage:
    given: Any = SimpleNamespace(cluster=cluster, order=None)
    stage = Stage(
        given.cluster, given.order, given.order, Recorder.in_memory(),
        LoadSettings(append_partitions=2), seed=1, transactional_ids=[], extra_order=given.order,
    )  # fmt: skip
    planned = Planned("clients", "elect-leaders", (0.5,) * 8)
    stage.make(planned, client_actions.CLIENT_ACTIONS)
    return stage


@pytest.fixture(autouse=True)
def is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_actions, "SEEN_WITHIN_S", 0.05)


def test_where_preferred_replicas_lead_others_are_made_to() -> None:
    cluster = ToldCluster()
    stage = elect(cluster)
    assert stage.hits == {"elect-leaders": 1} and not stage.misses
    assert cluster.leaders != [1, 2]
    assert cluster.leaders == [nodes[0] for nodes in cluster.replicas]


def test_preferred_replicas_lead_again() -> None:
    cluster = ToldCluster()
    cluster.leaders = [3, 3]
    stage = elect(cluster)
    assert stage.hits == {"elect-leaders": 1}
    assert cluster.leaders == [1, 2] and cluster.replicas == [[1, 2, 3], [2, 3, 1]]


def test_an_election_that_moves_no_leader_is_no_hit() -> None:
    cluster = ToldCluster()
    cluster.elects = False
    assert elect(cluster).hits == {}
    cluster.refusal = PreferredLeaderNotAvailable("it is away")
    assert elect(cluster).hits == {}
    alone = ToldCluster()
    alone.in_sync = {1}
    alone.leaders, alone.replicas = [1, 1], [[1, 2], [1, 3]]
    stage = elect(alone)
    assert stage.hits == {} and len(stage.misses) == 1
