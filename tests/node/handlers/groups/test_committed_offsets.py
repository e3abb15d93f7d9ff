"""Test OffsetFetch and OffsetDelete, with a coordinator that the test controls."""

import pytest

from oncelog.coordinator.groups.records import (
    OffsetValue,
    encode_offset_key,
    encode_offset_value,
)
from oncelog.wire.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    GroupIdNotFound,
    NonEmptyGroup,
    NotCoordinator,
)
from oncelog.wire.records import Record, decode_batch, encode_batch

from ...fake_groups import GroupBroker

FETCH, DELETE = 9, 47
NONE = (-1, -1, "", 0)
UNSTABLE = (-1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)


@pytest.fixture
def broker() -> GroupBroker:
    broker = GroupBroker()
    put(broker, "t", 0, 10, metadata="m", leader_epoch=2)
    put(broker, "t", 1, 11)
    put(broker, "u", 0, 12)
    return broker


def put(
    broker: GroupBroker, topic: str, partition: int, offset: int,
    *, producer: int | None = None, group: str = "g", **fields: object,
) -> None:  # fmt: skip
    value = OffsetValue(offset, -1, "", 0)._replace(**fields)
    record = Record(0, 0, encode_offset_key(group, topic, partition), encode_offset_value(value))
    if producer is None:
        broker.groups.take(encode_batch([record]))
    else:
        batch = encode_batch([record], transactional=True, producer_id=producer, producer_epoch=0)
        broker.groups.take(batch)


def asked(version: int, topics: object, **more: object) -> dict[str, object]:
    group = {"group_id": "g", "topics": topics}
    return ({"groups": [group]} if version >= 8 else group) | more


def fetch(
    broker: GroupBroker, version: int = 9, topics: object = None, **more: object
) -> dict[object, tuple]:
    """Send OffsetFetch, and return (offset, leader epoch, metadata, error) by partition.

    The key "error" has the error of the group, if there is one.
    """
    answer = broker.ask(FETCH, version, asked(version, topics, **more))
    group = answer.groups[0] if version >= 8 else answer
    return partitions(group)


def partitions(group: object) -> dict[object, tuple]:
    found: dict[object, tuple] = {
        (getattr(topic, "name", None) or topic.topic_id, each.partition_index): (
            each.committed_offset,
            getattr(each, "committed_leader_epoch", -1),
            each.metadata,
            each.error_code,
        )
        for topic in group.topics  # type: ignore[attr-defined]
        for each in topic.partitions
    }
    if getattr(group, "error_code", 0):
        found["error"] = group.error_code  # type: ignore[attr-defined]
    return found


def wanted(*indexes: int, name: str = "t", **more: object) -> dict[str, object]:
    return {"name": name, "partition_indexes": list(indexes)} | more


@pytest.mark.parametrize("version", range(1, 11))
def test_offset_fetch_of_every_version_returns_the_committed_offsets(
    broker: GroupBroker, version: int
) -> None:
    topic_id = broker.ids["t"]
    name = "t" if version < 10 else topic_id
    assert fetch(broker, version, [wanted(1, 0, 2, topic_id=topic_id)]) == {
        (name, 1): (11, -1, "", 0),
        (name, 0): (10, 2 if version >= 5 else -1, "m", 0),
        (name, 2): NONE,
    }


@pytest.mark.parametrize("version", range(2, 11))
def test_offset_fetch_of_all_topics_omits_a_deleted_topic_only_if_topics_have_ids(
    broker: GroupBroker, version: int
) -> None:
    put(broker, "gone", 0, 3)
    named = broker.ids.get if version >= 10 else str
    expected = {("t", 0): 10, ("t", 1): 11, ("u", 0): 12, ("gone", 0): 3}
    if version >= 10:
        del expected["gone", 0]  # the deleted topic has no id
    assert {where: values[0] for where, values in fetch(broker, version).items()} == {
        (named(topic), index): offset for (topic, index), offset in expected.items()
    }


def test_offset_fetch_of_a_committed_minus_one_returns_no_offset(broker: GroupBroker) -> None:
    put(broker, "u", 1, -1)
    assert fetch(broker)["u", 1] == NONE


@pytest.mark.parametrize("version", [1, 2, 7, 8, 10])
def test_offset_fetch_of_an_unknown_group_returns_no_offsets_and_no_error(
    broker: GroupBroker, version: int
) -> None:
    broker.shard.is_known = False
    topic_id = broker.ids["t"]
    name = "t" if version < 10 else topic_id
    assert fetch(broker, version, [wanted(0, topic_id=topic_id)]) == {(name, 0): NONE}
    if version >= 2:
        assert fetch(broker, version) == {}


def test_offset_fetch_of_an_unknown_topic_returns_no_offset(broker: GroupBroker) -> None:
    assert fetch(broker, 9, [wanted(0, name="never")]) == {("never", 0): NONE}
    strange = bytes([9]) * 16
    assert fetch(broker, 10, [wanted(0, 1, topic_id=strange)]) == {
        (strange, index): (-1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID) for index in (0, 1)
    }


@pytest.mark.parametrize("version", [9, 10])
def test_offset_fetch_of_a_recreated_topic_returns_no_offset_of_the_old_topic(
    broker: GroupBroker, version: int
) -> None:
    put(broker, "u", 0, 99, topic_id=bytes([9]) * 16)
    topic_id = broker.ids["u"]
    name = "u" if version < 10 else topic_id
    assert fetch(broker, version, [wanted(0, name="u", topic_id=topic_id)]) == {(name, 0): NONE}
    assert (name, 0) not in fetch(broker, version)
    put(broker, "u", 0, 100, topic_id=topic_id)
    assert fetch(broker, version)[name, 0][0] == 100


@pytest.mark.parametrize("version", [7, 8, 9])
def test_offset_fetch_with_require_stable_answers_unstable_for_partitions_with_pending_offsets(
    broker: GroupBroker, version: int
) -> None:
    put(broker, "t", 1, 20, producer=7)
    put(broker, "t", 2, 21, producer=7)
    question = [wanted(0, 1, 2)]
    assert fetch(broker, version, question)["t", 1][0] == 11, "the last committed"
    assert broker.groups.settled == 0
    stable = fetch(broker, version, question, require_stable=True)
    assert (stable["t", 0][0], stable["t", 1], stable["t", 2]) == (10, UNSTABLE, UNSTABLE)
    assert broker.groups.settled == 1, "uncommitted appends are awaited"
    everything = fetch(broker, version, require_stable=True)
    assert everything["t", 1] == UNSTABLE and ("t", 2) not in everything
    broker.groups.mark(7, 0)
    stable = fetch(broker, version, question, require_stable=True)
    assert (stable["t", 1][0], stable["t", 2][0]) == (20, 21)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (NotCoordinator, ErrorCode.NOT_COORDINATOR),
        (CoordinatorLoadInProgress, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (CoordinatorNotAvailable, ErrorCode.NOT_COORDINATOR),
    ],
)
@pytest.mark.parametrize("version", [1, 2, 7, 8])
def test_offset_fetch_with_a_coordinator_failure_returns_the_error_of_the_group(
    broker: GroupBroker, version: int, failure: type, expected: int
) -> None:
    broker.groups.failure = failure()
    found = fetch(broker, version, [wanted(0)])
    assert found == ({("t", 0): (-1, -1, "", expected)} if version == 1 else {"error": expected})


@pytest.mark.parametrize("version", [1, 2, 8])
def test_offset_fetch_with_an_unexpected_exception_is_answered(
    broker: GroupBroker, version: int
) -> None:
    broker.groups.failure = ZeroDivisionError()  # type: ignore[assignment]
    found = fetch(broker, version, [wanted(0)])
    assert -1 in (found.get("error"), found.get(("t", 0), NONE)[3])


def test_offset_fetch_of_many_groups_answers_each_group(broker: GroupBroker) -> None:
    put(broker, "t", 0, 77, group="h")
    groups = [
        {"group_id": "g", "topics": [wanted(0)]},
        {"group_id": "h", "topics": None},
        {"group_id": "unknown", "topics": [wanted(0)]},
    ]
    answer = broker.ask(FETCH, 8, {"groups": groups})
    assert [group.group_id for group in answer.groups] == ["g", "h", "unknown"]
    assert [partitions(group)["t", 0][0] for group in answer.groups] == [10, 77, -1]


# -- deletion


def delete(broker: GroupBroker, *topics: dict[str, object], group: str = "g") -> dict[object, int]:
    answer = broker.ask(DELETE, 0, {"group_id": group, "topics": list(topics)})
    found: dict[object, int] = {
        (topic.name, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partitions
    }
    return found | ({"error": answer.error_code} if answer.error_code else {})


def named(name: str, *indexes: int) -> dict[str, object]:
    return {"name": name, "partitions": [{"partition_index": index} for index in indexes]}


def test_offset_delete_removes_committed_and_pending_offsets(broker: GroupBroker) -> None:
    put(broker, "t", 2, 20, producer=7)
    before = len(broker.groups.batches)
    assert delete(broker, named("t", 0, 2), named("u", 0)) == {
        ("t", 0): 0,
        ("t", 2): 0,
        ("u", 0): 0,
    }
    (batch,) = broker.groups.batches[before:]
    assert [record.value for record in decode_batch(batch)] == [None] * 3
    broker.groups.mark(7, 0)
    assert broker.shard.offsets.committed("g") == [("t", 1)]


def test_offset_delete_of_missing_offsets_writes_no_tombstone(broker: GroupBroker) -> None:
    before = len(broker.groups.batches)
    assert delete(broker, named("t", 2)) == {("t", 2): 0}
    assert len(broker.groups.batches) == before


def test_offset_delete_of_subscribed_or_unknown_topics_is_refused(broker: GroupBroker) -> None:
    broker.shard.subscribed = frozenset({"t"})
    assert delete(broker, named("t", 0), named("u", 0, 1), named("never", 0)) == {
        ("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ("u", 0): 0,
        ("u", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("never", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


@pytest.mark.parametrize("refusal", [GroupIdNotFound, NonEmptyGroup, NotCoordinator])
def test_offset_delete_that_is_refused_returns_the_error_of_the_group(
    broker: GroupBroker, refusal: type
) -> None:
    broker.shard.refusal = refusal()
    assert delete(broker, named("t", 0)) == {"error": refusal.code}
    assert delete(broker, named("t", 0), group="") == {"error": ErrorCode.INVALID_GROUP_ID}
