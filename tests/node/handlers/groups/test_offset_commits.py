"""Test OffsetCommit and TxnOffsetCommit, with a coordinator that the test controls."""

import pytest

from oncelog.coordinator.groups.records import (
    OffsetValue,
    decode_offset_value,
    encode_offset_key,
    encode_offset_value,
)
from oncelog.node.handlers.groups import offset_commits
from oncelog.wire.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    FencedInstanceId,
    IllegalGeneration,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicasAfterAppend,
    RebalanceInProgress,
    UnknownMemberId,
)
from oncelog.wire.record_batch import decode_header
from oncelog.wire.records import Record, decode_batch, encode_batch

from ...fake_broker import CLOSED
from ...fake_groups import OFFSETS_TOPIC, GroupBroker

COMMIT, TXN_COMMIT = 8, 28
ZERO_ID = bytes(16)


@pytest.fixture
def broker() -> GroupBroker:
    return GroupBroker()


def partition(index: int, offset: int = 5, **more: object) -> dict[str, object]:
    return {"partition_index": index, "committed_offset": offset, "committed_metadata": ""} | more


def topics(*partitions: dict[str, object], name: str = "t", **more: object) -> list[dict]:
    return [{"name": name, "partitions": list(partitions or (partition(0),))} | more]


def commit(broker: GroupBroker, version: int = 9, **values: object) -> dict[object, int]:
    """Send OffsetCommit, and return the error code by topic and partition."""
    question = {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": topics()}
    return errors(broker.ask(COMMIT, version, question | values))


def txn_commit(broker: GroupBroker, version: int = 3, **values: object) -> dict[object, int]:
    return errors(broker.ask(TXN_COMMIT, version, txn_question(**values)))


def txn_question(**values: object) -> dict[str, object]:
    return {
        "transactional_id": "x",
        "group_id": "g",
        "producer_id": 7,
        "producer_epoch": 0,
        "generation_id": -1,
        "topics": topics(),
    } | values


def errors(answer: object) -> dict[object, int]:
    return {
        (getattr(topic, "name", None) or topic.topic_id, each.partition_index): each.error_code
        for topic in answer.topics  # type: ignore[attr-defined]
        for each in topic.partitions
    }


# -- plain commits


@pytest.mark.parametrize("version", range(2, 11))
def test_offset_commit_of_every_version_is_stored(broker: GroupBroker, version: int) -> None:
    asked = topics(partition(1, 42, committed_leader_epoch=3, committed_metadata="m"))
    asked[0]["topic_id"] = broker.ids["t"]
    where = ("t" if version < 10 else broker.ids["t"], 1)
    assert commit(broker, version, topics=asked, retention_time=-1) == {where: 0}
    value = broker.shard.offsets.fetch("g", "t", 1)
    assert value is not None
    assert (value.offset, value.metadata, value.topic_id) == (42, "m", broker.ids["t"])
    assert value.leader_epoch == (3 if version >= 6 else -1)
    assert abs(value.commit_timestamp_ms - broker.services.clock.wall_ms()) < 60_000
    (batch,) = broker.groups.batches
    header = decode_header(batch)
    assert not header.is_transactional and header.producer_id == -1


@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_offset_commit_sets_its_own_retention_only_below_version_5(
    broker: GroupBroker, version: int
) -> None:
    commit(broker, version, retention_time=1000)
    ((record,),) = [decode_batch(batch) for batch in broker.groups.batches]
    value = decode_offset_value(record.value or b"")
    if version == 5:
        assert value.expire_timestamp_ms == -1
    else:
        assert value.expire_timestamp_ms == value.commit_timestamp_ms + 1000


def test_offset_commit_passes_the_member_to_the_coordinator_check(broker: GroupBroker) -> None:
    commit(
        broker, 9, member_id="m", group_instance_id="i", generation_id_or_member_epoch=4
    )  # fmt: skip
    commit(broker, 5, member_id="m", generation_id_or_member_epoch=4)
    assert broker.shard.checks == [("g", "m", "i", 4, False, 9), ("g", "m", None, 4, False, 5)]


@pytest.mark.parametrize(
    "refusal", [UnknownMemberId, IllegalGeneration, FencedInstanceId, RebalanceInProgress]
)
def test_offset_commit_of_a_refused_member_stores_no_offset(
    broker: GroupBroker, refusal: type
) -> None:
    broker.shard.refusal = refusal()
    asked = topics(partition(0), partition(1), partition(9))
    assert commit(broker, topics=asked) == {
        ("t", 0): refusal.code,
        ("t", 1): refusal.code,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert broker.groups.batches == []


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (NotCoordinator, ErrorCode.NOT_COORDINATOR),
        (CoordinatorLoadInProgress, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (CoordinatorNotAvailable, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (NotEnoughReplicasAfterAppend, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (MessageTooLarge, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_offset_commit_translates_a_partition_error_to_a_coordinator_error(
    broker: GroupBroker, failure: type, expected: int
) -> None:
    broker.groups.append_failure = failure()
    assert commit(broker) == {("t", 0): expected}
    broker.groups.append_failure, broker.groups.failure = None, failure()
    assert commit(broker) == {("t", 0): expected}


def test_offset_commit_of_an_unknown_topic_fails_only_that_topic(broker: GroupBroker) -> None:
    asked = topics(partition(0), partition(3), partition(-1)) + topics(name="nothing")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(broker, topics=asked) == {
        ("t", 0): 0,
        ("t", 3): unknown,
        ("t", -1): unknown,
        ("nothing", 0): unknown,
    }
    broker.groups.failure = NotCoordinator()
    assert commit(broker, topics=topics(name="nothing")) == {("nothing", 0): unknown}, (
        "the coordinator is not asked"
    )


def test_offset_commit_of_an_unknown_topic_id_is_refused(broker: GroupBroker) -> None:
    strange = bytes([9]) * 16
    for topic_id in (strange, ZERO_ID):
        asked = topics(topic_id=topic_id)
        assert commit(broker, 10, topics=asked) == {(topic_id, 0): ErrorCode.UNKNOWN_TOPIC_ID}


def test_offset_commit_with_too_long_metadata_is_refused_for_that_offset() -> None:
    broker = GroupBroker(offset_metadata_max_bytes="3")
    asked = topics(partition(0, committed_metadata="four"), partition(1, committed_metadata="tri"))
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert commit(broker, topics=asked) == {("t", 0): too_large, ("t", 1): 0}
    asked = topics(partition(0, committed_metadata="four"))
    assert commit(broker, topics=asked) == {("t", 0): too_large}
    assert len(broker.groups.batches) == 1
    assert broker.shard.offsets.fetch("g", "t", 0) is None


def test_offset_commit_without_metadata_stores_empty_metadata(broker: GroupBroker) -> None:
    commit(broker, topics=topics(partition(0, committed_metadata=None)))
    value = broker.shard.offsets.fetch("g", "t", 0)
    assert value is not None and value.metadata == ""


def test_offset_commit_beyond_the_maximum_is_accepted_only_for_known_offsets(
    broker: GroupBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(broker)
    full, maximum = ErrorCode.INVALID_COMMIT_OFFSET_SIZE, "OFFSETS_MAX"
    monkeypatch.setattr(offset_commits, maximum, 1)
    assert commit(broker, topics=topics(partition(1))) == {("t", 1): full}
    assert commit(broker) == {("t", 0): 0}
    monkeypatch.setattr(offset_commits, maximum, 0)
    assert commit(broker) == {("t", 0): 0}
    monkeypatch.setattr(offset_commits, maximum, 2)
    three = topics(partition(0), partition(1), name="t") + topics(name="u")
    assert set(commit(broker, topics=three).values()) == {full}
    assert commit(broker, topics=topics(partition(0), partition(1))) == {("t", 0): 0, ("t", 1): 0}


def test_offset_commit_with_an_unexpected_exception_is_answered(broker: GroupBroker) -> None:
    broker.groups.append_failure = ZeroDivisionError()  # type: ignore[assignment]
    assert commit(broker) == {("t", 0): -1}
    assert commit(broker, 10, topics=topics(topic_id=broker.ids["t"])) == {(broker.ids["t"], 0): -1}


def test_offset_commit_answer_in_the_cache_is_reused_only_for_the_same_topics(
    broker: GroupBroker,
) -> None:
    both = topics(partition(1), partition(0)) + topics(name="u")
    for _ in range(2):
        assert commit(broker, topics=both) == {("t", 1): 0, ("t", 0): 0, ("u", 0): 0}
        assert commit(broker, topics=topics(partition(1))) == {("t", 1): 0}
        assert commit(broker, 7, topics=topics(name="u")) == {("u", 0): 0}
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        mixed = topics(partition(1), partition(9))
        assert commit(broker, topics=mixed) == {("t", 1): 0, ("t", 9): unknown}


# -- transactional commits


@pytest.mark.parametrize("version", range(7))
def test_txn_offset_commit_of_every_version_is_stored(broker: GroupBroker, version: int) -> None:
    asked = topics(partition(1, 42, committed_leader_epoch=3), topic_id=broker.ids["t"])
    where = ("t" if version < 6 else broker.ids["t"], 1)
    assert txn_commit(broker, version, topics=asked) == {where: 0}
    assert broker.verifier.questions == [
        ("x", 7, 0, ((OFFSETS_TOPIC, broker.shard.index),), version >= 5)
    ]
    assert broker.shard.checks == [("g", "", None, -1, True, version)]
    header = decode_header(broker.groups.batches[0])
    assert header.is_transactional and (header.producer_id, header.producer_epoch) == (7, 0)
    assert header.base_sequence == -1
    assert broker.partition.transactional_ids == {7: "x"}
    assert broker.shard.offsets.fetch("g", "t", 1) is None
    broker.groups.mark(7, 0)
    value = broker.shard.offsets.fetch("g", "t", 1)
    assert isinstance(value, OffsetValue)
    assert (value.offset, value.leader_epoch) == (42, 3 if version >= 2 else -1)


def test_txn_offset_commit_in_an_open_transaction_is_not_verified_again(
    broker: GroupBroker,
) -> None:
    for _ in range(3):
        assert txn_commit(broker) == {("t", 0): 0}
    assert len(broker.verifier.questions) == 1
    broker.groups.mark(7, 0)
    assert txn_commit(broker) == {("t", 0): 0}
    assert len(broker.verifier.questions) == 2


def test_txn_offset_commit_of_a_refused_member_is_refused(broker: GroupBroker) -> None:
    broker.shard.refusal = IllegalGeneration()
    member = {"member_id": "m", "generation_id": 4, "group_instance_id": "i"}
    assert txn_commit(broker, **member) == {("t", 0): ErrorCode.ILLEGAL_GENERATION}
    assert broker.shard.checks == [("g", "m", "i", 4, True, 3)]
    assert broker.groups.batches == []


def test_txn_offset_commit_of_an_unknown_topic_id_is_refused(
    broker: GroupBroker,
) -> None:
    known, unknown = broker.ids["t"], b"?" * 16
    asked = [
        {"topic_id": topic_id, "partitions": [partition(index)]}
        for topic_id, index in ((known, 0), (unknown, 0), (ZERO_ID, 0), (known, 9))
    ]
    member = {"member_id": "m", "generation_id_or_member_epoch": 4}
    assert txn_commit(broker, 6, topics=asked, **member) == {
        (known, 0): ErrorCode.NONE,
        (unknown, 0): ErrorCode.UNKNOWN_TOPIC_ID,
        (ZERO_ID, 0): ErrorCode.UNKNOWN_TOPIC_ID,
        (known, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert broker.shard.checks == [("g", "m", None, 4, True, 6)]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, [48, 48, 48, 48, 120, 120]),
        (ErrorCode.INVALID_TXN_STATE, [48] * 6),
        (ErrorCode.PRODUCER_FENCED, [47] * 6),
        (ErrorCode.INVALID_PRODUCER_EPOCH, [47] * 6),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, [49] * 6),
        (ErrorCode.CONCURRENT_TRANSACTIONS, [51] * 6),
        (ErrorCode.NETWORK_EXCEPTION, [15, 15, 14, 14, 14, 14]),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [15, 15, 14, 14, 14, 14]),
        (ErrorCode.NOT_COORDINATOR, [16] * 6),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, [15] * 6),
    ],
)
def test_txn_offset_commit_error_of_the_transaction_coordinator_depends_on_the_version(
    broker: GroupBroker, error: int, expected: list[int]
) -> None:
    broker.verifier.error = error
    for version, code in enumerate(expected):
        assert txn_commit(broker, version) == {("t", 0): code}, version
    assert broker.groups.batches == []


def test_txn_offset_commit_overtaken_by_its_marker_is_refused(broker: GroupBroker) -> None:
    """The transaction ends between the verification of the request and the append."""

    def end() -> None:
        if len(broker.verifier.questions) == 1:
            broker.groups.mark(7, 0)
        else:
            broker.verifier.error = ErrorCode.TRANSACTION_ABORTABLE

    broker.verifier.meanwhile = end
    assert txn_commit(broker) == {("t", 0): ErrorCode.INVALID_TXN_STATE}
    assert not broker.shard.offsets.has_pending("g")


def test_txn_offset_commit_of_the_next_transaction_may_precede_the_last_marker(
    broker: GroupBroker,
) -> None:
    """The previous transaction's marker arrives after the verification, and invalidates it."""
    assert txn_commit(broker, 5) == {("t", 0): 0}
    markers = iter([1])
    broker.verifier.meanwhile = lambda: [broker.groups.mark(7, epoch) for epoch in markers]
    assert txn_commit(broker, 5, producer_epoch=1) == {("t", 0): 0}
    assert len(broker.verifier.questions) == 3
    broker.groups.mark(7, 2)
    broker.verifier.meanwhile = lambda: broker.groups.mark(7, 2)
    last = txn_commit(broker, 5, producer_epoch=2)
    assert last == {("t", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}, "attempts are limited"


def test_txn_offset_commit_after_its_transaction_ended_opens_no_transaction(
    broker: GroupBroker,
) -> None:
    assert txn_commit(broker) == {("t", 0): 0}
    broker.groups.mark(7, 0)
    broker.verifier.error = ErrorCode.TRANSACTION_ABORTABLE
    assert txn_commit(broker) == {("t", 0): ErrorCode.INVALID_TXN_STATE}


def test_txn_offset_commit_of_a_fenced_producer_gets_invalid_producer_epoch(
    broker: GroupBroker,
) -> None:
    assert txn_commit(broker, producer_epoch=1) == {("t", 0): 0}
    assert txn_commit(broker, producer_epoch=0) == {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}


def test_txn_offset_commit_without_a_group_is_refused(broker: GroupBroker) -> None:
    assert txn_commit(broker, group_id="") == {("t", 0): ErrorCode.INVALID_GROUP_ID}
    assert commit(broker, group_id="") == {("t", 0): 0}, "a plain commit may have no group"


def test_txn_offset_commit_to_a_partition_led_elsewhere_gets_not_coordinator(
    broker: GroupBroker,
) -> None:
    broker.shard.index += 1
    broker.partition = None  # type: ignore[assignment]
    assert txn_commit(broker) == {("t", 0): ErrorCode.NOT_COORDINATOR}


def test_offset_commit_request_is_written_as_one_batch(broker: GroupBroker) -> None:
    asked = topics(partition(0), partition(1), partition(2)) + topics(name="u")
    assert set(txn_commit(broker, topics=asked).values()) == {0}
    assert set(commit(broker, topics=asked).values()) == {0}
    assert [decode_header(batch).record_count for batch in broker.groups.batches] == [4, 4]


# -- the fence of connections


def is_closed_by(broker: GroupBroker, connection_id: int, version: int) -> bool:
    broker.context.connection_id = connection_id
    return broker.ask(TXN_COMMIT, version, txn_question()) == CLOSED


@pytest.mark.parametrize(
    ("version", "settings", "is_closed"),
    [
        (3, {}, True),
        (4, {}, True),
        (5, {}, False),
        (3, {"oncelog_transaction_connection_fence": "false"}, False),
    ],
)
def test_txn_offset_commit_on_an_older_connection_closes_it_only_below_v5_and_with_the_fence(
    version: int, settings: dict[str, str], is_closed: bool
) -> None:
    broker = GroupBroker(**settings)
    connections = (5, 9, 5, 9)
    closed = [is_closed_by(broker, connection, version) for connection in connections]
    assert closed == [False, False, is_closed, False]


def test_txn_offset_commit_overtaken_by_a_newer_connection_closes_its_connection() -> None:
    broker = GroupBroker()

    def next_transaction_begins() -> None:
        broker.verifier.meanwhile = lambda: None
        assert broker.services.offset_commit_fence.admits(7, 0, 9, 0)
        value = encode_offset_value(OffsetValue(5, -1, "", 1, -1, bytes(16)))
        record = Record(0, 1, encode_offset_key("g", "t", 0), value)
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": -1}
        broker.groups.take(encode_batch([record], transactional=True, **fields))

    broker.verifier.meanwhile = next_transaction_begins
    assert is_closed_by(broker, 5, 4)
    assert len(broker.groups.batches) == 1
