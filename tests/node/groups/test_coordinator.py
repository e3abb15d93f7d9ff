"""Test requests to classic groups on a real log, and the wait for its replicas."""

import asyncio
import gc
import shutil
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from oncelog.coordinator.groups.records import (
    OffsetValue,
    encode_group_key,
    encode_offset_key,
    encode_offset_value,
)
from oncelog.coordinator.metadata.cluster_model import Changes
from oncelog.node.groups.removal import OffsetExpiry, forget_deleted_topics
from oncelog.node.groups.shard import GroupShard, ShardState
from oncelog.node.membership.isolated_leader import IsolatedLeader
from oncelog.wire.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    KafkaStorageError,
    NotCoordinator,
)
from oncelog.wire.records import Record, encode_batch

from ...awaiting import until
from ..coordinating_broker import CoordinatingBroker, serving

COMMIT, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE = 8, 11, 12, 13, 14, 15, 16, 42
PROTOCOLS = [{"name": "range", "metadata": b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"}]


@pytest.fixture
def broker(tmp_path: Path) -> AbstractAsyncContextManager[CoordinatingBroker]:
    return serving(tmp_path)


def joining(member_id: str = "", **more: Any) -> dict[str, Any]:
    return {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": PROTOCOLS,
    } | more


async def member_of(broker: CoordinatingBroker, version: int = 9, **more: Any) -> Any:
    """Return the answer to the JoinGroup that makes the first member of a group."""
    first = await broker.ask(JOIN, version, joining(**more))
    if version < 4 or "group_instance_id" in more:
        return first
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    return await broker.ask(JOIN, version, joining(first.member_id, **more))


def syncing(joined: Any, assignment: bytes = b"all") -> dict[str, Any]:
    return {
        "group_id": "g",
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": joined.member_id, "assignment": assignment}],
    }


async def stable(broker: CoordinatingBroker) -> Any:
    joined = await member_of(broker)
    assert joined.error_code == 0
    assert (await broker.ask(SYNC, 3, syncing(joined))).error_code == 0
    return joined


def offset(value: int, group: str = "g", topic: str = "t", at_ms: int = 1) -> Record:
    key = encode_offset_key(group, topic, 0)
    return Record(0, at_ms, key, encode_offset_value(OffsetValue(value, -1, "", at_ms)))


def committed(broker: CoordinatingBroker, group: str = "g", topic: str = "t") -> int | None:
    value = broker.shard.offsets.fetch(group, topic, 0)
    return None if value is None else value.offset


async def test_group_request_without_the_offsets_topic_has_no_coordinator(tmp_path: Path) -> None:
    broker = CoordinatingBroker(tmp_path, topic=False)
    with pytest.raises(CoordinatorNotAvailable):
        broker.groups.shard_for("g")
    answer = await broker.ask(HEARTBEAT, 4, {"group_id": "g", "member_id": "m"})
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", range(10))
async def test_classic_group_member_joins_syncs_heartbeats_and_leaves_in_every_version(
    broker: CoordinatingBroker, version: int
) -> None:
    joined = await member_of(broker, version)
    assert (joined.error_code, joined.leader) == (0, joined.member_id)
    assert joined.members[0].metadata == PROTOCOLS[0]["metadata"]
    synced = await broker.ask(SYNC, min(version, 5), syncing(joined))
    assert (synced.error_code, bytes(synced.assignment)) == (0, b"all")
    beat = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
    assert (await broker.ask(HEARTBEAT, min(version, 4), beat)).error_code == 0
    if version < 3:
        left = await broker.ask(LEAVE, version, {"group_id": "g", "member_id": joined.member_id})
    else:
        members = [{"member_id": joined.member_id}, {"member_id": "stranger"}]
        left = await broker.ask(LEAVE, min(version, 5), {"group_id": "g", "members": members})
        errors = [member.error_code for member in left.members]
        assert errors == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert left.error_code == 0
    (group,) = (await broker.ask(LIST, 5, {})).groups
    assert (group.group_id, group.group_state) == ("g", "Empty")


@pytest.mark.parametrize(
    ("values", "error"),
    [
        (joining(group_id=""), ErrorCode.INVALID_GROUP_ID),
        (joining(session_timeout=1), ErrorCode.INVALID_SESSION_TIMEOUT),
        (joining(session_timeout=1_800_001), ErrorCode.INVALID_SESSION_TIMEOUT),
        (joining("m"), ErrorCode.UNKNOWN_MEMBER_ID),
        (joining(protocols=[]), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (
            joining(protocols=[{"name": "range", "metadata": bytes(1 << 20) + b"x"}]),
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
async def test_join_group_that_is_invalid_is_refused(
    broker: CoordinatingBroker, values: dict[str, Any], error: int
) -> None:
    answer = await broker.ask(JOIN, 9, values)
    assert answer.error_code == error
    assert not any(group.members for group in broker.shard.groups.values())


async def test_sync_group_is_answered_when_the_replicas_have_the_assignment(tmp_path: Path) -> None:
    broker = CoordinatingBroker(tmp_path)
    await broker.serve(replicas=(1, 2))
    joined = await member_of(broker)
    answer = broker.request(SYNC, 5, syncing(joined))
    await asyncio.sleep(0.01)
    assert not answer.is_there
    broker.replicate()
    assert (await answer.value()).error_code == 0


async def test_waiting_group_requests_are_refused_when_another_broker_leads(tmp_path: Path) -> None:
    broker = CoordinatingBroker(tmp_path)
    await broker.serve(replicas=(1, 2))
    joined = await member_of(broker)
    answer = broker.request(SYNC, 5, syncing(joined))
    commit = asyncio.ensure_future(broker.groups.append(broker.shard, encode_batch([offset(5)])))
    await asyncio.sleep(0)
    broker.resign()
    assert (await answer.value()).error_code == ErrorCode.NOT_COORDINATOR
    with pytest.raises(NotCoordinator):
        await commit
    with pytest.raises(NotCoordinator):
        broker.groups.shard_for("g")
    left = await broker.ask(LIST, 5, {})
    assert (left.error_code, list(left.groups)) == (0, [])


async def test_sync_group_on_a_failed_disk_is_refused(
    broker: CoordinatingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = await member_of(broker)

    def fails(*_: object, **__: object) -> None:
        broker.resign()  # as the callbacks of an offline log do
        raise KafkaStorageError

    monkeypatch.setattr(broker.replicas, "append", fails)
    monkeypatch.setattr(broker.groups.work.share, "has_room", lambda: False)
    answer = broker.request(SYNC, 5, syncing(joined))
    async with asyncio.timeout(5):
        assert (await answer.value()).error_code == ErrorCode.NOT_COORDINATOR


async def test_group_shard_that_is_lost_is_freed_despite_commits_in_flight(tmp_path: Path) -> None:
    """Brokers run no full garbage collection, so a cycle would leak all groups of the shard."""
    broker = CoordinatingBroker(tmp_path)
    await broker.serve(replicas=(1, 2))
    commit = {
        "group_id": "g",
        "topics": [
            {
                "name": "__consumer_offsets",
                "partitions": [{"partition_index": 0, "committed_offset": 5}],
            }
        ],
    }
    answers = [broker.request(COMMIT, 7, commit) for _ in range(3)]
    await asyncio.sleep(0.01)
    gc.collect()
    gc.disable()
    try:
        broker.resign()
        for answer in answers:
            (topic,) = (await answer.value()).topics
            assert topic.partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        await asyncio.sleep(0)
        assert not [one for one in gc.get_objects() if isinstance(one, GroupShard)]
    finally:
        gc.enable()


async def test_isolated_group_coordinator_resigns_until_the_controller_answers(
    broker: CoordinatingBroker,
) -> None:
    """A broker that cannot reach the controller may no longer be the coordinator."""
    joined = await stable(broker)
    beat = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
    assert (await broker.ask(HEARTBEAT, 4, beat)).error_code == ErrorCode.NONE
    partition = broker.partition()
    broker.replicas.note_stalled(frozenset([partition]))
    broker.replicas.release_waiters(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not broker.groups.shards
    assert (await broker.ask(HEARTBEAT, 4, beat)).error_code == ErrorCode.NOT_COORDINATOR
    listed = await broker.ask(LIST, 5, {})
    assert (listed.error_code, list(listed.groups)) == (ErrorCode.NONE, [])
    broker.replicas.role_changed(partition)
    assert not broker.groups.shards, "the controller has not answered yet"
    IsolatedLeader(broker.replicas, session_timeout_ms=9_000).on_heartbeat_answered()
    await until(lambda: [each.state for each in broker.groups.shards] == [ShardState.SERVING])
    assert (await broker.ask(HEARTBEAT, 4, beat)).error_code == ErrorCode.NONE


async def test_broker_that_stops_answers_waiting_group_members(tmp_path: Path) -> None:
    broker = CoordinatingBroker(tmp_path, group_initial_rebalance_delay_ms="60000")
    await broker.serve()
    waiting = broker.request(JOIN, 3, joining())
    assert not waiting.is_there
    broker.groups.stop()
    assert (await waiting.value()).error_code == ErrorCode.NOT_COORDINATOR
    answer = await broker.ask(JOIN, 3, joining())
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_next_group_coordinator_has_groups_and_offsets(tmp_path: Path) -> None:
    before = CoordinatingBroker(tmp_path / "a")
    await before.serve()
    joined = await stable(before)
    await before.groups.append(before.shard, encode_batch([offset(5)]))
    pending = encode_batch(
        [offset(9, topic="u")], transactional=True, producer_id=7, producer_epoch=0
    )
    guard = before.partition().log.producer_state.begin_verification(7, 0, -1, now_ms=1)
    await before.groups.append(before.shard, pending, guard=guard)
    await before.groups.append(before.shard, encode_batch([offset(3, group="simple")]))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    after = CoordinatingBroker(tmp_path / "b")
    await after.serve(epoch=2)
    beat = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
    assert (await after.ask(HEARTBEAT, 4, beat)).error_code == 0
    synced = await after.ask(SYNC, 5, syncing(joined))
    assert bytes(synced.assignment) == b"all"
    assert committed(after) == 5
    assert committed(after, "simple") == 3
    assert committed(after, topic="u") is None
    assert after.shard.offsets.is_unstable("g", "u", 0)
    after.commit_transaction()
    await until(lambda: committed(after, topic="u") == 9)
    listed = await after.ask(LIST, 5, {})
    assert {group.group_id for group in listed.groups} == {"g", "simple"}


async def test_group_shard_loading_lasts_until_all_acknowledged_records_are_replayed(
    tmp_path: Path,
) -> None:
    """Acknowledged records may lie above the high watermark that a new leader knows."""
    before = CoordinatingBroker(tmp_path / "a")
    await before.serve()
    await before.groups.append(before.shard, encode_batch([offset(5)]))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    after = CoordinatingBroker(tmp_path / "b")
    after.lead(replicas=(1, 2), epoch=2)
    await asyncio.sleep(0.02)
    with pytest.raises(CoordinatorLoadInProgress):
        after.groups.shard_for("g")
    beat = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    assert (await after.ask(HEARTBEAT, 4, beat)).error_code == 0
    for api_key, values in ((JOIN, joining()), (LIST, {})):
        answer = await after.ask(api_key, 5, values)
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    after.replicate()
    await until(lambda: after.groups.shards[0].state is ShardState.SERVING)
    assert committed(after) == 5


async def test_group_shard_with_a_long_log_is_loaded_in_slices(tmp_path: Path) -> None:
    before = CoordinatingBroker(tmp_path / "a")
    await before.serve()
    shard = before.shard
    for number in range(100):
        records = [offset(number, topic=f"t{i}")._replace(offset=i) for i in range(100)]
        before.groups.append_now(shard, encode_batch(records))
    size_bytes = before.partition().log.segments.size_bytes
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    after = CoordinatingBroker(tmp_path / "b")
    after.lead(epoch=2)
    turns = 0
    while after.groups.shards[0].state is ShardState.LOADING:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= size_bytes / (64 * 1024) - 1
    assert committed(after, topic="t99") == 99


async def test_malformed_group_records_do_not_prevent_the_loading_of_other_groups(
    tmp_path: Path,
) -> None:
    before = CoordinatingBroker(tmp_path / "a")
    await before.serve()
    await stable(before)
    bad = [
        Record(0, 1, encode_group_key("bad"), b"\0\x63"),
        Record(1, 1, b"\0\2\0\x50", b"x"),
        Record(2, 1, None, b"x"),
        Record(3, 1, b"\0\x30", b"of another protocol"),
    ]
    await before.groups.append(before.shard, encode_batch(bad))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    after = CoordinatingBroker(tmp_path / "b")
    await after.serve(epoch=2)
    assert list(after.shard.groups) == ["g"]


async def test_offset_commit_refused_at_a_timeout_takes_effect_when_committed_later(
    tmp_path: Path,
) -> None:
    broker = CoordinatingBroker(tmp_path, offsets_commit_timeout_ms="30")
    await broker.serve(replicas=(1, 2))
    with pytest.raises(CoordinatorNotAvailable):
        await broker.groups.append(broker.shard, encode_batch([offset(5)]))
    assert committed(broker) is None
    broker.replicate()
    await until(lambda: committed(broker) == 5)


async def test_unconfirmed_group_record_makes_the_shard_load_again(tmp_path: Path) -> None:
    broker = CoordinatingBroker(tmp_path, offsets_commit_timeout_ms="30")
    await broker.serve(replicas=(1, 2))
    joined = await member_of(broker)
    synced = await broker.ask(SYNC, 5, syncing(joined))
    assert synced.error_code == ErrorCode.NOT_COORDINATOR
    await asyncio.sleep(0.02)  # even if the replicas take long
    with pytest.raises(CoordinatorLoadInProgress):
        broker.groups.shard_for("g")
    broker.replicate()
    await until(lambda: broker.groups.shards[0].state is ShardState.SERVING)
    again = await broker.ask(SYNC, 5, syncing(joined))
    assert (again.error_code, bytes(again.assignment)) == (0, b"all")


async def test_group_append_with_too_few_replicas_is_refused_before_the_write(
    tmp_path: Path,
) -> None:
    broker = CoordinatingBroker(tmp_path)
    await broker.serve(replicas=(1, 2), isr=(1,), min_insync_replicas=2)
    joined = await member_of(broker)
    synced = await broker.ask(SYNC, 5, syncing(joined))
    assert synced.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.partition().log.log_end_offset == 0


async def test_wait_for_a_settled_shard_lasts_until_its_records_are_committed(
    tmp_path: Path,
) -> None:
    broker = CoordinatingBroker(tmp_path)
    await broker.serve(replicas=(1, 2))
    broker.groups.append_now(broker.shard, encode_batch([offset(5)]))
    waiting = asyncio.ensure_future(broker.groups.until_settled(broker.shard))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    broker.replicate()
    await waiting
    assert committed(broker) == 5


async def test_group_assignment_too_large_for_a_batch_fails_the_sync(
    broker: CoordinatingBroker,
) -> None:
    joined = await member_of(broker)
    synced = await broker.ask(SYNC, 5, syncing(joined, bytes(2 << 20)))
    assert synced.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_empty_group_is_deleted_with_its_offsets(broker: CoordinatingBroker) -> None:
    joined = await stable(broker)
    await broker.groups.append(broker.shard, encode_batch([offset(5)]))
    broker.shard.table.obtain_simple("simple", 1)  # as the check of a commit does
    await broker.groups.append(broker.shard, encode_batch([offset(3, group="simple")]))
    names = {"groups_names": ["g", "simple", "none", "g"]}
    results = (await broker.ask(DELETE, 2, names)).results
    assert [(r.group_id, r.error_code) for r in results] == [
        ("g", ErrorCode.NON_EMPTY_GROUP),
        ("simple", 0),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    await broker.ask(LEAVE, 3, {"group_id": "g", "members": [{"member_id": joined.member_id}]})
    results = (await broker.ask(DELETE, 2, {"groups_names": ["g"]})).results
    assert results[0].error_code == 0
    assert committed(broker) is None
    assert not broker.shard.groups


@pytest.mark.parametrize("is_member_there", [True, False])
async def test_committed_offsets_of_topics_without_a_reader_expire_and_then_an_empty_group(
    broker: CoordinatingBroker, is_member_there: bool
) -> None:
    joined = await stable(broker)
    for topic in ("t", "unread"):
        await broker.groups.append(broker.shard, encode_batch([offset(5, topic=topic, at_ms=1)]))
    if not is_member_there:
        left = {"group_id": "g", "members": [{"member_id": joined.member_id}]}
        await broker.ask(LEAVE, 3, left)
        await asyncio.sleep(0.005)
    expiry = OffsetExpiry(broker.groups, retention_ms=1, interval_ms=1_000_000)
    await expiry.look_at(broker.shard)
    assert committed(broker) == (5 if is_member_there else None)
    assert committed(broker, topic="unread") is None
    assert list(broker.shard.groups) == (["g"] if is_member_there else [])
    await expiry.stop()


async def test_committed_offsets_of_a_deleted_topic_are_removed(broker: CoordinatingBroker) -> None:
    for topic in ("t", "u"):
        await broker.groups.append(broker.shard, encode_batch([offset(5, topic=topic)]))
    changes = Changes(topics_deleted=[("t", bytes(15) + b"t")])
    forget_deleted_topics(broker.groups, changes)
    await until(lambda: committed(broker) is None)
    assert committed(broker, topic="u") == 5


async def test_groups_are_described_and_listed_by_version_and_filter(
    broker: CoordinatingBroker,
) -> None:
    joined = await stable(broker)
    for version in range(7):
        group, none = (await broker.ask(DESCRIBE, version, {"groups": ["g", "none"]})).groups
        assert (group.group_state, group.protocol_type) == ("Stable", "consumer")
        assert group.protocol_data == "range"
        (member,) = group.members
        assert (member.member_id, member.client_host) == (joined.member_id, "/127.0.0.1")
        assert bytes(member.member_assignment) == b"all"
        error = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
        assert (none.error_code, none.group_state) == (error, "Dead")

    async def listed(**filters: Any) -> list[str]:
        answer = await broker.ask(LIST, 5, filters)
        assert answer.error_code == 0
        return [group.group_id for group in answer.groups]

    assert await listed() == ["g"]
    assert await listed(states_filter=["stable"]) == ["g"]
    assert await listed(states_filter=["Empty", "Dead"]) == []
    assert await listed(types_filter=["Classic"]) == ["g"]
    assert await listed(types_filter=["consumer"]) == []
    assert len((await broker.ask(LIST, 0, {})).groups) == 1


async def test_silent_group_member_is_removed_at_its_session_timeout(
    broker: CoordinatingBroker,
) -> None:
    joined = await member_of(broker, session_timeout=60)
    await broker.ask(SYNC, 5, syncing(joined))
    await until(lambda: broker.shard.groups["g"].state_name == "Empty")
    assert broker.shard.table.find_classic("g").generation == 2
