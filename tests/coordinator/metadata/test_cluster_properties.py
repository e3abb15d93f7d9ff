"""Test invariants, equal replicas and exact snapshots of the metadata after random commands."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.coordinator.metadata.cluster_state import ClusterState
from oncelog.coordinator.metadata.commands import (
    BROKER_RESOURCE,
    PREFERRED,
    SET,
    TOPIC_RESOURCE,
    UNCLEAN,
    AllocateProducerIds,
    AlterConfigs,
    AlterPartition,
    AlterPartitionReassignments,
    BeginControlledShutdown,
    Command,
    ConfigOperation,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    FenceBroker,
    IsrProposal,
    MorePartitions,
    NewTopic,
    Reassignment,
    RegisterBroker,
    ResourceConfigs,
    SetDefaults,
    TopicReference,
    UnfenceBroker,
    encode_command,
)

from .metadata_cluster import MetadataCluster, visible

NODES = (1, 2, 3, 4)
NAMES = ("a", "b", "c")
steps = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 2**16)), min_size=5, max_size=80)


def command_of(cluster: MetadataCluster, kind: int, salt: int) -> Command:
    """Return a random command of this kind, which the metadata mostly accepts."""
    draw = random.Random(salt)
    state = cluster.state
    node = draw.choice(NODES)
    broker = state.brokers.get(node)
    epoch = (broker.broker_epoch if broker else 0) - (draw.random() < 0.05)
    keys = [
        (topic.name, i) for topic in state.topics.values() for i in range(len(topic.partitions))
    ]
    name, index = draw.choice(keys) if keys else ("a", 0)
    partition = state.partition(name, index)
    replicas = tuple(draw.sample(NODES, draw.randint(1, 4)))
    setting = draw.choice(
        [
            ConfigOperation("min.insync.replicas", SET, str(draw.randint(1, 3))),
            ConfigOperation("unclean.leader.election.enable", SET, draw.choice(["true", "false"])),
        ]
    )
    match kind:
        case 0 | 1:
            boot = f"boot-{draw.randint(0, 2)}"
            expected = draw.choice([None, epoch if broker else -1])
            incarnation = draw.randbytes(16)
            return RegisterBroker(
                node,
                incarnation,
                boot,
                "host",
                9000 + node,
                expected_broker_epoch=expected,
                directory_id=draw.choice((b"", b"directory-0", b"directory-0", b"directory-1")),
            )
        case 2 | 3 | 4:
            return UnfenceBroker(node, epoch)
        case 5 | 6:
            return FenceBroker(node, epoch)
        case 7:
            return BeginControlledShutdown(node, epoch)
        case 8:
            new = NewTopic(
                draw.choice(NAMES), draw.randbytes(16), draw.randint(1, 3), draw.randint(1, 3)
            )
            return CreateTopics((new,))
        case 9:
            return CreatePartitions((MorePartitions(name, draw.randint(1, 5)),))
        case 10 if draw.random() < 0.3:
            return DeleteTopics((TopicReference(name),))
        case 10:
            return AllocateProducerIds(node, epoch)
        case 11:
            return ElectLeaders(
                draw.choice([PREFERRED, UNCLEAN]), draw.choice([None, ((name, index),)])
            )
        case 12:
            wanted = draw.choice([None, replicas, replicas])
            return AlterPartitionReassignments((Reassignment(name, index, wanted),))
        case 13:
            where = draw.choice([(TOPIC_RESOURCE, name), (BROKER_RESOURCE, "")])
            return AlterConfigs((ResourceConfigs(*where, (setting,)),))
        case 14 if draw.random() < 0.3:
            return SetDefaults({setting.key: str(setting.value)})
        case _ if partition is not None:
            leader = state.brokers.get(partition.leader)
            members = [
                n for n in partition.replicas if n == partition.leader or draw.random() < 0.7
            ]
            proposal = IsrProposal(
                state.topics[name].topic_id,
                index,
                partition.leader_epoch,
                partition.partition_epoch - (draw.random() < 0.05),
                tuple((n, state.brokers[n].broker_epoch) for n in members),
            )
            return AlterPartition(
                partition.leader, leader.broker_epoch if leader else -1, (proposal,)
            )
        case _:
            return FenceBroker(node, epoch)


@settings(max_examples=120, deadline=None)
@given(steps, st.integers(0, 60))
def test_metadata_replicas_after_random_commands_are_equal_and_valid(
    drawn: list[tuple[int, int]], snapshot_after: int
) -> None:
    cluster = MetadataCluster(NODES)
    cluster.topic("a", (1, 2, 3), (2, 3, 4))
    replica = ClusterState()
    replica.restore(cluster.state.snapshot())
    for number, (kind, salt) in enumerate(drawn):
        command = command_of(cluster, kind, salt)
        repeats = kind >= 8 and salt % 3 == 0  # the same draw again is the same operation again
        operation_id = bytes([kind, *salt.to_bytes(4)]) if repeats else b""
        expected = cluster.do(command, operation_id)  # checks the invariants
        assert replica.apply(encode_command(command, operation_id), cluster.index, 7) == expected
        if number == snapshot_after:
            restored = ClusterState()
            restored.restore(replica.snapshot())
            assert visible(restored) == visible(replica)
            replica = restored
    assert replica.snapshot() == cluster.state.snapshot()
    assert visible(replica) == visible(cluster.state)
