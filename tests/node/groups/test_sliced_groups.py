"""Test long work of groups and offsets, which runs in steps beside other requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.coordinator.groups.records import (
    GroupValue,
    MemberValue,
    OffsetValue,
    encode_offset_key,
    encode_offset_value,
)
from oncelog.coordinator.metadata.cluster_model import Changes
from oncelog.coordinator.metadata.commands import CreateTopics, NewTopic
from oncelog.node.groups import turn_execution
from oncelog.node.groups.coordinator import DEADLINES_AT_ONCE
from oncelog.node.groups.removal import OffsetExpiry, forget_deleted_topics
from oncelog.node.groups.shard import GroupShard, ShardState
from oncelog.node.handlers.groups import offset_commits
from oncelog.node.handlers.groups.admin import GROUPS_A_STEP
from oncelog.node.handlers.groups.committed_offsets import OFFSETS_A_STEP, offset_fetch
from oncelog.runtime.sliced_work import SlicedWork
from oncelog.runtime.steps import Steps
from oncelog.wire.errors import CoordinatorLoadInProgress, ErrorCode, NotCoordinator
from oncelog.wire.messages.api_keys import DELETE_GROUPS, LIST_GROUPS
from oncelog.wire.records import Record, encode_batch

from ...awaiting import settle, turns_until
from ..coordinating_broker import CoordinatingBroker

OFFSETS = 1_300
OFFSET_COMMIT, JOIN_GROUP, LEAVE_GROUP, OFFSET_DELETE = 8, 11, 13, 47


class Broker(CoordinatingBroker):
    """A coordinator with one step in each slice of its work."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        ticks = iter(range(1 << 30))
        self.replicas.work = SlicedWork(lambda: next(ticks) * 0.003)


@pytest.fixture
@asynccontextmanager
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    broker = Broker(tmp_path)
    await broker.serve()
    yield broker
    broker.groups.stop()


def commits(
    count: int, *, group: str = "g", topic: str = "t", producer_id: int | None = None
) -> bytes:
    """Return a batch with a committed offset for each of `count` partitions of a topic."""
    value = encode_offset_value(OffsetValue(5, -1, "", 1, -1, bytes(16)))
    records = [Record(n, 1, encode_offset_key(group, topic, n), value) for n in range(count)]
    if producer_id is None:
        return encode_batch(records)
    return encode_batch(records, transactional=True, producer_id=producer_id, producer_epoch=0)


async def test_offset_commit_that_is_large_is_replayed_in_steps_and_then_answered(
    broker: Broker,
) -> None:
    shard = broker.shard
    _, done = broker.groups.append_now(shard, commits(OFFSETS))
    sizes = [0]
    while not done.done():
        await asyncio.sleep(0)
        sizes.append(shard.offsets.size)
    assert shard.offsets.size == OFFSETS
    assert len(set(sizes)) > OFFSETS // 64 // 4


async def test_offset_commit_with_many_offsets_is_checked_and_encoded_in_steps(
    broker: Broker,
) -> None:
    in_steps(broker)
    steps = 0

    def counted(name: str, job: Steps[Any]) -> Steps[Any]:
        nonlocal steps
        while True:
            try:
                next(job)
            except StopIteration as end:
                return end.value
            steps += name == "OffsetCommit"
            yield

    finish = broker.services.work.finish
    broker.services.work.finish = lambda name, job: finish(name, counted(name, job))  # type: ignore[method-assign]
    indexes = [{"partition_index": n, "committed_offset": 5} for n in range(OFFSETS + 1)]
    values = {"group_id": "g", "topics": [{"name": "t", "partitions": indexes}]}
    answer = await broker.ask(OFFSET_COMMIT, 7, values)
    errors = [each.error_code for each in answer.topics[0].partitions]
    assert errors == [0] * OFFSETS + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert broker.shard.offsets.size == OFFSETS
    assert steps == 13 + 13 + 10  # steps of the checks, the records and the encoding


async def test_offset_commit_that_is_small_is_replayed_immediately(broker: Broker) -> None:
    broker.groups.append_now(broker.shard, commits(10))
    assert await turns_until(lambda: broker.shard.offsets.size == 10) <= 2


async def test_group_too_large_for_a_batch_is_not_encoded(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of 1,000 members may have 18 MB, and takes 80 ms to encode."""
    member = MemberValue("m", None, "c", "h", 1, 1, bytes(2 << 20), b"")
    value = GroupValue("consumer", 1, "range", "m", 1, (member,))
    errors: list[int] = []
    turn = broker.shard.turn()
    turn.store("g", value, lambda error, _: errors.append(error))
    monkeypatch.setattr(turn_execution, "encode_batch", None)
    broker.groups.execute(broker.shard, turn)
    assert errors == [ErrorCode.UNKNOWN_SERVER_ERROR]


async def test_groups_are_loaded_in_steps_and_served_when_complete(
    tmp_path: Path, broker: Broker
) -> None:
    for number in range(300):
        await broker.groups.append(broker.shard, commits(3, group=f"g{number}"))
    await broker.groups.append(broker.shard, commits(OFFSETS))
    broker.resign()
    assert not broker.groups.shards
    again = Broker(tmp_path)
    again.lead(epoch=2)
    with pytest.raises(CoordinatorLoadInProgress):
        _ = again.shard
    turns = await turns_until(lambda: again.groups.shards[0].state is ShardState.SERVING)
    assert turns > 300 // 4
    assert again.shard.offsets.size == OFFSETS + 900
    assert len(again.shard.groups) == 301
    again.groups.stop()


async def test_group_sessions_that_expire_together_end_a_few_at_a_time(broker: Broker) -> None:
    """All clients have disappeared before a new coordinator has loaded their groups."""
    shard, table = broker.shard, broker.shard.table
    member = MemberValue("m", None, "c", "h", 1_000, 1, b"", b"")
    value = GroupValue("consumer", 1, "range", "m", 1, (member,))
    for number in range(200):
        table.replay(f"g{number}", value)
    shard.on_loaded(list(table.groups), turn := shard.turn())
    broker.groups.execute(shard, turn)
    left = [200]
    while left[-1]:
        await asyncio.sleep(0)
        left.append(sum(bool(group.members) for group in table.groups.values()))
    assert max(a - b for a, b in pairwise(left)) <= DEADLINES_AT_ONCE


async def test_group_shard_that_resigns_while_it_replays_a_batch_stops_the_replay(
    broker: Broker,
) -> None:
    shard = broker.shard
    _, done = broker.groups.append_now(shard, commits(OFFSETS))
    await turns_until(lambda: shard.offsets.size > 0)
    assert shard.offsets.size < OFFSETS
    broker.resign()
    with pytest.raises(NotCoordinator):
        await done
    await turns_until(lambda: not shard.is_replaying and not shard.offsets.size)
    assert not shard.offsets.group_ids()


async def test_group_shard_that_resigns_while_it_replays_a_marker_stops_the_replay(
    broker: Broker,
) -> None:
    shard = broker.shard
    guard = broker.partition().log.producer_state.begin_verification(7, 0, -1, now_ms=1)
    await broker.groups.append(shard, commits(OFFSETS, producer_id=7), guard=guard)
    broker.commit_transaction()
    await turns_until(lambda: shard.offsets.count("g") > 0)
    assert shard.offsets.count("g") < OFFSETS == shard.offsets.size
    broker.resign()
    await turns_until(lambda: not shard.is_replaying and not shard.offsets.size)
    assert not shard.offsets.group_ids()


async def test_many_offsets_of_one_group_expire_with_their_group(
    broker: Broker,
) -> None:
    await broker.groups.append(broker.shard, commits(OFFSETS))
    await broker.groups.append(broker.shard, commits(2, group="h"))
    for group_id in ("g", "h"):
        broker.shard.table.obtain_simple(group_id, 1)
    expiry = OffsetExpiry(broker.groups, retention_ms=1, interval_ms=1_000_000)
    await expiry.look_at(broker.shard)
    await expiry.stop()
    assert not broker.shard.offsets.size
    assert not broker.shard.groups


async def test_offsets_of_deleted_topics_are_removed_in_steps(broker: Broker) -> None:
    for group in ("g", "h", "i"):
        for topic in ("t", "u", "v"):
            await broker.groups.append(broker.shard, commits(OFFSETS, group=group, topic=topic))
    changes = Changes(topics_deleted=[("t", bytes(16)), ("u", bytes(16))])
    forget_deleted_topics(broker.groups, changes)
    assert broker.shard.offsets.size == 9 * OFFSETS
    await turns_until(lambda: broker.shard.offsets.size == 3 * OFFSETS)
    assert broker.shard.offsets.count("h") == OFFSETS


async def test_uncommitted_offset_of_a_recreated_topic_is_not_removed(tmp_path: Path) -> None:
    """A tombstone for the old topic would remove the offset that was committed for the new one."""
    broker = Broker(tmp_path)
    await broker.serve(replicas=(1, 2))
    shard = broker.shard
    for group in ("g", "h"):
        broker.groups.append_now(shard, commits(OFFSETS, group=group))
    broker.replicate()
    await turns_until(lambda: shard.offsets.size == 2 * OFFSETS)
    forget_deleted_topics(broker.groups, Changes(topics_deleted=[("t", bytes(16))]))
    in_steps(broker)  # makes a topic of the same name
    last = {"partition_index": OFFSETS - 1, "committed_offset": 77}
    values = {"topics": [{"name": "t", "partitions": [last]}]}
    sent = [broker.request(OFFSET_COMMIT, 8, {"group_id": id_, **values}) for id_ in "gh"]
    await settle(50)
    while any(not each.is_there for each in sent):
        broker.replicate()
        await asyncio.sleep(0)
    for each in sent:
        assert (await each.value()).topics[0].partitions[0].error_code == 0
    broker.replicate()
    await turns_until(lambda: not shard.is_replaying and not shard.waiters)
    stored = [shard.offsets.fetch(group, "t", OFFSETS - 1) for group in "gh"]
    assert [value and value.offset for value in stored] == [77, 77]
    broker.groups.stop()


def fetching(broker: Broker, indexes: range | None) -> "asyncio.Task[Any]":
    """Return a task of an OffsetFetch of some partitions, or of all for None."""
    topics = [SimpleNamespace(name="t", partition_indexes=list(indexes))] if indexes else None
    request: Any = SimpleNamespace(groups=[SimpleNamespace(group_id="g", topics=topics)])
    context: Any = SimpleNamespace(broker=broker.services)
    header: Any = SimpleNamespace(api_version=9)

    async def fetched() -> Any:
        steps = await offset_fetch(context, header, request)  # type: ignore[arg-type]
        return await broker.services.work.finish("OffsetFetch", steps)

    return asyncio.ensure_future(fetched())


@pytest.mark.parametrize("indexes", [None, range(OFFSETS)])
async def test_offset_fetch_of_many_offsets_runs_in_steps_and_is_refused_after_a_resignation(
    indexes: range | None, broker: Broker
) -> None:
    broker.services.work = broker.replicas.work
    _, done = broker.groups.append_now(broker.shard, commits(OFFSETS))
    await done
    task = fetching(broker, indexes)
    assert await turns_until(task.done) >= OFFSETS // OFFSETS_A_STEP
    (group,) = task.result()["groups"]
    (topic,) = group["topics"]
    found = [(each["partition_index"], each["committed_offset"]) for each in topic["partitions"]]
    assert found == [(n, 5) for n in range(OFFSETS)]
    task = fetching(broker, indexes)
    await settle(4)
    assert not task.done()
    broker.resign()
    (group,) = (await task)["groups"]
    assert (group["error_code"], group["topics"]) == (ErrorCode.NOT_COORDINATOR, [])


def in_steps(broker: Broker) -> None:
    broker.services.work = broker.replicas.work
    command = CreateTopics((NewTopic("t", bytes(range(1, 17)), OFFSETS, 1),))
    assert not broker.fake.controller.apply(command).items[0].error


async def with_offsets(broker: Broker) -> GroupShard:
    in_steps(broker)
    shard = broker.shard
    shard.table.obtain_simple("g", 1)  # as the check of a commit does
    await broker.groups.append(shard, commits(OFFSETS))
    return shard


def deletion(api_key: int) -> dict[str, Any]:
    indexes = [{"partition_index": n} for n in range(OFFSETS)]
    of_offsets = {"group_id": "g", "topics": [{"name": "t", "partitions": indexes}]}
    return of_offsets if api_key == OFFSET_DELETE else {"groups_names": ["g"]}


@pytest.mark.parametrize("turns", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("api_key", [OFFSET_DELETE, DELETE_GROUPS])
async def test_group_deletion_with_a_member_joining_meanwhile_deletes_all_offsets_or_none(
    api_key: int, turns: int, broker: Broker
) -> None:
    join = {"group_id": "g", "member_id": "", "session_timeout": 10_000}
    join |= {"protocol_type": "connect", "protocols": [{"name": "range", "metadata": b""}]}
    shard = await with_offsets(broker)
    deleting = asyncio.ensure_future(broker.ask(api_key, 0, deletion(api_key)))
    await settle(turns)
    joining = asyncio.ensure_future(broker.ask(JOIN_GROUP, 0, join))
    answer = await deleting
    error = answer if api_key == OFFSET_DELETE else answer.results[0]
    await broker.groups.until_settled(shard)
    left = {ErrorCode.NONE: 0, ErrorCode.NON_EMPTY_GROUP: OFFSETS}
    assert shard.offsets.size == left[ErrorCode(error.error_code)]
    joining.cancel()


@pytest.mark.parametrize("api_key", [OFFSET_DELETE, DELETE_GROUPS])
async def test_offset_deletion_of_many_offsets_is_one_batch(api_key: int, broker: Broker) -> None:
    shard = await with_offsets(broker)
    deleting = asyncio.ensure_future(broker.ask(api_key, 0, deletion(api_key)))
    if api_key == DELETE_GROUPS:  # offsets committed meanwhile are deleted, too
        await asyncio.sleep(0)
        _, done = broker.groups.append_now(shard, commits(1, topic="u"))
        await done
    assert await written_first(broker) == OFFSETS + 2 * (api_key == DELETE_GROUPS)
    answer = await deleting
    errors = answer.topics[0].partitions if api_key == OFFSET_DELETE else answer.results
    assert {each.error_code for each in errors} == {0}
    assert not shard.offsets.size
    assert ("g" in shard.groups) == (api_key == OFFSET_DELETE)


async def test_offset_deletion_of_a_topic_subscribed_meanwhile_is_refused(broker: Broker) -> None:
    shard = await with_offsets(broker)
    deleting = asyncio.ensure_future(broker.ask(OFFSET_DELETE, 0, deletion(OFFSET_DELETE)))
    await asyncio.sleep(0)
    shard.check_offset_delete = lambda _: frozenset("t")  # type: ignore[method-assign]
    errors = {each.error_code for each in (await deleting).topics[0].partitions}
    assert errors == {ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    assert shard.offsets.size == OFFSETS


async def written_first(broker: Broker) -> int:
    """Return the number of records of the next append to the log."""
    log = broker.partition().log
    before = log.log_end_offset
    await turns_until(lambda: log.log_end_offset > before)
    return log.log_end_offset - before


@pytest.mark.parametrize("api_key", [OFFSET_DELETE, DELETE_GROUPS])
async def test_offset_deletion_ended_by_a_resignation_answers_not_coordinator(
    api_key: int, broker: Broker
) -> None:
    shard = await with_offsets(broker)
    deleting = asyncio.ensure_future(broker.ask(api_key, 0, deletion(api_key)))
    await asyncio.sleep(0)
    broker.resign()
    await turns_until(lambda: not shard.offsets.group_ids())
    answer = await deleting
    error = answer if api_key == OFFSET_DELETE else answer.results[0]
    assert error.error_code == ErrorCode.NOT_COORDINATOR
    assert broker.partition().log.log_end_offset == OFFSETS


async def test_list_groups_of_many_groups_runs_in_steps_and_omits_deleted_groups(
    broker: Broker,
) -> None:
    broker.services.work = broker.replicas.work
    groups = [f"g{n}" for n in range(3 * GROUPS_A_STEP)]
    for group_id in groups:
        broker.shard.table.obtain_simple(group_id, 1)
    values = {"states_filter": [], "types_filter": []}
    task = asyncio.ensure_future(broker.ask(LIST_GROUPS, 5, values))
    assert await turns_until(task.done) >= 3
    assert [each.group_id for each in task.result().groups] == groups
    task = asyncio.ensure_future(broker.ask(LIST_GROUPS, 5, values))
    await asyncio.sleep(0)
    gone = groups[-GROUPS_A_STEP:]
    for group_id in gone:
        del broker.shard.table.groups[group_id]
    assert [each.group_id for each in (await task).groups] == groups[:-GROUPS_A_STEP]
    broker.shard.table.groups.clear()


@pytest.mark.parametrize(("members", "is_at_once"), [(0, True), (50, True), (51, False)])
async def test_leave_group_of_a_few_members_is_answered_immediately(
    members: int, is_at_once: bool, broker: Broker
) -> None:
    broker.services.work = broker.replicas.work
    leaving = [{"member_id": f"m{n}", "group_instance_id": None} for n in range(members)]
    answer = broker.request(LEAVE_GROUP, 5, {"group_id": "g", "members": leaving})
    assert answer.is_there == is_at_once
    errors = [each.error_code for each in (await answer.value()).members]
    assert errors == [ErrorCode.UNKNOWN_MEMBER_ID] * members


async def test_leave_group_answers_each_member_when_the_coordinator_resigns_midway(
    broker: Broker,
) -> None:
    """Members without an answer would repeat the request, and get an error for unknown members."""
    broker.services.work = broker.replicas.work
    leaving = [{"member_id": f"m{n}", "group_instance_id": None} for n in range(120)]
    leave = broker.request(LEAVE_GROUP, 5, {"group_id": "g", "members": leaving})
    await asyncio.sleep(0)
    broker.resign()
    answer = await leave.value()
    assert answer.error_code == ErrorCode.NONE
    errors = [each.error_code for each in answer.members]
    count = errors.index(ErrorCode.NOT_COORDINATOR)
    assert count in (50, 100)
    assert errors[:count] == [ErrorCode.UNKNOWN_MEMBER_ID] * count
    assert errors[count:] == [ErrorCode.NOT_COORDINATOR] * (120 - count)


async def test_offset_commit_is_not_checked_against_groups_of_a_resigned_shard(
    monkeypatch: pytest.MonkeyPatch, broker: Broker
) -> None:
    """The error of a fenced member would be wrong, since the new coordinator knows the member."""
    in_steps(broker)
    await broker.groups.append(broker.shard, commits(OFFSETS))
    monkeypatch.setattr(offset_commits, "OFFSETS_MAX", OFFSETS)  # each offset is looked up
    indexes = [{"partition_index": n, "committed_offset": 6} for n in range(OFFSETS)]
    values = {
        "group_id": "g",
        "generation_id_or_member_epoch": 3,
        "member_id": "m",
        "topics": [{"name": "t", "partitions": indexes}],
    }
    checking = offset_commits.SortedCommit.checking_room

    def resigning(commit: Any, table: Any) -> Steps[None]:
        broker.resign()
        yield from checking(commit, table)

    monkeypatch.setattr(offset_commits.SortedCommit, "checking_room", resigning)
    answer = await broker.ask(OFFSET_COMMIT, 8, values)
    errors = {each.error_code for each in answer.topics[0].partitions}
    assert errors == {ErrorCode.NOT_COORDINATOR}
