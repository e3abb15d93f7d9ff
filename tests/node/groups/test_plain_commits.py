"""Test OffsetCommit requests of a few partitions, which are handled without a task."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from oncelog.coordinator.groups.records import (
    OffsetValue,
    encode_group_key,
    encode_offset_key,
    encode_offset_value,
)
from oncelog.node.groups.coordinator import OFFSETS_TOPIC
from oncelog.node.groups.shard import LOOK_AGAIN_MS, ShardState
from oncelog.node.handlers.groups import plain_commits
from oncelog.runtime.sliced_work import SlicedWork
from oncelog.runtime.turn_share import SHARE_S
from oncelog.wire.errors import CoordinatorNotAvailable
from oncelog.wire.records import Record, encode_batch

from ...awaiting import until
from ..coordinating_broker import CoordinatingBroker

COMMIT = 8


def committing(*names: str, group_id: str = "g", generation: int = -1) -> dict[str, Any]:
    """Return an OffsetCommit of offset 7 for partition 0 of each topic.

    A topic with an empty name has no partitions.
    """
    return {
        "group_id": group_id,
        "generation_id_or_member_epoch": generation,
        "topics": [
            {
                "name": name,
                "partitions": [{"partition_index": 0, "committed_offset": 7}] if name else [],
            }
            for name in names
        ],
    }


async def test_offset_commit_of_a_few_offsets_creates_no_task(tmp_path: Path) -> None:
    broker = CoordinatingBroker(tmp_path)
    await broker.serve(replicas=(1, 2))
    tasks = asyncio.all_tasks()
    answers = [broker.request(COMMIT, 8, committing(OFFSETS_TOPIC)) for _ in range(3)]
    assert asyncio.all_tasks() == tasks
    assert not any(answer.outcome.is_done for answer in answers)
    broker.replicate()
    assert all(answer.outcome.is_done for answer in answers)
    kept = broker.shard.offsets.fetch("g", OFFSETS_TOPIC, 0)
    assert kept is not None and kept.offset == 7


@pytest.mark.parametrize("version", range(2, 10))
async def test_offset_commit_with_a_nameless_empty_topic_is_answered(
    tmp_path: Path, version: int
) -> None:
    broker = CoordinatingBroker(tmp_path)
    await broker.serve()
    answer = await broker.ask(COMMIT, version, committing("", OFFSETS_TOPIC))
    rows = [
        (t.name, [(p.partition_index, p.error_code) for p in t.partitions]) for t in answer.topics
    ]
    assert rows == [("", []), (OFFSETS_TOPIC, [(0, 0)])]


async def test_offset_commit_answer_that_cannot_be_encoded_closes_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> bytes:
        raise KeyError("a defect")

    broker = CoordinatingBroker(tmp_path)
    await broker.serve(replicas=(1, 2))
    answer = broker.request(COMMIT, 8, committing(OFFSETS_TOPIC)).outcome
    monkeypatch.setattr(plain_commits, "_encoded", broken)
    broker.replicate()
    assert answer.is_done
    assert answer.close_reason == "the answer could not be encoded: KeyError('a defect')"


async def test_offset_commit_answer_with_an_error_is_not_cached(tmp_path: Path) -> None:
    broker = CoordinatingBroker(tmp_path)
    await broker.serve()
    kept = plain_commits.remembered_key, plain_commits._all_committed
    before = [each.cache_info().currsize for each in kept]
    for number in range(20):
        long_name = f"{number}-" + 8000 * "x"
        for asked in (
            committing(OFFSETS_TOPIC, group_id=long_name, generation=5),
            committing(OFFSETS_TOPIC, group_id=long_name),
            committing(long_name),
            {"group_id": "g", "topics": [{"name": long_name, "partitions": []}]},
        ):
            await broker.ask(COMMIT, 8, asked)
    await broker.ask(COMMIT, 8, committing(OFFSETS_TOPIC))
    after = [each.cache_info().currsize for each in kept]
    assert all(b - a <= 1 for a, b in zip(before, after, strict=True))


async def test_offset_commits_committed_together_are_replayed_in_steps(tmp_path: Path) -> None:
    """A follower that was paused replicates thousands of commits at once."""
    broker = CoordinatingBroker(tmp_path)
    await broker.serve(replicas=(1, 2))
    answers = [broker.request(COMMIT, 8, committing(OFFSETS_TOPIC)).outcome for _ in range(1_000)]
    broker.replicate()
    assert 0 < broker.shard.replayed < broker.partition().log.high_watermark == 1_000
    await until(lambda: all(answer.is_done for answer in answers))


async def test_offset_commit_committed_before_its_deadline_does_not_time_out_during_the_replay(
    tmp_path: Path,
) -> None:
    """The deadline of the commits is between two steps of the replay."""
    broker = CoordinatingBroker(tmp_path)
    await broker.serve(replicas=(1, 2))
    answers = [broker.request(COMMIT, 8, committing(OFFSETS_TOPIC)).outcome for _ in range(1_000)]
    record = encode_batch([Record(0, 0, encode_group_key("other"), None)])
    _, stored = broker.groups.append_now(broker.shard, record, is_group_record=True)
    shard, far_ms = broker.shard, broker.clock.monotonic_ms() + 3_600_000
    broker.replicate()
    assert shard.replayed < broker.partition().log.high_watermark
    assert not shard.fail_waiters(CoordinatorNotAvailable(), until_ms=far_ms)
    await stored
    assert all(answer.is_done for answer in answers)
    assert broker.shard is shard


async def test_offset_commit_deadlines_are_not_checked_while_the_replay_runs(tmp_path: Path):
    broker = CoordinatingBroker(tmp_path)
    await broker.serve(replicas=(1, 2))
    answers = [broker.request(COMMIT, 8, committing(OFFSETS_TOPIC)).outcome for _ in range(1_000)]
    shard, now_ms = broker.shard, broker.clock.monotonic_ms()
    assert shard.next_look_ms(now_ms) == shard.waiters[0].deadline_ms > now_ms
    last_ms = shard.waiters[-1].deadline_ms
    broker.replicate()
    assert shard.waiters and not shard.fail_waiters(CoordinatorNotAvailable(), until_ms=last_ms)
    assert shard.next_look_ms(last_ms) == last_ms + LOOK_AGAIN_MS
    await until(lambda: all(answer.is_done for answer in answers))


async def test_group_shards_with_high_watermarks_that_advance_together_share_the_loop_turn(
    tmp_path: Path,
) -> None:
    """A follower that was paused replicates the records of all partitions at once."""
    broker = CoordinatingBroker(tmp_path, offsets_topic_num_partitions="20")
    for index in range(20):
        broker.lead(replicas=(1, 2), index=index)
    await until(lambda: all(s.state is ShardState.SERVING for s in broker.groups.shards))
    value = encode_offset_value(OffsetValue(7, -1, "", 1, -1, bytes(16)))
    batch = encode_batch([Record(0, 1, encode_offset_key("g", "t", 0), value)])
    answers: list[Exception | None] = []
    for shard in broker.groups.shards:
        for _ in range(300):
            broker.groups.append_then(shard, batch, answers.append)
    ticks = itertools.count()
    broker.replicas.work = SlicedWork(lambda: next(ticks) * SHARE_S / 100)
    for index in range(20):
        broker.replicate(index)
    assert 0 < sum(shard.replayed for shard in broker.groups.shards) < 1_000
    await until(lambda: len(answers) == 6_000)
    assert not any(answers)
