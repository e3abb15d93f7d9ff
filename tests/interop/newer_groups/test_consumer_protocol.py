"""Test consumers with group.protocol=consumer (KIP-848), as an application uses them.

The consumers are of librdkafka, and with -m soak also of franz-go where Go is installed. With that
mark the tests also run on Apache Kafka 4.4, as a check of the tests.
"""

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from oncelog.client import BlockingAdmin
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.wire.errors import TopicAlreadyExists

from ...waiting import until
from ..group_members import PARTITIONS, TOPIC, Confluent, ConsumerProtocol, Member, share
from ..readers import WITH_LIBRARIES, fill, read_to_end
from .members import Copier, FranzGo, JavaClassic, compiled

pytestmark = WITH_LIBRARIES
RECORDS = 10  # a partition
ALL = frozenset(range(PARTITIONS))
COPIED = 30  # records of a partition
Make = Callable[..., Member]
GO = [
    pytest.mark.kafka,  # Go's client is downloaded, as Kafka is
    pytest.mark.soak,
    pytest.mark.skipif(shutil.which("go") is None, reason="no go"),
]


@pytest.fixture(scope="session")
def franz_go(tmp_path_factory: pytest.TempPathFactory) -> type[FranzGo]:
    FranzGo.program = compiled(tmp_path_factory.mktemp("go"))
    return FranzGo


@pytest.fixture(params=["librdkafka", pytest.param("franz-go", marks=GO)])
def library(request: pytest.FixtureRequest) -> Any:
    """Return the class for members of the library under test."""
    return (
        ConsumerProtocol if request.param == "librdkafka" else request.getfixturevalue("franz_go")
    )


@pytest.fixture(scope="module")
def bootstrap(newer_groups: str) -> str:
    """Create the topic with records, and return the cluster's bootstrap line."""
    new_topic(newer_groups, TOPIC)
    produce(newer_groups)
    return newer_groups


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return request.node.name


@pytest.fixture
def member(bootstrap: str, group: str, library: Any, stack: ExitStack) -> Make:
    """Return a function that creates a member of the test's group and stops it after the test."""

    def make(**settings: Any) -> Member:
        made = library(bootstrap, group, **{"subscription": TOPIC, **settings})
        stack.callback(made.stop)
        return made

    return make


def new_topic(bootstrap: str, name: str) -> None:
    with BlockingAdmin(bootstrap) as admin:
        try:
            admin.create_topic(name, partitions=PARTITIONS, replication_factor=-1)
        except TopicAlreadyExists:
            return


def produce(bootstrap: str) -> None:
    fill(bootstrap, TOPIC, [(None, b"%d" % i, p) for i in range(RECORDS) for p in ALL])


def described(bootstrap: str, group: str) -> Any:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return admin.describe_consumer_groups([group])[group].result(20)


@pytest.mark.in_turn
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_consumer_group_with_joining_and_leaving_members_divides_its_partitions(
    bootstrap: str, group: str, member: Make, assignor: str
) -> None:
    first = member(assignor=assignor)
    share(first)
    until(
        lambda: {*first.read} >= {(p, i) for p in ALL for i in range(RECORDS)},
        lambda: f"read: {sorted(first.read)}",
    )
    second, third = member(assignor=assignor), member(assignor=assignor)
    share(first, second, third)
    state = described(bootstrap, group)
    assert (state.state.name, state.type.name) == ("STABLE", "CONSUMER")
    assert sorted(len(each.assignment.topic_partitions) for each in state.members) == [1, 1, 2]
    second.stop()
    share(first, third)
    first.stop()
    share(third)
    assert third.committed or first.committed


def test_static_member_that_restarts_gets_its_partitions_back(
    bootstrap: str, group: str, stack: ExitStack
) -> None:
    """The member uses librdkafka. A franz-go member rejoins as a new one, also on Apache Kafka."""

    def member(instance: str) -> Member:
        made = ConsumerProtocol(bootstrap, group, instance=instance)
        stack.callback(made.stop)
        return made

    one, two = member("one"), member("two")
    share(one, two)
    given, changes = two.assigned, len(one.history)
    two.stop()
    again = member("two")
    until(lambda: again.assigned == given, lambda: f"{again.history}, not {given}")
    assert len(one.history) == changes, "the other one was left alone"


def test_consumer_group_with_a_subscribed_pattern_gets_matching_topics(member: Make) -> None:
    share(member(subscription=f"^{TOPIC[:-1]}.$"))


@pytest.mark.in_turn
def test_exactly_once_copy_with_joining_and_leaving_members_is_exact(
    bootstrap: str, group: str, library: Any, stack: ExitStack
) -> None:
    """Offsets are committed in transactions, and the coordinator checks the member epochs."""
    source, sink = f"{library.__name__}-source", f"{library.__name__}-sink"
    for name in (source, sink):
        new_topic(bootstrap, name)

    def produced(first: int) -> None:
        values = [b"%d" % (first + i) for i in range(COPIED * PARTITIONS)]
        fill(bootstrap, source, [(None, v, i % PARTITIONS) for i, v in enumerate(values)])

    def copier() -> Member:
        kind = Copier if library is ConsumerProtocol else library
        made = kind(bootstrap, group, sink=sink, subscription=source)
        stack.callback(made.stop)
        return made

    first = copier()
    share(first)
    for number in range(3):
        produced(number * COPIED * PARTITIONS)
        later = copier()
        share(first, later)
        first.stop()
        first = later
    wanted = range(3 * COPIED * PARTITIONS)
    copied: list[int] = []

    def is_whole() -> bool:
        copied[:] = [int(value) for _, value in read_to_end(bootstrap, sink, PARTITIONS)]
        return len(copied) >= len(wanted)

    until(is_whole, lambda: f"{len(copied)} of {len(wanted)} are copied")
    assert sorted(copied) == list(wanted)
    assert described(bootstrap, group).type.name == "CONSUMER"


def test_consumer_group_with_a_killed_coordinator_continues(
    newer_cluster: Cluster, stack: ExitStack
) -> None:
    group, bootstrap = "outlives", newer_cluster.bootstrap
    new_topic(bootstrap, TOPIC)
    members = [ConsumerProtocol(bootstrap, group) for _ in range(3)]
    for member in members:
        stack.callback(member.stop)
    share(*members)
    members.pop().stop()
    killed = newer_cluster.kill(f"group:{group}")
    stack.callback(newer_cluster.start, killed)
    produce(bootstrap)
    share(*members)
    commits = [member.committed for member in members]
    produce(bootstrap)
    until(
        lambda: all(m.committed > before for m, before in zip(members, commits, strict=True)),
        lambda: f"{commits} -> {[member.committed for member in members]}",
    )


JAVA = pytest.mark.kafka
Owners = dict[str, list[int]]


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("third", "cooperative"),
    [
        (Confluent, False),
        pytest.param(JavaClassic, False, marks=JAVA),
    ],
)
def test_classic_group_joined_by_a_new_protocol_member_is_converted_and_converted_back(
    bootstrap: str, group: str, stack: ExitStack, third: type[Member], cooperative: bool
) -> None:
    """The expected group types and owners are those that Apache Kafka 4.4 has.

    With the sticky assignor only the number of partitions of each member is compared. The range
    assignor orders members by their ids, which begin with the client id.
    """
    members: dict[str, Member] = {}

    def comes(label: str, kind: Callable[..., Member], **settings: Any) -> None:
        members[label] = kind(bootstrap, group, client=f"!{label}", **settings)
        stack.callback(members[label].stop)

    def goes(label: str) -> None:
        members.pop(label).stop()

    def is_shared(kind: str, owners: Owners, *, by_range: bool) -> None:
        """Assert that the group has this type and these owners, and each member reads records.

        Without `by_range` only the number of partitions of each member is compared.
        """
        share(*members.values())
        given = {label: sorted(member.assigned) for label, member in members.items()}
        found = (given, owners) if by_range else (_sizes(given), _sizes(owners))
        assert found[0] == found[1]
        assert described(bootstrap, group).type.name == kind
        before = {label: len(member.read) for label, member in members.items()}
        produce(bootstrap)
        until(
            lambda: all(len(m.read) > before[label] for label, m in members.items()),
            lambda: f"{before} -> { {label: len(m.read) for label, m in members.items()} }",
        )

    # The leader is not librdkafka's with the sticky assignor: that keeps bytes of its own in
    # assignments, for which an upgrade is refused, by Kafka, too.
    for label, kind in {"c": third, "a": Confluent, "b": Confluent}.items():
        comes(label, kind, cooperative=cooperative)
        share(*members.values())
    is_shared("CLASSIC", {"a": [0, 1], "b": [2], "c": [3]}, by_range=not cooperative)
    comes("d", ConsumerProtocol, assignor="range")
    is_shared("CONSUMER", {"a": [0], "b": [1], "c": [2], "d": [3]}, by_range=True)
    goes("b")
    is_shared("CONSUMER", {"a": [0, 1], "c": [2], "d": [3]}, by_range=True)
    goes("d")
    is_shared("CLASSIC", {"a": [0, 1], "c": [2, 3]}, by_range=not cooperative)


def _sizes(owners: Owners) -> list[int]:
    return sorted(map(len, owners.values()))
