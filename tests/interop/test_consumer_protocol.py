"""Consumers of librdkafka with group.protocol=consumer (KIP-848), as an application has them."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster

from ..waiting import until
from .group_members import PARTITIONS, TOPIC, Confluent, ConsumerProtocol, Member, share
from .readers import WITH_LIBRARIES, fill, new_topic

pytestmark = WITH_LIBRARIES
RECORDS = 10  # a partition
ALL = frozenset(range(PARTITIONS))
SETTINGS = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.min.session.timeout.ms": "4000",
    "group.consumer.assignment.interval.ms": "100",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3, config=SETTINGS) as running:
        new_topic(running, TOPIC, PARTITIONS)
        produce(running.bootstrap)
        yield running


def produce(bootstrap: str) -> None:
    fill(bootstrap, TOPIC, [(None, b"%d" % i, p) for i in range(RECORDS) for p in ALL])


def described(cluster: Cluster, group: str) -> Any:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    return admin.describe_consumer_groups([group])[group].result(20)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_three_members_come_and_go(cluster: Cluster, stack: ExitStack, assignor: str) -> None:
    group = f"shared by {assignor}"

    def member() -> Member:
        made = ConsumerProtocol(cluster.bootstrap, group, assignor=assignor)
        stack.callback(made.stop)
        return made

    first = member()
    share(first)
    until(
        lambda: {*first.read} >= {(p, i) for p in ALL for i in range(RECORDS)},
        lambda: f"read: {sorted(first.read)}",
    )
    second, third = member(), member()
    share(first, second, third)
    state = described(cluster, group)
    assert (state.state.name, state.type.name) == ("STABLE", "CONSUMER")
    assert sorted(len(each.assignment.topic_partitions) for each in state.members) == [1, 1, 2]
    second.stop()
    share(first, third)
    first.stop()
    share(third)
    assert third.committed or first.committed


def test_static_member_comes_back_to_what_it_had(cluster: Cluster, stack: ExitStack) -> None:
    group = "static"

    def member(instance: str) -> Member:
        made = ConsumerProtocol(cluster.bootstrap, group, instance=instance)
        stack.callback(made.stop)
        return made

    one, two = member("one"), member("two")
    share(one, two)
    given, changes = two.assigned, len(one.history)
    two.stop()
    again = member("two")
    until(lambda: again.assigned == given, lambda: f"{again.history}, not {given}")
    assert len(one.history) == changes, "the other one was left alone"


def test_pattern_finds_topics(cluster: Cluster, stack: ExitStack) -> None:
    member = ConsumerProtocol(cluster.bootstrap, "by pattern", subscription=f"^{TOPIC[:-1]}.$")
    stack.callback(member.stop)
    share(member)


def test_group_outlives_its_coordinator(cluster: Cluster, stack: ExitStack) -> None:
    group = "outlives"
    members = [ConsumerProtocol(cluster.bootstrap, group) for _ in range(3)]
    for member in members:
        stack.callback(member.stop)
    share(*members)
    members.pop().stop()
    killed = cluster.kill(f"group:{group}")
    stack.callback(cluster.start, killed)
    produce(cluster.bootstrap)
    share(*members)
    commits = [member.committed for member in members]
    produce(cluster.bootstrap)
    until(
        lambda: all(m.committed > before for m, before in zip(members, commits, strict=True)),
        lambda: f"{commits} -> {[member.committed for member in members]}",
    )


def test_member_of_the_classic_protocol_is_refused_until_the_group_is_empty(
    cluster: Cluster, stack: ExitStack
) -> None:
    group = "of one kind"
    first = ConsumerProtocol(cluster.bootstrap, group)
    stack.callback(first.stop)
    share(first)
    classic = Confluent(cluster.bootstrap, group)
    stack.callback(classic.stop)
    until(lambda: classic.errors, lambda: "the classic member hears nothing")
    assert classic.errors[0].name() == "INCONSISTENT_GROUP_PROTOCOL"
    first.stop()
    classic.stop()
    later = Confluent(cluster.bootstrap, group)
    stack.callback(later.stop)
    share(later)
    assert described(cluster, group).type.name == "CLASSIC"
