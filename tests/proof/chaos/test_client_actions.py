"""Test faults of clients and topics on a double of a cluster, and when a fault counts."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.deploy.faults.schedule import Fault
from oncelog.proof.chaos import client_actions
from oncelog.proof.chaos.context import ChaosContext
from oncelog.proof.chaos.load.settings import APPEND, LoadSettings
from oncelog.proof.judge.history.recorder import Recorder
from oncelog.wire.errors import KafkaError, LeaderNotAvailable, PreferredLeaderNotAvailable


class ClusterDouble:
    """A double of a cluster of three nodes with two partitions.

    The same object stands in for the admin client, the view and the connection of the cluster.
    """

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


def made(kind: str, cluster: Any, proxies: Any = None) -> ChaosContext:
    given: Any = SimpleNamespace(order=None)
    context = ChaosContext(
        cluster, given.order, proxies, Recorder.in_memory(),
        LoadSettings(append_partitions=2, request_timeout_ms=1), seed=1, transactional_ids=[],
        extra_order=given.order, connection="",
    )  # fmt: skip
    context.make(Fault(kind, (0.0,) * 8), client_actions.CLIENT_ACTIONS)
    return context


def elect(cluster: ClusterDouble) -> ChaosContext:
    return made("elect-leaders", cluster)


@pytest.fixture(autouse=True)
def is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_actions, "SEEN_WITHIN_S", 0.05)


def test_chaos_election_action_moves_leaders_away_from_preferred_replicas() -> None:
    cluster = ClusterDouble()
    context = elect(cluster)
    assert context.hits == {"elect-leaders": 1} and not context.misses
    assert cluster.leaders != [1, 2]
    assert cluster.leaders == [nodes[0] for nodes in cluster.replicas]


def test_chaos_election_action_moves_leaders_back_to_preferred_replicas() -> None:
    cluster = ClusterDouble()
    cluster.leaders = [3, 3]
    context = elect(cluster)
    assert context.hits == {"elect-leaders": 1}
    assert cluster.leaders == [1, 2] and cluster.replicas == [[1, 2, 3], [2, 3, 1]]


def test_chaos_reassignment_is_undone_when_the_schedule_ends_even_if_first_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Busy(ClusterDouble):
        node_ids = (1, 2, 3)
        asked = 0

        async def call(self, _: int, request: dict[str, Any]) -> Any:
            self.asked += 1
            if self.asked == 2:  # the move back
                raise LeaderNotAvailable("not now")
            return await super().call(_, request)

    monkeypatch.setattr(ChaosContext, "sleep", lambda context, _: context.stopping.set())
    cluster = Busy()
    context = made("reassignment", cluster)
    assert context.hits == {"reassignment": 1} and not context.misses
    assert cluster.replicas[0] == [1, 2, 3]


def test_chaos_election_that_moves_no_leader_is_not_counted() -> None:
    cluster = ClusterDouble()
    cluster.elects = False
    assert elect(cluster).hits == {}
    cluster.refusal = PreferredLeaderNotAvailable("it is away")
    assert elect(cluster).hits == {}
    alone = ClusterDouble()
    alone.in_sync = {1}
    alone.leaders, alone.replicas = [1, 1], [[1, 2], [1, 3]]
    context = elect(alone)
    assert context.hits == {} and len(context.misses) == 1


class ProxiesDouble:
    """Proxies that count an affected request as soon as a fault is set."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.is_healed = False

    def cut(self, _: int) -> None:
        self.counts["dropped"] += 1

    def delay(self, _: int, delay_ms: int) -> None:
        self.counts["delayed"] += 1

    def hold(self, _: int) -> None:
        self.counts["held"] += 1  # the next request of this API, and no other

    def heal(self) -> None:
        self.is_healed = True


@pytest.mark.parametrize("kind", ["client-cut", "client-delay", "client-hold"])
def test_chaos_client_fault_counts_as_a_hit_at_the_first_affected_request(kind: str) -> None:
    proxies = ProxiesDouble()
    nodes = [SimpleNamespace(node_id=1, port=9092)]
    context = made(kind, SimpleNamespace(file=SimpleNamespace(nodes=nodes)), proxies)
    assert context.hits == {kind: 1} and not context.misses
    assert proxies.is_healed
