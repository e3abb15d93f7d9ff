"""Test that subscribed consumers of three libraries share the partitions of a group.

The members share the partitions again when a member joins, leaves or restarts, and when the
coordinator is killed.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster

from ..waiting import until
from .group_members import LIBRARIES, PARTITIONS, TOPIC, Aiokafka, Confluent, Member, share
from .readers import WITH_LIBRARIES, fill, new_topic

pytestmark = WITH_LIBRARIES
RECORDS = 10  # a partition
ALL = frozenset(range(PARTITIONS))
every_library = pytest.mark.parametrize("library", LIBRARIES)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3) as running:
        new_topic(running, TOPIC, PARTITIONS)
        produce(running.bootstrap)
        yield running


def produce(bootstrap: str) -> None:
    fill(bootstrap, TOPIC, [(None, b"%d" % i, p) for i in range(RECORDS) for p in ALL])


def described(cluster: Cluster, group: str) -> Any:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    return admin.describe_consumer_groups([group])[group].result(20)


@pytest.mark.in_turn
@every_library
def test_consumer_group_members_of_each_library_share_and_hand_over_partitions(
    cluster: Cluster, stack: ExitStack, library: str
) -> None:
    group = f"shared by {library}"

    def member() -> Member:
        made = LIBRARIES[library](cluster.bootstrap, group)
        stack.callback(made.stop)
        return made

    first = member()
    share(first)
    second = member()
    share(first, second)
    until(
        lambda: {*first.read, *second.read} >= {(p, i) for p in ALL for i in range(RECORDS)},
        lambda: f"read: {sorted({*first.read, *second.read})}",
    )
    state = described(cluster, group)
    assert state.state.name == "STABLE"
    assert {len(each.assignment.topic_partitions) for each in state.members} == {2}
    second.stop()
    share(first)


@every_library
def test_static_member_that_restarts_causes_no_rebalance(
    cluster: Cluster, stack: ExitStack, library: str
) -> None:
    """Static membership follows KIP-345."""
    group = f"static {library}"

    def member(instance: str) -> Member:
        made = LIBRARIES[library](cluster.bootstrap, group, instance=instance)
        stack.callback(made.stop)
        return made

    one, two = member("one"), member("two")
    share(one, two)
    given, changes = two.assigned, len(one.history)
    two.stop()
    again = member("two")
    until(lambda: again.assigned == given, lambda: f"{again.history}, not {given}")
    assert len(one.history) == changes, "the other one was left alone"
    instances = {each.group_instance_id for each in described(cluster, group).members}
    assert instances == {"one", "two"}


def test_cooperative_members_keep_partitions_that_need_not_move(
    cluster: Cluster, stack: ExitStack
) -> None:
    """Cooperative rebalances follow KIP-429."""
    group = "cooperative"
    first = Confluent(cluster.bootstrap, group, cooperative=True)
    stack.callback(first.stop)
    share(first)
    changes = len(first.history)
    second = Confluent(cluster.bootstrap, group, cooperative=True)
    stack.callback(second.stop)
    share(first, second)
    assert all(len(each) >= 2 for each in first.history[changes - 1 :])


def test_consumer_group_of_three_libraries_continues_after_its_coordinator_is_killed(
    cluster: Cluster, stack: ExitStack
) -> None:
    group = "mixed"
    members = [library(cluster.bootstrap, group) for library in LIBRARIES.values()]
    for member in members:
        stack.callback(member.stop)
    share(*members)
    killed = cluster.kill(f"group:{group}")
    stack.callback(cluster.start, killed)
    commits = [member.committed for member in members]
    produce(cluster.bootstrap)
    until(
        lambda: all(m.committed > before for m, before in zip(members, commits, strict=True)),
        lambda: f"{commits} -> {[member.committed for member in members]}",
    )
    share(*members)


@pytest.mark.in_turn
def test_consumer_group_with_its_coordinator_killed_in_a_rebalance_finishes_rebalancing(
    cluster: Cluster, stack: ExitStack
) -> None:
    group = "rebalancing"
    first = Aiokafka(cluster.bootstrap, group)
    stack.callback(first.stop)
    share(first)
    second = Confluent(cluster.bootstrap, group)
    stack.callback(second.stop)
    until(
        lambda: described(cluster, group).state.name != "STABLE" or second.assigned,
        lambda: "the second one does not come",
    )
    killed = cluster.kill(f"group:{group}")
    stack.callback(cluster.start, killed)
    share(first, second)
