"""Test that the active controller logs each change of the metadata with its reason."""

import asyncio
from typing import Any, cast

import pytest

from oncelog.coordinator.metadata.commands import BeginControlledShutdown
from oncelog.coordinator.raft.group import RaftGroup
from oncelog.node.controller.metadata_events import MetadataEvents
from oncelog.runtime.event_log import EventLog
from oncelog.runtime.sliced_work import SlicedWork

from ...coordinator.metadata.metadata_cluster import MetadataCluster
from ..fake_raft_group import FakeRaftGroup


class KeptEvents(EventLog):
    """An event log that keeps its events in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, str, str, dict[str, Any]]] = []

    def tell(self, kind: str, subject: str, reason: str, sentence: str, **terms: Any) -> None:
        self.told.append((kind, subject, reason, terms))

    async def new(self) -> list[tuple[str, str, str]]:
        """Let the event loop run, and return (kind, subject, reason) of each new event."""
        for _ in range(20):
            await asyncio.sleep(0)
        told, self.told = self.told, []
        return [each[:3] for each in told]


class Group(FakeRaftGroup):
    """The metadata group, which this node leads if `is_leader`."""

    is_leader = True


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def events() -> KeptEvents:
    return KeptEvents()


@pytest.fixture
def cluster(group: Group, events: KeptEvents) -> MetadataCluster:
    cluster = MetadataCluster()
    cluster.topic("t", (1, 2, 3), (2, 3, 1))
    MetadataEvents(1, cluster.state, cast(RaftGroup, group), events, SlicedWork())
    return cluster


async def test_created_topic_is_logged_as_an_event(
    cluster: MetadataCluster, events: KeptEvents
) -> None:
    cluster.topic("u", (1, 2, 3))
    assert await events.new() == [("topic", "u", "created")]


async def test_dead_leader_is_logged_as_its_fence_elections_and_isr_changes(
    cluster: MetadataCluster, events: KeptEvents
) -> None:
    cluster.die(1)
    assert sorted(await events.new()) == [
        ("broker", "node 1", "fenced"),
        ("election", "t/0", "fenced"),
        ("isr", "t/0", "fenced"),
        ("isr", "t/1", "fenced"),
    ]


async def test_partition_without_a_leader_is_logged_as_an_event(
    cluster: MetadataCluster, events: KeptEvents
) -> None:
    cluster.topic("single", (1,))
    await events.new()
    cluster.die(1)
    told = events.told
    assert ("election", "single/0", "fenced") in await events.new()
    (terms,) = (each[3] for each in told if each[1] == "single/0" and each[0] == "election")
    assert (terms["leader"], terms["before"], terms["leader_epoch"]) == (-1, 1, 1)
    cluster.start(1)
    assert ("election", "single/0", "no leader") in await events.new()


async def test_isr_change_events_have_their_reasons(
    cluster: MetadataCluster, events: KeptEvents
) -> None:
    cluster.propose(1, 2)
    assert await events.new() == [("isr", "t/0", "fell behind")]
    cluster.propose(1, 2, 3)
    assert await events.new() == [("isr", "t/0", "caught up")]
    cluster.do(BeginControlledShutdown(1, cluster.epoch(1)))
    assert set(await events.new()) == {
        ("broker", "node 1", "shutting down"),
        ("election", "t/0", "shutting down"),
        ("isr", "t/0", "shutting down"),
        ("isr", "t/1", "shutting down"),
    }


async def test_metadata_events_are_logged_only_by_the_active_controller(
    cluster: MetadataCluster, group: Group, events: KeptEvents
) -> None:
    group.is_leader = False
    cluster.die(1)
    assert await events.new() == []
    group.is_leader = True
    for elected in group.elected:
        elected(7)
    assert await events.new() == [("controller", "node 1", "elected")]
    cluster.start(1)  # the new controller knows the previous states of the others
    assert ("broker", "node 1", "unfenced") in await events.new()
