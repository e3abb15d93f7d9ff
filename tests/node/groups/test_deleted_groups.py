"""Test the deletion of groups, which requests do not undo.

Only an offset that was appended before the deletion, and is committed later, keeps the group.
"""

from pathlib import Path
from typing import Any

import pytest

from oncelog.coordinator.groups import group_table
from oncelog.coordinator.groups.records import (
    OffsetValue,
    encode_offset_key,
    encode_offset_value,
)
from oncelog.coordinator.metadata.commands import (
    CreateTopics,
    DeleteTopics,
    NewTopic,
    TopicReference,
)
from oncelog.node.groups.coordinator import OFFSETS_TOPIC
from oncelog.node.handlers.groups import offset_commits
from oncelog.runtime.steps import Steps
from oncelog.wire.errors import ErrorCode
from oncelog.wire.records import Record, encode_batch

from ...awaiting import turns_until
from ..coordinating_broker import CoordinatingBroker
from ..fake_broker import Answer

COMMIT, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE = 8, 12, 13, 14, 15, 16, 42
OFFSET_FETCH, OFFSET_DELETE = 9, 47


def committing(topic: str = OFFSETS_TOPIC, group_id: str = "g") -> dict[str, Any]:
    partitions = [{"partition_index": 0, "committed_offset": 7}]
    return {"group_id": group_id, "topics": [{"name": topic, "partitions": partitions}]}


def deleting(group_id: str = "g") -> dict[str, Any]:
    return {"groups_names": [group_id]}


def one_offset(partition: int) -> bytes:
    key = encode_offset_key("g", OFFSETS_TOPIC, partition)
    return encode_batch([Record(0, 1, key, encode_offset_value(OffsetValue(5, -1, "", 1)))])


async def replicated(tmp_path: Path) -> CoordinatingBroker:
    """Return a coordinator with a follower. `replicate` lets the follower fetch the log."""
    broker = CoordinatingBroker(tmp_path)
    await broker.serve(replicas=(1, 2))
    return broker


async def begun_deletion(broker: CoordinatingBroker) -> Answer:
    """Send DeleteGroups, and return its pending answer when the tombstones are in the log."""
    log = broker.partition().log
    before = log.log_end_offset
    deleted = broker.request(DELETE, 2, deleting())
    await turns_until(lambda: log.log_end_offset > before)
    return deleted


async def listed(broker: CoordinatingBroker) -> list[str]:
    return [group.group_id for group in (await broker.ask(LIST, 5, {})).groups]


QUESTIONS: list[tuple[int, int, dict[str, Any]]] = [
    (DESCRIBE, 6, {"groups": ["g"]}),
    (OFFSET_FETCH, 5, {"group_id": "g", "topics": None}),
    (OFFSET_FETCH, 8, {"groups": [{"group_id": "g", "topics": None}]}),
    (OFFSET_DELETE, 0, {"group_id": "g", "topics": [{"name": "t", "partitions": []}]}),
    (DELETE, 2, deleting()),
    (HEARTBEAT, 4, {"group_id": "g", "generation_id": 1, "member_id": "m"}),
    (LEAVE, 3, {"group_id": "g", "members": [{"member_id": "m"}]}),
    (SYNC, 3, {"group_id": "g", "generation_id": 1, "member_id": "m", "assignments": []}),
    (COMMIT, 8, committing() | {"generation_id_or_member_epoch": 1, "member_id": "m"}),
]


@pytest.mark.parametrize(("api_key", "version", "question"), QUESTIONS)
async def test_deleted_group_is_not_recreated_by_requests_during_the_deletion(
    tmp_path: Path, api_key: int, version: int, question: dict[str, Any]
) -> None:
    broker = await replicated(tmp_path)
    committed = broker.request(COMMIT, 8, committing())
    broker.replicate()
    assert committed.outcome.is_done and await listed(broker) == ["g"]
    deleted = await begun_deletion(broker)
    await broker.ask(api_key, version, question)
    assert await listed(broker) == []
    broker.replicate()
    (result,) = (await deleted.value()).results
    assert result.error_code == ErrorCode.NONE
    assert await listed(broker) == []
    (again,) = (await broker.ask(DELETE, 2, deleting())).results
    assert again.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_group_deletion_with_an_uncommitted_first_offset_of_a_partition_keeps_the_group(
    tmp_path: Path,
) -> None:
    """The deletion has no tombstone for an offset that is committed after the deletion began."""
    broker = await replicated(tmp_path)
    broker.request(COMMIT, 8, committing())
    broker.replicate()
    shard = broker.shard
    broker.groups.append_now(shard, one_offset(1))
    deleted = await begun_deletion(broker)
    assert await listed(broker) == []
    broker.replicate()
    assert (await deleted.value()).results[0].error_code == ErrorCode.NONE
    assert shard.offsets.committed("g") == [(OFFSETS_TOPIC, 1)]
    assert await listed(broker) == ["g"]


async def test_group_deletion_with_an_uncommitted_later_offset_of_a_partition_removes_the_group(
    tmp_path: Path,
) -> None:
    """A partition with a committed offset has a second commit, which is not replicated yet."""
    broker = await replicated(tmp_path)
    broker.request(COMMIT, 8, committing())
    broker.replicate()
    broker.request(COMMIT, 8, committing())
    deleted = await begun_deletion(broker)
    broker.replicate()
    assert (await deleted.value()).results[0].error_code == ErrorCode.NONE
    assert not broker.shard.offsets.size
    assert await listed(broker) == []


async def test_group_shard_above_its_limit_of_groups_serves_every_existing_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = CoordinatingBroker(tmp_path)
    await broker.serve()
    for group_id in ("g", "h"):
        await broker.ask(COMMIT, 8, committing(group_id=group_id))
    broker.resign()
    monkeypatch.setattr(group_table, "GROUPS_MAX", 1)
    await broker.serve(epoch=2)
    assert sorted(await listed(broker)) == ["g", "h"]
    refused = await broker.ask(COMMIT, 8, committing(group_id="i"))
    assert refused.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("is_made_again", [False, True])
async def test_offset_commit_to_a_topic_deleted_during_its_check_is_refused_and_stores_no_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_made_again: bool
) -> None:
    """The topic is deleted while a commit is checked. An offset's key has only the topic's name."""
    broker = CoordinatingBroker(tmp_path)
    await broker.serve()
    checking, apply = offset_commits.SortedCommit.checking_room, broker.fake.controller.apply
    apply(CreateTopics((NewTopic("t", bytes(range(1, 17)), 200, 1),)))

    def deleting_the_topic(commit: Any, table: Any) -> Steps[None]:
        apply(DeleteTopics((TopicReference("t"),)))
        if is_made_again:
            apply(CreateTopics((NewTopic("t", bytes(range(2, 18)), 200, 1),)))
        yield from checking(commit, table)

    monkeypatch.setattr(offset_commits.SortedCommit, "checking_room", deleting_the_topic)
    indexes = [{"partition_index": n, "committed_offset": 6} for n in range(200)]
    values = {"group_id": "g", "topics": [{"name": "t", "partitions": indexes}]}
    answer = await broker.ask(COMMIT, 8, values)
    errors = {each.error_code for each in answer.topics[0].partitions}
    assert errors == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert not broker.shard.offsets.size
