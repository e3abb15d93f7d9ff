"""Test the encoding, the size limits and the splitting of metadata commands."""

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.coordinator.metadata.commands import (
    COMMAND_BYTES_MAX,
    ITEMS_MAX,
    KINDS,
    AlterClientQuotas,
    AlterPartition,
    AlterPartitionReassignments,
    Command,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    FenceBroker,
    IsrProposal,
    MalformedCommand,
    MorePartitions,
    NewTopic,
    Reassignment,
    RegisterBroker,
    TopicReference,
    decode_command,
    encode_command,
    split_command,
)
from oncelog.coordinator.metadata.results import (
    Item,
    Result,
    decode_result,
    encode_result,
    merge_results,
)
from oncelog.coordinator.quotas.quota_table import QuotaChange
from oncelog.replication.peer.codec import encode_message
from oncelog.runtime.steps import run_to_end
from oncelog.wire.errors import PolicyViolation

from .command_strategies import any_command, values_of


@settings(deadline=None)
@given(any_command, st.sampled_from([b"", bytes(16)]))
def test_metadata_command_is_decoded_as_encoded(command: Command, operation_id: bytes) -> None:
    assert decode_command(encode_command(command, operation_id)) == (command, operation_id)


def test_broker_registration_in_an_old_journal_has_no_expected_broker_epoch() -> None:
    registration = RegisterBroker(1, bytes(16), "boot", "host", 9092, None, "cluster")
    kind, operation_id, values = msgpack.unpackb(encode_command(registration))
    old = msgpack.packb([kind, operation_id, msgpack.packb(msgpack.unpackb(values)[:7])])
    assert old is not None
    assert decode_command(old) == (registration, b"")
    assert registration.expected_broker_epoch is None


VALUES = (("producer_byte_rate", 1000.0),)
REGISTRATION = (1, bytes(16), "boot", "host", 9092, None, "cluster", -1, bytes(16))


@pytest.mark.parametrize(
    ("command", "fields"),
    [
        (AlterClientQuotas((QuotaChange("alice", None, VALUES),)), [[["alice", None, VALUES]]]),
        (RegisterBroker(*REGISTRATION), REGISTRATION),
    ],
    ids=["a quota of a user", "a broker without endpoints"],
)
def test_metadata_command_without_a_later_field_has_the_bytes_of_older_releases(
    command: Command, fields: object
) -> None:
    """Nodes of older releases cannot read a field that was added later, and end at each start."""
    _, _, encoded = msgpack.unpackb(encode_command(command, bytes(16)))
    assert encoded == msgpack.packb(fields)


def test_quota_change_of_an_address_is_encoded_with_its_address() -> None:
    of_both = QuotaChange("alice", None, VALUES), QuotaChange(None, None, VALUES, "10.0.0.1")
    command = AlterClientQuotas(of_both)
    assert decode_command(encode_command(command)) == (command, b"")
    without = encode_command(AlterClientQuotas((QuotaChange("alice", None, VALUES),)))
    kind, operation_id, encoded = msgpack.unpackb(without)
    (changes,) = msgpack.unpackb(encoded)
    four_values = msgpack.packb([[[*each[:3], None] for each in changes]])
    journal = msgpack.packb([kind, operation_id, four_values])
    assert journal is not None
    assert decode_command(journal) == decode_command(without), "written by a development version"


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_metadata_command_of_random_bytes_is_refused_unless_they_begin_like_a_command(
    data: bytes,
) -> None:
    try:
        decode_command(data)
    except MalformedCommand:
        return
    assert data[0] == 0x93


@pytest.mark.parametrize(
    "values",
    [
        None,
        [],
        [5, b""],
        [5, b"", b"", b""],
        [99, b"", b""],
        ["5", b"", encode_message(FenceBroker(1, 2))],
        [5, "", encode_message(FenceBroker(1, 2))],
        [5, b"", "fields"],
        [5, b"", msgpack.packb([1])],
        [5, b"", msgpack.packb([1, 2, 3])],
        [5, b"", msgpack.packb([True, 2])],
        [5, b"", msgpack.packb([1.0, 2])],
        [5, b"", msgpack.packb({"node_id": 1})],
        [[5], b"", b""],
    ],
)
def test_metadata_command_of_the_wrong_shape_is_refused(values: object) -> None:
    with pytest.raises(MalformedCommand):
        decode_command(msgpack.packb(values))


LONG = [
    CreateTopics(tuple(NewTopic(f"t{i}", bytes(16), 1, 1) for i in range(4000))),
    DeleteTopics(tuple(TopicReference(f"topic-{i}") for i in range(9000))),
    CreatePartitions(tuple(MorePartitions(f"topic-{i}", 7) for i in range(9000))),
    AlterPartition(
        1, 2, tuple(IsrProposal(bytes(16), i, 5, 6, ((1, 100), (2, 200))) for i in range(3000))
    ),
    ElectLeaders(0, tuple(("topic", i) for i in range(12000))),
    AlterPartitionReassignments(tuple(Reassignment("topic", i, (1, 2, 3)) for i in range(9000))),
]


@pytest.mark.parametrize("command", LONG, ids=lambda command: type(command).__name__)
def test_metadata_command_that_is_long_is_split_into_short_commands(command: Command) -> None:
    with pytest.raises(PolicyViolation):
        encode_command(command)
    parts = run_to_end(split_command(command))
    assert len(parts) > 1
    name = type(command).__match_args__
    items = next(n for n in name if isinstance(getattr(command, n), tuple))
    assert sum((getattr(part, items) for part in parts), ()) == getattr(command, items)
    assert all(len(encode_command(part, bytes(16))) <= COMMAND_BYTES_MAX for part in parts)


def test_metadata_command_of_many_small_items_is_split_in_steps() -> None:
    command = DeleteTopics(tuple(TopicReference(name=f"t{i}") for i in range(2_000)))
    assert len(encode_command(command)) < COMMAND_BYTES_MAX
    assert sum(1 for _ in split_command(command)) == 8
    parts = run_to_end(split_command(command))
    topics = [part.topics for part in parts if isinstance(part, DeleteTopics)]
    assert sum(topics, ()) == command.topics
    assert max(map(len, topics)) == ITEMS_MAX


def test_metadata_command_with_one_item_too_long_is_refused_with_a_clear_message() -> None:
    assignments = tuple((i, (1, 2, 3)) for i in range(20_000))
    huge = CreateTopics((NewTopic("t", bytes(16), assignments=assignments),))
    with pytest.raises(PolicyViolation, match=r"takes \d+ bytes in the metadata log"):
        run_to_end(split_command(huge))
    few = CreateTopics((NewTopic("t", bytes(16), assignments=assignments[:5000]),))
    assert run_to_end(split_command(few)) == [few]


def test_metadata_command_that_is_empty_or_indivisible_is_not_split() -> None:
    for command in (CreateTopics(()), ElectLeaders(0), FenceBroker(1, 2)):
        assert run_to_end(split_command(command)) == [command]


@settings(deadline=None)
@given(values_of(Result))
def test_metadata_result_is_decoded_as_encoded(result: Result) -> None:
    assert decode_result(encode_result(result)) == result


def test_metadata_results_of_a_split_command_are_merged() -> None:
    first = Result(items=(Item(name="a"),), index=4)
    second = Result(items=(Item(name="b"),), index=6)
    assert merge_results([first, second]) == Result(items=(Item(name="a"), Item(name="b")), index=6)
    failed = Result(error=77, message="stale", index=5)
    merged = merge_results([first, failed])
    assert (merged.error, merged.message, merged.items) == (77, "stale", first.items)


def test_metadata_command_numbers_never_change() -> None:
    assert " ".join(cls.__name__ for cls in KINDS.values()) == (
        "SetClusterId SetDefaults RegisterBroker UnfenceBroker FenceBroker BeginControlledShutdown"
        " CreateTopics DeleteTopics CreatePartitions AlterConfigs AlterPartition ElectLeaders"
        " AlterPartitionReassignments AllocateProducerIds FailReplicas AdvanceClock CreateAcls"
        " DeleteAcls AlterScramCredentials AlterClientQuotas UpdateFeatures UnregisterBroker"
    )
