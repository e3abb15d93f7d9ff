"""Test that each waiting request of a group is answered when a function raises an exception."""

from pathlib import Path
from typing import Any

import pytest

from oncelog.coordinator.groups import classic_group, group_table, joining, rebalance, syncing, turn
from oncelog.coordinator.groups.classic_group import ClassicGroup
from oncelog.coordinator.groups.group_table import GroupTable
from oncelog.coordinator.groups.offset_table import OffsetTable
from oncelog.node.groups import turn_execution
from oncelog.node.groups.coordinator import OFFSETS_TOPIC, GroupCoordinator
from oncelog.node.groups.shard import GroupShard
from oncelog.node.handlers.groups import members, plain_commits
from oncelog.storage.producers.state import ProducerStateTable
from oncelog.wire.errors import ErrorCode
from oncelog.wire.primitives import STRING_BYTES_MAX

from ...awaiting import settle, until
from ..coordinating_broker import CoordinatingBroker
from ..fake_broker import CLOSED, Answer
from ..leading_broker import FakeVerifier

COMMIT, JOIN, HEARTBEAT, LEAVE, SYNC, TXN_COMMIT = 8, 11, 12, 13, 14, 28
DESCRIBE = 15
BROKEN = ErrorCode.UNKNOWN_SERVER_ERROR


class Defect(Exception):
    """An unexpected exception, raised by the tests."""


def breaking(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, calls_before: int = 0, times: int = 1
) -> None:
    """Let `times` calls of a function raise Defect, after `calls_before` successful calls."""
    call, count = getattr(owner, name), 0

    def broken(*args: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        if calls_before < count <= calls_before + times:
            raise Defect(name)
        return call(*args, **named)

    monkeypatch.setattr(owner, name, broken)


def joining_as(member_id: str = "", *, group_id: str = "g", **more: Any) -> dict[str, Any]:
    protocols = [{"name": "range", "metadata": b"\0\0\0\0\0\0\0\0\0\0"}]
    return {
        "group_id": group_id,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": protocols,
    } | more


def syncing_as(joined: Any, *member_ids: str, group_id: str = "g") -> dict[str, Any]:
    return {
        "group_id": group_id,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "assignments": [{"member_id": each, "assignment": b"a"} for each in member_ids],
    }


async def two_members(broker: CoordinatingBroker, group_id: str = "g") -> tuple[Any, Any]:
    """Let two members join a group, and return the answers to the leader and the other member."""
    ask = joining_as(group_id=group_id)
    leader = await broker.ask(JOIN, 3, ask)
    other = broker.request(JOIN, 3, ask)
    again = broker.request(JOIN, 3, joining_as(leader.member_id, group_id=group_id))
    return await again.value(), await other.value()


async def error_of(answer: Answer) -> int:
    return (await answer.value()).error_code


JOIN_POINTS: list[tuple[Any, str]] = [
    (members, "_join_answer"),
    (group_table, "join"),
    (joining, "_add"),
    (joining, "begin_or_complete"),
    (rebalance, "complete_rebalance"),
    (ClassicGroup, "choose_protocol"),
    (ClassicGroup, "generation_for"),
    (GroupTable, "join"),
]


@pytest.mark.parametrize(("owner", "name"), JOIN_POINTS)
async def test_join_group_with_a_raising_step_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    broker = CoordinatingBroker(tmp_path)
    await broker.serve()
    others, _ = await two_members(broker, "others")
    breaking(monkeypatch, owner, name)
    assert await error_of(broker.request(JOIN, 3, joining_as())) == BROKEN
    joined = await broker.ask(JOIN, 3, joining_as(group_id="later"))
    assert joined.error_code == 0
    beat = {"group_id": "others", "generation_id": others.generation_id}
    assert (await broker.ask(HEARTBEAT, 3, beat | {"member_id": others.member_id})).error_code == 0


async def test_join_group_members_that_wait_are_answered_when_another_join_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = CoordinatingBroker(tmp_path)
    await broker.serve()
    leader = await broker.ask(JOIN, 3, joining_as())
    waiting = broker.request(JOIN, 3, joining_as())
    breaking(monkeypatch, ClassicGroup, "generation_for", calls_before=1)  # the second answer
    again = broker.request(JOIN, 3, joining_as(leader.member_id))
    errors = [await error_of(each) for each in (again, waiting)]
    assert BROKEN in errors
    assert (await broker.ask(JOIN, 3, joining_as())).error_code == 0


SYNC_POINTS: list[tuple[Any, str]] = [
    (members, "_sync_answer"),
    (group_table, "sync"),
    (syncing, "_assigned"),
    (syncing, "_assignment_stored"),
    (ClassicGroup, "to_store"),
    (turn, "encode_group_value"),
    (turn_execution, "encode_batch"),
    (GroupCoordinator, "append_now"),
]


@pytest.mark.parametrize(("owner", "name"), SYNC_POINTS)
async def test_sync_group_with_a_raising_step_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    broker = CoordinatingBroker(tmp_path)
    await broker.serve()
    leader, other = await two_members(broker)
    waiting = broker.request(SYNC, 3, syncing_as(other))
    await settle()
    assert not waiting.is_there
    breaking(monkeypatch, owner, name)
    ids = leader.member_id, other.member_id
    assigning = broker.request(SYNC, 3, syncing_as(leader, *ids))
    errors = [await error_of(each) for each in (assigning, waiting)]
    assert BROKEN in errors and set(errors) <= {0, BROKEN, ErrorCode.REBALANCE_IN_PROGRESS}
    (group,) = (await broker.ask(DESCRIBE, 5, {"groups": ["g"]})).groups
    assert group.error_code == 0


async def test_group_deadline_that_raises_removes_only_its_own_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = CoordinatingBroker(tmp_path)
    await broker.serve()
    short: dict[str, Any] = {"session_timeout": 60, "rebalance_timeout": 60}
    for group_id in ("g", "h"):
        joined = await broker.ask(JOIN, 3, joining_as(group_id=group_id, **short))
        await broker.ask(SYNC, 3, syncing_as(joined, joined.member_id, group_id=group_id))
    breaking(monkeypatch, group_table, "session_deadline")
    groups = broker.shard.groups
    await until(lambda: len(groups) == 1 and next(iter(groups.values())).state_name == "Empty")


async def test_heartbeat_and_leave_that_raise_answer_waiting_members_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = CoordinatingBroker(tmp_path)
    await broker.serve()
    for api_key, name in ((HEARTBEAT, "heartbeat"), (LEAVE, "leave")):
        leader, other = await two_members(broker)
        waiting = broker.request(SYNC, 3, syncing_as(other))
        await settle()
        with monkeypatch.context() as patched:
            breaking(patched, group_table, name)
            asked = {"group_id": "g", "generation_id": leader.generation_id}
            asked |= (
                {"members": [{"member_id": leader.member_id}]}
                if api_key == LEAVE
                else {"member_id": leader.member_id}
            )
            assert await error_of(broker.request(api_key, 3, asked)) == BROKEN
        assert await error_of(waiting) == BROKEN


def committing(partitions: int = 1) -> dict[str, Any]:
    indexes = [{"partition_index": 0, "committed_offset": 7} for _ in range(partitions)]
    return {"group_id": "g", "topics": [{"name": OFFSETS_TOPIC, "partitions": indexes}]}


async def commit_error(answer: Answer) -> int:
    return (await answer.value()).topics[0].partitions[0].error_code


COMMIT_POINTS: list[tuple[Any, str]] = [
    (plain_commits, "_encoded"),
    (plain_commits, "_check"),
    (GroupCoordinator, "_append"),
    (GroupShard, "call_when_replayed"),
    (GroupShard, "wait_until_replayed"),
    (OffsetTable, "replaying"),
]


@pytest.mark.parametrize("partitions", [1, 200])
@pytest.mark.parametrize(("owner", "name"), COMMIT_POINTS)
async def test_offset_commit_with_a_raising_step_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, partitions: int
) -> None:
    broker = CoordinatingBroker(tmp_path)
    await broker.serve(replicas=(1, 2))
    breaking(monkeypatch, owner, name)
    answer = broker.request(COMMIT, 8, committing(partitions))
    await settle()
    broker.replicate()
    error = await commit_error(answer)
    assert error in (0, BROKEN, ErrorCode.NOT_COORDINATOR)


async def test_group_that_raises_when_restored_does_not_prevent_the_loading_of_other_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = CoordinatingBroker(tmp_path)
    await broker.serve()
    for group_id in ("g", "h"):
        joined = await broker.ask(JOIN, 3, joining_as(group_id=group_id))
        await broker.ask(SYNC, 3, syncing_as(joined, joined.member_id, group_id=group_id))
    broker.resign()
    breaking(monkeypatch, ClassicGroup, "restored")
    await broker.serve(epoch=2)
    assert len(broker.shard.groups) >= 1
    broker.resign()
    breaking(monkeypatch, classic_group.ClassicGroup, "read_subscriptions")
    await broker.serve(epoch=3)
    assert len(broker.shard.groups) == 1


async def test_group_with_offsets_that_raises_at_loading_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = CoordinatingBroker(tmp_path)
    await broker.serve()
    assert await commit_error(broker.request(COMMIT, 8, committing())) == 0
    broker.resign()
    breaking(monkeypatch, group_table, "_begin_sessions")
    await broker.serve(epoch=2)
    assert list(broker.shard.groups) == ["g"]
    assert "group g had an internal error" in caplog.text


@pytest.mark.parametrize("owner", [FakeVerifier, ProducerStateTable, GroupCoordinator])
async def test_transactional_offset_commit_with_a_raising_step_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any
) -> None:
    broker = CoordinatingBroker(tmp_path)
    await broker.serve()
    names = {FakeVerifier: "verify", ProducerStateTable: "begin_verification"}
    breaking(monkeypatch, owner, names.get(owner, "append_now"))
    asked = {"transactional_id": "tx", "producer_id": 7, "producer_epoch": 0, **committing()}
    assert await commit_error(broker.request(TXN_COMMIT, 3, asked)) == BROKEN


@pytest.mark.parametrize("version", range(10))
@pytest.mark.parametrize("is_static", [False, True])
async def test_join_group_for_which_the_generated_member_id_would_be_too_long_is_refused(
    tmp_path: Path, version: int, is_static: bool
) -> None:
    """Apache Kafka 4.3 refuses it as well, and creates no group for the member."""
    if is_static and version < 5:
        return
    broker = CoordinatingBroker(tmp_path)
    await broker.serve()
    asked = joining_as() | ({"group_instance_id": STRING_BYTES_MAX * "x"} if is_static else {})
    answer = broker.request(JOIN, version, asked, client_id="" if is_static else 32_740 * "x")
    assert await error_of(answer) == BROKEN
    assert not broker.shard.groups


async def test_join_group_in_slices_with_an_unencodable_answer_closes_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = CoordinatingBroker(tmp_path)
    await broker.serve()
    breaking(monkeypatch, members, "_join_answer", times=2)
    large = [{"name": f"p{n}", "metadata": bytes(100)} for n in range(100)]
    answer = broker.request(JOIN, 3, joining_as(protocols=large))
    assert await answer.value() is CLOSED
