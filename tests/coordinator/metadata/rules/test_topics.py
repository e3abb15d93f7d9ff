"""Test commands that create, extend and delete topics, and all their errors."""

import pytest

from oncelog.coordinator.metadata.commands import (
    ITEMS_MAX,
    BeginControlledShutdown,
    Command,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    TopicReference,
    encode_command,
)
from oncelog.coordinator.metadata.results import Item, Result
from oncelog.runtime.steps import Steps
from oncelog.wire.errors import ErrorCode

from ....node.counted_calls import calls_of
from ..metadata_cluster import MetadataCluster, topic_id

ID = bytes(16)


@pytest.fixture
def cluster() -> MetadataCluster:
    return MetadataCluster()


def create(cluster: MetadataCluster, topic: NewTopic, *, validate_only: bool = False) -> Item:
    (item,) = cluster.do(CreateTopics((topic,), validate_only)).items
    assert (item.error == 0) != bool(item.message)
    return item


def test_topic_replicas_are_placed_when_the_command_is_applied(cluster: MetadataCluster) -> None:
    item = create(cluster, NewTopic("t", topic_id("t"), 6, 3, configs={"a": "b"}))
    assert (item.name, item.partition_count, item.replication_factor) == ("t", 6, 3)
    assert item.topic_id == topic_id("t")
    topic = cluster.state.topics["t"]
    assert [p.leader for p in topic.partitions] == [1, 2, 3, 1, 2, 3]
    assert all(p.isr == p.replicas and p.leader_epoch == 0 for p in topic.partitions)
    assert topic.configs == {"a": "b"} and not topic.is_internal
    create(cluster, NewTopic("u", topic_id("u"), 1, 1))
    create(cluster, NewTopic("v", topic_id("v"), 1, 1))
    leaders = [cluster.partition(name).leader for name in ("u", "v")]
    assert leaders == [1, 2], "small topics go round the brokers, too"


def test_topic_without_count_and_factor_gets_the_cluster_defaults(
    cluster: MetadataCluster,
) -> None:
    item = create(cluster, NewTopic("t", topic_id("t")))
    assert (item.partition_count, item.replication_factor) == (3, 2)


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (NewTopic("", topic_id("x"), 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(".", topic_id("x"), 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("..", topic_id("x"), 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("a/b", topic_id("x"), 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("a\n", topic_id("x"), 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("ä", topic_id("x"), 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("a" * 250, topic_id("x"), 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("is.here", topic_id("x"), 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("is_here", topic_id("x"), 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic("__cluster_metadata", topic_id("x"), 1, 1), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", bytes(16), 1, 1), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", b"short", 1, 1), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", topic_id("is_here"), 1, 1), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", topic_id("x"), 0, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", topic_id("x"), -2, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", topic_id("x"), 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", topic_id("x"), 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", topic_id("x"), 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", topic_id("x"), 1, 2**15), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", topic_id("x"), 10_001, 1), ErrorCode.POLICY_VIOLATION),
        (NewTopic("t", topic_id("x"), 1, -1, ((0, (1,)),)), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", topic_id("x"), -1, 1, ((0, (1,)),)), ErrorCode.INVALID_REQUEST),
        (
            NewTopic("t", topic_id("x"), assignments=((1, (1,)),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            NewTopic("t", topic_id("x"), assignments=((0, (1,)), (0, (2,)))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            NewTopic("t", topic_id("x"), assignments=((0, ()),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            NewTopic("t", topic_id("x"), assignments=((0, (1, 1)),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            NewTopic("t", topic_id("x"), assignments=((0, (1, 9)),)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            NewTopic("t", topic_id("x"), assignments=((0, (1, 2)), (1, (1,)))),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_topic_with_an_invalid_definition_is_refused_with_a_clear_message(
    cluster: MetadataCluster, topic: NewTopic, error: ErrorCode
) -> None:
    cluster.topic("is_here", (1,))
    before = cluster.state.snapshot()
    assert create(cluster, topic).error == error
    assert cluster.state.snapshot() == before


def test_topics_of_one_create_request_have_independent_outcomes(cluster: MetadataCluster) -> None:
    topics = (
        NewTopic("good", topic_id("1"), 1, 1),
        NewTopic("twice", topic_id("2"), 1, 1),
        NewTopic("bad!", topic_id("3"), 1, 1),
        NewTopic("twice", topic_id("4"), 1, 1),
        NewTopic("also.good", topic_id("5"), 1, 1),
    )
    items = cluster.do(CreateTopics(topics)).items
    assert [(item.name, item.error) for item in items] == [
        ("good", 0),
        ("twice", ErrorCode.INVALID_REQUEST),
        ("bad!", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("also.good", 0),
    ]
    assert sorted(cluster.state.topics) == ["also.good", "good"]


def test_topic_creation_with_validate_only_creates_no_topic(cluster: MetadataCluster) -> None:
    before = cluster.state.snapshot()
    item = create(cluster, NewTopic("t", topic_id("t"), 6, 3), validate_only=True)
    assert item.partition_count == 6
    assert cluster.state.snapshot() == before
    cluster.topic("t", (1,))
    more = CreatePartitions((MorePartitions("t", 5),), validate_only=True)
    assert cluster.do(more).items[0].error == 0
    assert len(cluster.state.topics["t"].partitions) == 1


def test_topic_replicas_are_placed_on_fenced_brokers_only_if_unavoidable(
    cluster: MetadataCluster,
) -> None:
    cluster.die(1)
    create(cluster, NewTopic("two", topic_id("two"), 8, 2))
    assert not any(1 in p.replicas for p in cluster.state.topics["two"].partitions)
    create(cluster, NewTopic("three", topic_id("three"), 8, 3))
    for partition in cluster.state.topics["three"].partitions:
        assert partition.replicas[2] == 1 and partition.isr == partition.replicas[:2]
    cluster.do(BeginControlledShutdown(2, cluster.epoch(2)))
    item = create(cluster, NewTopic("four", topic_id("four"), 1, 3))
    assert item.error == ErrorCode.INVALID_REPLICATION_FACTOR  # a stopping broker gets nothing
    cluster.die(2, 3)
    item = create(cluster, NewTopic("five", topic_id("five"), 1, 1))
    assert item.error == ErrorCode.INVALID_REPLICATION_FACTOR
    assigned = NewTopic("six", topic_id("six"), assignments=((0, (1, 2)),))
    assert create(cluster, assigned).error == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_topic_is_extended_by_create_partitions(cluster: MetadataCluster) -> None:
    cluster.topic("t", (1, 2))
    item = extend(cluster, MorePartitions("t", 4))
    assert item.error == 0 and item.partition_count == 4
    assert all(len(p.replicas) == 2 for p in cluster.state.topics["t"].partitions)
    assert extend(cluster, MorePartitions("t", 5, ((3, 1),))).error == 0
    assert cluster.partition("t", 4).replicas == (3, 1)


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (MorePartitions("none", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (MorePartitions("t", 1), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("t", 0), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("t", 20_000), ErrorCode.POLICY_VIOLATION),
        (MorePartitions("t", 3, ((1, 2),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("t", 2, ((1,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("t", 2, ((1, 1),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("t", 2, ((1, 9),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("t", 2, ()), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_topic_extension_that_is_invalid_is_refused(
    cluster: MetadataCluster, wanted: MorePartitions, error: ErrorCode
) -> None:
    cluster.topic("t", (1, 2))
    assert extend(cluster, wanted).error == error
    assert len(cluster.state.topics["t"].partitions) == 1


def test_topic_extended_twice_in_one_request_is_refused(cluster: MetadataCluster) -> None:
    cluster.topic("t", (1,))
    result = cluster.do(CreatePartitions((MorePartitions("t", 2), MorePartitions("t", 3))))
    assert [item.error for item in result.items] == [ErrorCode.INVALID_REQUEST]


def test_topics_are_deleted_by_name_or_by_id(cluster: MetadataCluster) -> None:
    cluster.topic("a.b", (1, 2))
    cluster.topic("c", (2,))
    by_id = TopicReference(topic_id=topic_id("c"))
    items = cluster.do(DeleteTopics((TopicReference("a.b"), by_id))).items
    assert [(i.name, i.topic_id, i.error) for i in items] == [
        ("a.b", topic_id("a.b"), 0),
        ("c", topic_id("c"), 0),
    ]
    assert not cluster.state.topics and cluster.state.topic_by_id(topic_id("c")) is None
    assert not cluster.state.leads_any(1) and not cluster.state.leads_any(2)
    cluster.topic("a_b")  # the name of its metrics is free again


@pytest.mark.parametrize(
    ("references", "errors"),
    [
        ((TopicReference("x"),), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)),
        ((TopicReference(topic_id=b"x" * 16),), (ErrorCode.UNKNOWN_TOPIC_ID,)),
        ((TopicReference(),), (ErrorCode.INVALID_REQUEST,)),
        ((TopicReference(topic_id=bytes(16)),), (ErrorCode.INVALID_REQUEST,)),
        ((TopicReference("t", topic_id("t")),), (ErrorCode.INVALID_REQUEST,)),
        ((TopicReference("t"), TopicReference("t")), (ErrorCode.INVALID_REQUEST,) * 2),
        (
            (TopicReference("t"), TopicReference(topic_id=topic_id("t"))),
            (ErrorCode.INVALID_REQUEST,) * 2,
        ),
    ],
)
def test_topic_deletion_that_is_invalid_is_refused(
    cluster: MetadataCluster, references: tuple, errors: tuple[ErrorCode, ...]
) -> None:
    cluster.topic("t")
    items = cluster.do(DeleteTopics(references)).items
    assert tuple(item.error for item in items) == errors
    assert all(item.message for item in items)
    assert "t" in cluster.state.topics


def test_topic_with_600_partitions_is_created_by_one_small_command(
    cluster: MetadataCluster,
) -> None:
    command = encode_command(CreateTopics((NewTopic("t", topic_id("t"), 600, 3),)))
    assert len(command) < 100
    calls = calls_of(lambda: cluster.state.apply(command, 100, 1))
    assert len(cluster.state.topics["t"].partitions) == 600
    assert calls < 600 * 40


@pytest.mark.parametrize(
    "command",
    [
        CreateTopics(tuple(NewTopic(f"?{n}", topic_id(f"?{n}"), 1, 1) for n in range(ITEMS_MAX))),
        CreatePartitions(tuple(MorePartitions(f"unknown-{n}", 2, None) for n in range(ITEMS_MAX))),
        DeleteTopics(tuple(TopicReference(f"unknown-{n}") for n in range(ITEMS_MAX))),
    ],
    ids=lambda command: type(command).__name__,
)
def test_metadata_command_with_many_refused_topics_is_applied_in_short_steps(
    cluster: MetadataCluster, command: Command
) -> None:
    results: list[Result] = []

    def apply() -> Steps[None]:
        results.append((yield from cluster.state.apply_steps(encode_command(command, ID), 100)))
        yield

    steps, calls = apply(), list[int]()
    while not results:
        calls.append(calls_of(lambda: next(steps)))
    (result,) = results
    assert len(result.items) == ITEMS_MAX and all(item.error for item in result.items)
    assert max(calls) < 25 * ITEMS_MAX, calls


def extend(cluster: MetadataCluster, wanted: MorePartitions) -> Item:
    (item,) = cluster.do(CreatePartitions((wanted,))).items
    assert (item.error == 0) != bool(item.message)
    return item
