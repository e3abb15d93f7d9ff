"""Test requests to consumer groups (KIP-848) on a real log, and the wait for its replicas."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.coordinator.groups.assignors.catalogue import ASSIGNORS
from oncelog.coordinator.metadata.commands import CreateTopics, NewTopic
from oncelog.node.groups.removal import OffsetExpiry
from oncelog.wire.errors import ErrorCode, KafkaStorageError

from ...awaiting import settle, until
from ..coordinating_broker import CoordinatingBroker

COMMIT, FETCH, JOIN, DESCRIBE, LIST, DELETE = 8, 9, 11, 15, 16, 42
LEAVE, TXN_OFFSET_COMMIT, OFFSET_DELETE, BEAT, DESCRIBE_CONSUMERS = 13, 28, 47, 68, 69
T = b"t" * 16
PARTITIONS = 4


async def serving(directory: Path, *, replicas: int = 1, **settings: str) -> CoordinatingBroker:
    """Return a broker that coordinates consumer groups, in a cluster with the topic `t`."""
    settings.setdefault("group_consumer_assignment_interval_ms", "0")
    broker = CoordinatingBroker(directory, topic=True, **settings)
    command = CreateTopics((NewTopic("t", T, partition_count=PARTITIONS, replication_factor=1),))
    assert not broker.fake.controller.apply(command).items[0].error
    both = tuple(range(1, replicas + 1))
    await broker.serve(replicas=both, min_insync_replicas=replicas)
    return broker


@asynccontextmanager
async def stopped_afterwards(directory: Path) -> AsyncIterator[CoordinatingBroker]:
    broker = await serving(directory)
    yield broker
    broker.groups.stop()


@pytest.fixture
def broker(tmp_path: Path) -> AbstractAsyncContextManager[CoordinatingBroker]:
    return stopped_afterwards(tmp_path)


def joining(member_id: str = "m", **more: Any) -> dict[str, Any]:
    return {
        "group_id": "g",
        "member_id": member_id,
        "member_epoch": 0,
        "rebalance_timeout": 10_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    } | more


def going_on(epoch: int, member_id: str = "m", **more: Any) -> dict[str, Any]:
    unchanged = {"subscribed_topic_names": None, "topic_partitions": None, "rebalance_timeout": -1}
    return joining(member_id, member_epoch=epoch, **unchanged | more)


def owning(*partitions: int) -> list[dict[str, Any]]:
    return [{"topic_id": T, "partitions": list(partitions)}]


def given(answer: Any) -> list[int]:
    assert answer.error_code == 0, answer.error_message
    return [index for each in answer.assignment.topic_partitions for index in each.partitions]


def committing(epoch: int, *partitions: int, member_id: str = "m") -> dict[str, Any]:
    indexes = [{"partition_index": index, "committed_offset": 5} for index in partitions]
    return {
        "group_id": "g",
        "member_id": member_id,
        "generation_id_or_member_epoch": epoch,
        "topics": [{"name": "t", "partitions": indexes}],
    }


async def commit_error(broker: CoordinatingBroker, version: int = 9, **values: Any) -> int:
    answer = await broker.ask(COMMIT, version, values)
    (error,) = {each.error_code for each in answer.topics[0].partitions}
    return error


async def described(broker: CoordinatingBroker, version: int = 1) -> Any:
    (group,) = (await broker.ask(DESCRIBE_CONSUMERS, version, {"group_ids": ["g"]})).groups
    return group


@pytest.mark.parametrize("version", [0, 1])
async def test_consumer_group_member_joins_heartbeats_and_leaves(
    broker: CoordinatingBroker, version: int
) -> None:
    joined = await broker.ask(BEAT, version, joining("" if version == 0 else "m"))
    assert given(joined) == list(range(PARTITIONS))
    assert joined.member_id and joined.member_epoch == 1 and joined.heartbeat_interval == 5_000
    again = await broker.ask(BEAT, version, going_on(1, joined.member_id))
    assert (again.error_code, again.member_epoch, again.assignment) == (0, 1, None)
    left = await broker.ask(BEAT, version, going_on(-1, joined.member_id))
    assert (left.error_code, left.member_epoch) == (0, -1)
    assert (await described(broker)).group_state == "Empty"


@pytest.mark.parametrize(
    ("values", "error"),
    [
        (joining(group_id=""), ErrorCode.INVALID_REQUEST),
        (joining(""), ErrorCode.INVALID_REQUEST),
        (joining(instance_id=""), ErrorCode.INVALID_REQUEST),
        (joining(rack_id=""), ErrorCode.INVALID_REQUEST),
        (joining(rebalance_timeout=-1), ErrorCode.INVALID_REQUEST),
        (joining(topic_partitions=None), ErrorCode.INVALID_REQUEST),
        (joining(topic_partitions=owning(1)), ErrorCode.INVALID_REQUEST),
        (joining(subscribed_topic_names=None), ErrorCode.INVALID_REQUEST),
        (joining(server_assignor="none"), ErrorCode.UNSUPPORTED_ASSIGNOR),
        (joining(subscribed_topic_regex="("), ErrorCode.INVALID_REGULAR_EXPRESSION),
        (going_on(-3), ErrorCode.INVALID_REQUEST),
        (going_on(-2), ErrorCode.INVALID_REQUEST),
        (going_on(1), ErrorCode.GROUP_ID_NOT_FOUND),
        (going_on(-1), ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
async def test_consumer_group_heartbeat_that_is_invalid_is_refused(
    broker: CoordinatingBroker, values: dict[str, Any], error: int
) -> None:
    answer = await broker.ask(BEAT, 1, values)
    assert answer.error_code == error and answer.error_message
    assert not broker.shard.groups


async def test_consumer_group_answers_wait_for_the_replicas(tmp_path: Path) -> None:
    broker = await serving(tmp_path, replicas=2)
    first = broker.request(BEAT, 1, joining())
    again = broker.request(BEAT, 1, joining())
    describing = broker.request(DESCRIBE_CONSUMERS, 0, {"group_ids": ["g"]})
    listing = broker.request(LIST, 5, {})
    await settle()
    assert not any(each.is_there for each in (first, again, describing, listing))
    broker.replicate()
    assert given(await first.value()) == given(await again.value()) == list(range(PARTITIONS))
    assert (await describing.value()).groups[0].members[0].member_epoch == 1
    assert (await listing.value()).groups[0].group_state == "Stable"


async def test_consumer_group_description_shows_only_committed_state(tmp_path: Path) -> None:
    """Changes that are not replicated yet may still be lost."""
    broker = await serving(tmp_path, replicas=2)
    broker.request(BEAT, 1, joining())
    describing = broker.request(DESCRIBE_CONSUMERS, 0, {"group_ids": ["g"]})
    await settle()
    broker.replicate()
    broker.request(BEAT, 1, joining("n"))
    (group,) = (await describing.value()).groups
    assert [member.member_id for member in group.members] == ["m"]
    assert (group.group_epoch, group.assignment_epoch) == (1, 1)
    broker.groups.stop()


async def test_consumer_group_members_removed_by_an_administrator_leave_in_one_epoch(
    broker: CoordinatingBroker,
) -> None:
    for member_id, instance_id in (("a", None), ("b", "one"), ("c", "two"), ("d", None)):
        await broker.ask(BEAT, 1, joining(member_id, instance_id=instance_id))
    before = broker.shard.table.consumers.find("g").epoch
    leaving = [
        {"member_id": member_id, "group_instance_id": instance_id}
        for member_id, instance_id in (
            ("a", None), ("", "one"), ("a", None), ("x", None), ("", "none"), ("a", "two"),
        )
    ]  # fmt: skip
    answer = await broker.ask(LEAVE, 5, {"group_id": "g", "members": leaving})
    unknown, fenced = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID
    assert [each.error_code for each in answer.members] == [0, 0, 0, unknown, unknown, fenced]
    group = broker.shard.table.consumers.find("g")
    assert (sorted(group.members), group.epoch) == (["c", "d"], before + 1)
    answer = await broker.ask(LEAVE, 2, {"group_id": "g", "member_id": "d"})
    assert (answer.error_code, list(group.members)) == (0, ["c"])
    answer = await broker.ask(LEAVE, 2, {"group_id": "g", "member_id": "d"})
    assert answer.error_code == unknown
    assert (await broker.ask(BEAT, 1, going_on(1, member_id="a"))).error_code == unknown


async def test_consumer_group_member_removal_is_answered_after_its_commit(
    tmp_path: Path,
) -> None:
    broker = await serving(tmp_path, replicas=2)
    joined = broker.request(BEAT, 1, joining())
    await settle()
    broker.replicate()
    assert (await joined.value()).error_code == 0
    members = [{"member_id": "m", "group_instance_id": None}]
    leaving = broker.request(LEAVE, 5, {"group_id": "g", "members": members})
    await settle()
    assert not leaving.is_there
    broker.replicate()
    assert [each.error_code for each in (await leaving.value()).members] == [0]
    broker.groups.stop()


async def test_consumer_group_member_that_lists_a_topic_twice_owns_all_its_partitions(
    broker: CoordinatingBroker,
) -> None:
    """A heartbeat may list the partitions of one topic in two entries."""
    await broker.ask(BEAT, 1, joining())
    await broker.ask(BEAT, 1, joining("n"))
    split = [*owning(3), *owning(0, 1, 2)]
    assert given(await broker.ask(BEAT, 1, going_on(1, topic_partitions=split))) == [0, 1]
    await broker.ask(BEAT, 1, going_on(1, topic_partitions=[*owning(3), *owning(0, 1)]))
    assert (await described(broker)).members[0].member_epoch == 1


async def test_group_shard_with_an_unconfirmed_append_is_loaded_again(tmp_path: Path) -> None:
    broker = await serving(tmp_path, replicas=2, offsets_commit_timeout_ms="50")
    before = broker.shard
    answer = await broker.ask(BEAT, 1, joining())
    assert answer.error_code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
    assert all(shard is not before for shard in broker.groups.shards)
    broker.replicate()
    await until(lambda: broker.groups.shards[0].state.value == "serving")
    assert broker.shard.table.consumers.find("g").members, "it was in the log"


async def test_consumer_heartbeat_on_a_failed_disk_is_answered_after_the_shard_is_removed(
    broker: CoordinatingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        broker.resign()  # as the callbacks of an offline log do
        raise KafkaStorageError

    monkeypatch.setattr(broker.replicas, "append", fails)
    answer = broker.request(BEAT, 1, joining())
    async with asyncio.timeout(5):
        assert (await answer.value()).error_code == ErrorCode.NOT_COORDINATOR


async def test_next_coordinator_has_the_consumer_group_and_its_sessions(tmp_path: Path) -> None:
    times = {"session_timeout_ms": "150", "heartbeat_interval_ms": "50"}
    settings: dict[str, Any]
    settings = {f"group_consumer_{name}": value for name, value in times.items()}
    settings |= {f"group_consumer_min_{name}": value for name, value in times.items()}
    broker = await serving(tmp_path, **settings)
    await broker.ask(BEAT, 1, joining())
    broker.resign()
    assert not broker.groups.shards
    await broker.serve(epoch=2)
    answer = await broker.ask(BEAT, 1, going_on(1))
    assert (answer.error_code, answer.member_epoch) == (0, 1)
    await until(lambda: broker.shard.groups["g"].state_name == "Empty")
    assert broker.shard.table.consumers.find("g").epoch == 2


async def test_consumer_group_with_records_too_large_for_a_batch_is_unchanged(
    broker: CoordinatingBroker,
) -> None:
    await broker.ask(BEAT, 1, joining())
    end = broker.partition().log.log_end_offset
    names = [f"{number}-{'x' * 200}" for number in range(6_000)]
    answer = await broker.ask(BEAT, 1, going_on(1, subscribed_topic_names=names))
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert broker.partition().log.log_end_offset == end
    assert (await broker.ask(BEAT, 1, going_on(1))).error_code == 0


async def test_consumer_group_description_shows_epochs_and_assignments(
    broker: CoordinatingBroker,
) -> None:
    await broker.ask(BEAT, 1, joining(server_assignor="range", instance_id="i", rack_id="r"))
    await broker.ask(BEAT, 1, joining("n"))
    group = await described(broker)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Reconciling", 2, 2)
    assert group.assignor_name == "range"
    first, second = group.members
    assert (first.member_id, first.instance_id, first.rack_id) == ("m", "i", "r")
    assert (first.member_epoch, second.member_epoch, first.member_type) == (1, 2, 1)
    assert list(first.subscribed_topic_names) == ["t"]
    ((assigned,), (target,)) = (
        first.assignment.topic_partitions,
        first.target_assignment.topic_partitions,
    )
    assert (assigned.topic_id, assigned.topic_name) == (T, "t")
    assert list(assigned.partitions) == [0, 1, 2, 3] and list(target.partitions) == [0, 1]
    assert not second.assignment.topic_partitions
    await broker.ask(BEAT, 1, going_on(1))  # the answer revokes two
    (gives_up,) = (await described(broker)).members[0].assignment.topic_partitions
    assert list(gives_up.partitions) == [0, 1, 2, 3], "it may read them until it has given them up"
    classic = (await broker.ask(DESCRIBE, 6, {"groups": ["g"]})).groups[0]
    assert classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert classic.error_message == "Group g is not a classic group."
    answer = await broker.ask(DESCRIBE_CONSUMERS, 1, {"group_ids": ["h", ""]})
    errors = [each.error_code for each in answer.groups]
    assert errors == [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID]


async def test_list_groups_shows_the_types_of_groups(broker: CoordinatingBroker) -> None:
    await broker.ask(BEAT, 1, joining())
    for types, names in ((["consumer"], ["g"]), (["classic"], []), ([], ["g"])):
        listed = (await broker.ask(LIST, 5, {"types_filter": types})).groups
        assert [each.group_id for each in listed] == names
    (group,) = (await broker.ask(LIST, 5, {"states_filter": ["stable"]})).groups
    assert (group.group_type, group.protocol_type) == ("consumer", "consumer")


async def test_offset_commit_in_a_consumer_group_is_checked_by_partition_epochs(
    broker: CoordinatingBroker,
) -> None:
    """A commit of a partition that the member has yet to revoke is accepted (KIP-1251)."""
    await broker.ask(BEAT, 1, joining())
    await broker.ask(BEAT, 1, joining("n"))
    told = await broker.ask(BEAT, 1, going_on(1))
    assert given(told) == [0, 1] and told.member_epoch == 1
    assert await commit_error(broker, **committing(1, 0, 3)) == 0, "it has yet to give 3 up"
    await broker.ask(BEAT, 1, going_on(1, topic_partitions=owning(0, 1)))
    stale = ErrorCode.STALE_MEMBER_EPOCH
    assert await commit_error(broker, **committing(2, 0)) == 0
    assert await commit_error(broker, **committing(1, 0, 1)) == 0, "it has had them since epoch 1"
    assert await commit_error(broker, **committing(1, 0, 3)) == stale, "3 is gone"
    assert await commit_error(broker, **committing(3, 0)) == stale
    assert given(await broker.ask(BEAT, 1, going_on(2, "n"))) == [2, 3]
    assert await commit_error(broker, **committing(1, 2, member_id="n")) == stale
    assert await commit_error(broker, **committing(2, 2, member_id="n")) == 0
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert await commit_error(broker, **committing(2, 2, member_id="x")) == unknown
    unsupported = ErrorCode.UNSUPPORTED_VERSION
    assert await commit_error(broker, version=8, **committing(2, 0)) == unsupported


async def test_offset_fetch_in_a_consumer_group_is_checked_by_member_epoch(
    broker: CoordinatingBroker,
) -> None:
    await broker.ask(BEAT, 1, joining())

    async def error(member_id: str | None, epoch: int) -> int:
        wanted = {"group_id": "g", "member_id": member_id, "member_epoch": epoch, "topics": None}
        return (await broker.ask(FETCH, 9, {"groups": [wanted]})).groups[0].error_code

    assert await error("m", 1) == await error(None, -1) == 0
    assert await error("m", 2) == ErrorCode.STALE_MEMBER_EPOCH
    assert await error("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_consumer_group_with_members_cannot_be_deleted(broker: CoordinatingBroker) -> None:
    await broker.ask(BEAT, 1, joining())
    assert await commit_error(broker, **committing(1, 0)) == 0

    async def deleted() -> int:
        return (await broker.ask(DELETE, 2, {"groups_names": ["g"]})).results[0].error_code

    indexes = [{"partition_index": 0}]
    values = {"group_id": "g", "topics": [{"name": "t", "partitions": indexes}]}
    answer = await broker.ask(OFFSET_DELETE, 0, values)
    kept = answer.topics[0].partitions[0].error_code
    assert kept == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert await deleted() == ErrorCode.NON_EMPTY_GROUP
    await broker.ask(BEAT, 1, going_on(-1))
    assert await deleted() == 0
    assert not broker.shard.groups and not broker.shard.offsets.size
    broker.resign()
    await broker.serve(epoch=2)
    assert not broker.shard.groups


async def test_empty_group_is_replaced_by_a_group_of_another_type(
    broker: CoordinatingBroker,
) -> None:
    classic = {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    await broker.ask(BEAT, 1, joining())
    refused = await broker.ask(JOIN, 3, classic)
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    await broker.ask(BEAT, 1, going_on(-1))
    joined = await broker.ask(JOIN, 3, classic)
    assert (joined.error_code, joined.generation_id) == (0, 1)
    refused = await broker.ask(BEAT, 1, joining())
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused.error_message.startswith("Cannot upgrade classic group g to consumer group")
    leaving = {"group_id": "g", "members": [{"member_id": joined.member_id}]}
    await broker.ask(13, 5, leaving)
    assert given(await broker.ask(BEAT, 1, joining())) == list(range(PARTITIONS))
    broker.resign()
    await broker.serve(epoch=2)
    assert broker.shard.table.consumers.find("g").epoch == 1


async def test_consumer_group_in_memory_equals_its_records_after_an_internal_error(
    broker: CoordinatingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.ask(BEAT, 1, joining())
    monkeypatch.setitem(ASSIGNORS, "uniform", None)  # type: ignore[arg-type]
    answer = await broker.ask(BEAT, 1, joining("n"))
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    monkeypatch.undo()
    answer = await broker.ask(BEAT, 1, going_on(1))
    assert (answer.error_code, answer.member_epoch) == (0, 1)


async def test_transactional_offsets_in_a_consumer_group_are_checked_by_partition_epochs(
    broker: CoordinatingBroker,
) -> None:
    """Below version 6 of TxnOffsetCommit a stale epoch gets ILLEGAL_GENERATION (KIP-447)."""
    topic_id = broker.services.state.topics["t"].topic_id

    async def error(
        epoch: int, partition: int, member_id: str = "m", version: int = 3, group_id: str = "g"
    ) -> int:
        indexes = [{"partition_index": partition, "committed_offset": 5}]
        values = {
            "transactional_id": "txn",
            "group_id": group_id,
            "producer_id": 7,
            "producer_epoch": 0,
            "generation_id": epoch,
            "generation_id_or_member_epoch": epoch,
            "member_id": member_id,
            "topics": [{"name": "t", "topic_id": topic_id, "partitions": indexes}],
        }
        answer = await broker.ask(TXN_OFFSET_COMMIT, version, values)
        return answer.topics[0].partitions[0].error_code

    await broker.ask(BEAT, 1, joining())
    await broker.ask(BEAT, 1, joining("n"))
    await broker.ask(BEAT, 1, going_on(1))
    await broker.ask(BEAT, 1, going_on(1, topic_partitions=owning(0, 1)))
    assert await error(2, 0) == await error(1, 0) == await error(-1, 3, "") == 0
    assert await error(1, 3) == await error(3, 0) == ErrorCode.ILLEGAL_GENERATION
    assert await error(2, 0, "x") == ErrorCode.UNKNOWN_MEMBER_ID
    assert await error(2, 0, version=6) == await error(1, 0, version=6) == 0
    assert await error(1, 3, version=6) == ErrorCode.STALE_MEMBER_EPOCH
    assert await error(1, 0, version=6, group_id="nobody") == ErrorCode.GROUP_ID_NOT_FOUND
    assert await error(1, 0, version=5, group_id="nobody") == ErrorCode.ILLEGAL_GENERATION


async def test_offsets_of_an_empty_consumer_group_expire_with_the_group(
    tmp_path: Path,
) -> None:
    broker = await serving(tmp_path)
    await broker.ask(BEAT, 1, joining())
    assert await commit_error(broker, **committing(1, 0)) == 0
    expiry = OffsetExpiry(broker.groups, retention_ms=0, interval_ms=1 << 30)
    await expiry.look()
    assert broker.shard.offsets.size == 1, "a member reads the topic"
    await broker.ask(BEAT, 1, going_on(-1))
    await expiry.look()
    await expiry.stop()
    assert not broker.shard.offsets.size and not broker.shard.groups
    broker.groups.stop()
