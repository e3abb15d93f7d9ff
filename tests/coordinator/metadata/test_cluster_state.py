"""Test that the metadata refuses unreadable bytes, and runs an operation once and in slices."""

from typing import cast

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.coordinator.metadata.cluster_model import Changes
from oncelog.coordinator.metadata.cluster_snapshot import SLICE_PARTITIONS, UnreadableSnapshot
from oncelog.coordinator.metadata.cluster_state import (
    OUTCOMES_BYTES_MAX,
    OUTCOMES_MAX,
    ClusterState,
)
from oncelog.coordinator.metadata.commands import (
    BROKER_RESOURCE,
    SET,
    TOPIC_RESOURCE,
    AlterConfigs,
    Command,
    ConfigOperation,
    CreateTopics,
    DeleteTopics,
    FenceBroker,
    MalformedCommand,
    NewTopic,
    ResourceConfigs,
    SetDefaults,
    TopicReference,
    encode_command,
)
from oncelog.runtime.sliced_work import run_to_end

from .command_strategies import any_command
from .metadata_cluster import MetadataCluster, check, check_indexes, topic_id, visible


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=80))
def test_metadata_command_of_unreadable_bytes_raises_and_changes_no_state(data: bytes) -> None:
    cluster = MetadataCluster()
    cluster.topic()
    before = cluster.state.snapshot()
    with pytest.raises(MalformedCommand):
        cluster.state.apply(data, 1000, 3)
    assert cluster.state.snapshot() == before


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (16, []),  # a kind of a newer release
        (3, [2, bytes(16), "boot", "host", 1, None, "", "one field more"]),
    ],
)
def test_metadata_command_of_a_newer_release_raises(kind: int, fields: list) -> None:
    """A node that skipped an unknown command would have other metadata than newer nodes."""
    data = cast(bytes, msgpack.packb([kind, b"", msgpack.packb(fields)]))
    with pytest.raises(MalformedCommand):
        MetadataCluster().state.apply(data, 1000, 3)


@settings(max_examples=120, deadline=None)
@given(st.lists(any_command, max_size=8))
def test_metadata_commands_of_random_content_keep_the_invariants(commands: list[Command]) -> None:
    cluster = MetadataCluster((0, 1))
    cluster.topic("0", (0, 1))
    for command in commands:
        cluster.do(command)  # checks every invariant


@pytest.fixture
def cluster() -> MetadataCluster:
    return MetadataCluster()


def test_metadata_operation_repeated_with_its_id_returns_the_first_outcome(
    cluster: MetadataCluster,
) -> None:
    create = CreateTopics((NewTopic("t", topic_id("t"), 1, 1),))
    first = cluster.do(create, b"operation-1")
    assert first.items[0].error == 0
    again = cluster.do(create, b"operation-1")
    assert again == first and again.index < cluster.index
    delete = DeleteTopics((TopicReference("t"),))
    deleted = cluster.do(delete, b"operation-2")
    assert cluster.do(create, b"operation-1") == first
    assert not cluster.state.topics, "a late copy of the creation does not undo the deletion"
    assert cluster.do(delete, b"operation-2") == deleted
    assert cluster.do(create).items[0].error == 0, "without an id everything is done anew"


def test_metadata_operation_outcomes_are_kept_in_snapshots_and_bounded_in_number(
    cluster: MetadataCluster,
) -> None:
    for i in range(OUTCOMES_MAX + 10):
        cluster.do(SetDefaults({"num.partitions": str(i)}), i.to_bytes(16, "big"))
    restored = ClusterState()
    restored.restore(cluster.state.snapshot())
    assert restored.snapshot() == cluster.state.snapshot()
    last = (OUTCOMES_MAX + 9).to_bytes(16, "big")
    late = encode_command(SetDefaults({"num.partitions": "7"}), last)
    restored.apply(late, 9999, 1)
    assert restored.default_number("num.partitions") == OUTCOMES_MAX + 9
    forgotten = encode_command(SetDefaults({"num.partitions": "7"}), bytes(16))
    restored.apply(forgotten, 10_000, 1)
    assert restored.default_number("num.partitions") == 7
    assert len(cluster.state._outcomes) == OUTCOMES_MAX


def test_metadata_operation_outcomes_are_bounded_in_bytes() -> None:
    cluster = MetadataCluster(())
    names = tuple(TopicReference("x" * 200 + str(i)) for i in range(250))
    for i in range(40):
        cluster.state.apply(encode_command(DeleteTopics(names), bytes([i]) * 16), i, 1)
    assert 1 < len(cluster.state._outcomes) < 40
    assert len(cluster.state.snapshot()) < OUTCOMES_BYTES_MAX + 10_000


def test_metadata_restore_frees_the_replaced_state_in_slices() -> None:
    """Freeing 20,000 replaced topics in one step blocked the loop for 70 ms."""
    cluster = MetadataCluster()
    empty, count = cluster.state.snapshot(), 4 * SLICE_PARTITIONS
    for number in range(count):
        cluster.topic(f"t{number}", (1, 2, 3))
    left = [len(cluster.state.topics) for _ in cluster.state.restore_steps(empty)]
    assert set(left) == {count, 0}
    assert left.count(0) >= count // SLICE_PARTITIONS
    assert cluster.state.snapshot() == empty


def test_metadata_snapshot_restores_the_whole_state() -> None:
    cluster = MetadataCluster(racks={1: "a"})
    cluster.topic("t", (1, 2, 3), (2, 3, 1), configs={"x": "y", "a": "b"})
    cluster.die(3, 2)
    resource = ResourceConfigs(BROKER_RESOURCE, "1", (ConfigOperation("k", SET, "v"),))
    cluster.do(AlterConfigs((resource,)))
    restored = ClusterState()
    restored.restore(cluster.state.snapshot())
    assert visible(restored) == visible(cluster.state)
    assert restored.snapshot() == cluster.state.snapshot()
    check(restored)


@pytest.mark.parametrize("snapshot", [b"", b"\xc0", b"\x93\x01\x02\x03", b"\x91\x02", b"\xc1"])
def test_metadata_snapshot_that_is_unreadable_changes_no_state(
    cluster: MetadataCluster, snapshot: bytes
) -> None:
    before = cluster.state.snapshot()
    with pytest.raises(UnreadableSnapshot):
        cluster.state.restore(snapshot)
    assert cluster.state.snapshot() == before


def test_metadata_listeners_get_the_changes_of_each_command(cluster: MetadataCluster) -> None:
    heard: list[Changes] = []
    cluster.state.on_change(heard.append)
    cluster.topic("t", (1, 2, 3), (2, 3, 1))
    assert heard.pop().topics_created == {"t"}
    cluster.die(1)
    changes = heard.pop()
    assert changes.brokers_changed == {1}
    assert changes.partitions_changed.keys() == {("t", 0), ("t", 1)}
    operation = ConfigOperation("x", SET, "y")
    cluster.do(AlterConfigs((ResourceConfigs(TOPIC_RESOURCE, "t", (operation,)),)))
    assert heard.pop().configs_changed == {"t"}
    cluster.do(AlterConfigs((ResourceConfigs(BROKER_RESOURCE, "", (operation,)),)))
    assert heard.pop().cluster_configs_changed
    revision = cluster.state.revision
    cluster.do(AlterConfigs((ResourceConfigs(BROKER_RESOURCE, "", (operation,)),)))
    assert not heard and cluster.state.revision == revision
    cluster.do(DeleteTopics((TopicReference("t"),)))
    assert heard.pop().topics_deleted == [("t", topic_id("t"))]
    assert not heard


def test_metadata_listeners_get_the_difference_after_a_restore(cluster: MetadataCluster) -> None:
    for name in ("stays", "goes", "moves", "again"):
        cluster.topic(name, (1, 2, 3))
    follower = ClusterState()
    follower.restore(cluster.state.snapshot())
    heard: list[Changes] = []
    follower.on_change(heard.append)
    cluster.do(DeleteTopics((TopicReference("goes"), TopicReference("again"))))
    cluster.do(CreateTopics((NewTopic("again", b"another-id-here!", 1, 1),)))
    cluster.set_isr(1, 2, name="moves")
    cluster.register(3)
    follower.restore(cluster.state.snapshot())
    (changes,) = heard
    assert changes.topics_created == {"again"}
    assert sorted(changes.topics_deleted) == [
        ("again", topic_id("again")),
        ("goes", topic_id("goes")),
    ]
    assert changes.partitions_changed.keys() == {("moves", 0), ("stays", 0)}
    assert changes.brokers_changed == {3}
    follower.restore(cluster.state.snapshot())
    assert len(heard) == 1


def test_metadata_listener_that_raises_does_not_prevent_calls_of_other_listeners() -> None:
    failures: list[Exception] = []
    state = ClusterState(listener_failed=failures.append)
    heard: list[Changes] = []

    def broken(changes: Changes) -> None:
        raise RuntimeError("broken listener")

    state.on_change(broken)
    state.on_change(heard.append)
    result = state.apply(encode_command(SetDefaults({"a": "b"})), 1, 1)
    assert result.error == 0 and len(heard) == 1
    assert [str(error) for error in failures] == ["broken listener"]


@pytest.mark.in_turn
@settings(max_examples=60, deadline=None)
@given(st.lists(any_command, max_size=8))
def test_metadata_snapshot_is_consistent_while_commands_are_applied(
    commands: list[Command],
) -> None:
    cluster = MetadataCluster((0, 1))
    cluster.topic("0", (0, 1))
    cluster.do(CreateTopics((NewTopic("big", topic_id("big"), 300, 2),)))
    before = cluster.state.snapshot()
    steps, pieces = cluster.state.snapshot_steps(), None
    for command in [*commands, DeleteTopics((TopicReference("0"),))] * 4:
        if pieces is None:
            try:
                next(steps)
            except StopIteration as end:
                pieces = end.value
        cluster.do(command)
    assert b"".join(run_to_end(steps) if pieces is None else pieces) == before
    restored = ClusterState()
    restored.restore(before)
    assert restored.snapshot() == before


def test_metadata_snapshot_is_loaded_in_slices_and_replaces_the_state_at_the_end() -> None:
    cluster, replica = MetadataCluster((0, 1)), ClusterState()
    cluster.do(CreateTopics((NewTopic("big", topic_id("big"), 1_000, 2),)))
    count = 0
    for _ in replica.restore_steps(cluster.state.snapshot()):
        assert not replica.topics
        count += 1
    assert count >= 1_000 // SLICE_PARTITIONS
    assert replica.snapshot() == cluster.state.snapshot()


def test_metadata_command_of_3000_partitions_is_applied_in_consistent_steps() -> None:
    cluster = MetadataCluster(())
    for node in (1, 2, 3):
        cluster.start(node)
    state = cluster.state
    create = CreateTopics((NewTopic("big", topic_id("big"), 3_000, 3),))
    count = 0
    for _ in state.apply_steps(encode_command(create), 100):
        assert len(state.topics["big"].partitions if "big" in state.topics else ()) in (0, 3_000)
        count += 1
    assert count > 50
    changes: list[Changes] = []
    state.on_change(changes.append)
    steps = state.apply_steps(encode_command(FenceBroker(1, cluster.epoch(1))), 101)
    for _ in range(6):
        next(steps)
        check_indexes(state)
        assert changes == []
    for _ in steps:
        assert len(state.topics["big"].partitions) == 3_000
    check_indexes(state)
    assert changes


def test_metadata_version_changes_with_each_step_of_a_command() -> None:
    """A value that was read before a step must be recognized as outdated after the step."""
    cluster = MetadataCluster((1, 2, 3))
    state, revision = cluster.state, cluster.state.revision
    create = CreateTopics((NewTopic("big", topic_id("big"), 3_000, 3),))
    versions = [state.version]
    for _ in state.apply_steps(encode_command(create), 100):
        versions.append(state.version)
        assert state.revision == revision
    versions.append(state.version)
    assert len(set(versions)) == len(versions) > 50
    assert state.revision == revision + 1
    other = ClusterState()
    before = other.version
    other.restore(state.snapshot())
    assert other.version > before


def test_topic_is_deleted_from_the_metadata_in_one_step() -> None:
    cluster = MetadataCluster((1, 2, 3))
    state = cluster.state
    for name in ("big", "other"):
        cluster.do(CreateTopics((NewTopic(name, topic_id(name), 2_000, 3),)))
    command = DeleteTopics((TopicReference("big"), TopicReference("other")))
    steps = state.apply_steps(encode_command(command), 100)
    left = []
    for _ in steps:
        check_indexes(state)
        left.append([len(topic.partitions) for topic in state.topics.values()])
    assert left == [[2_000], []]
