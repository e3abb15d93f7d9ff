"""Test that commits of a member never overwrite the commits of a partition's next owner."""

import contextlib
from collections.abc import Mapping
from typing import Any

import pytest

from oncelog.client import Consumer, OffsetAndMetadata
from oncelog.client.blocking import BlockingConsumer
from oncelog.client.failures import CommitFailed
from oncelog.wire.identifiers import TopicPartition
from oncelog.wire.records import Record, encode_batch

NOWHERE = "127.0.0.1:1"
KEPT, GONE = ("t", 0), ("t", 1)
Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def member(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> list[Offsets]:
    """Make the consumer own the partitions KEPT and GONE in generation 6, and return a list of its
    commits.
    """
    assert consumer._member is not None
    committed: list[Offsets] = []

    async def commit(offsets: Offsets, *, by_itself: bool = False) -> None:
        committed.append(offsets)

    async def poll(deadline_ms: int) -> bool:
        return True

    monkeypatch.setattr(consumer._member.requests, "commit", commit)
    monkeypatch.setattr(consumer._member, "poll", poll)
    consumer.subscribe(["t"])
    joined(consumer, 6, {KEPT, GONE})
    consumer.assign({KEPT: 0, GONE: 0})
    for each in consumer._positions.states.values():
        each.load(encode_batch([Record(0, 1, None, b"v")], base_offset=0), None)
    return committed


def joined(consumer: Consumer, generation: int, owned: set[TopicPartition]) -> None:
    found: Any = consumer._member
    found.requests.member_id, found.requests.generation = "m", generation
    found.requests.joined()
    found.holding.partitions = owned


async def test_commit_for_partitions_of_another_member_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client itself refuses offsets after a cooperative rebalance between two polls.

    The broker would accept offsets of any member of the generation, and overwrite the offsets of
    the new owner.
    """
    consumer = Consumer(NOWHERE, group_id="g", enable_auto_commit=False)
    committed = member(consumer, monkeypatch)
    assert len(await consumer.poll(0)) == 2
    await consumer.commit({KEPT: 1, GONE: 1})
    joined(consumer, 7, {KEPT})
    with pytest.raises(CommitFailed, match="t/1"):
        await consumer.commit({KEPT: 1, GONE: 1})
    await consumer.commit({KEPT: 1})
    assert [set(each) for each in committed] == [{KEPT, GONE}, {KEPT}]
    await consumer.poll(0)
    await consumer.commit({GONE: 1})  # the caller knows of the loss by now, and commits on purpose
    assert [set(each) for each in committed] == [{KEPT, GONE}, {KEPT}, {GONE}]
    consumer.subscribe([])
    await consumer.close()


@pytest.mark.parametrize("is_interrupted", [False, True])
@pytest.mark.parametrize("is_blocking", [False, True])
async def test_consumer_block_commits_the_last_poll_unless_left_by_an_exception(
    monkeypatch: pytest.MonkeyPatch, is_interrupted: bool, is_blocking: bool
) -> None:
    blocking = BlockingConsumer(NOWHERE, group_id="g") if is_blocking else None
    consumer = Consumer(NOWHERE, group_id="g") if blocking is None else blocking._client
    committed = member(consumer, monkeypatch)
    reason = ValueError("a record that cannot be worked on")
    with contextlib.suppress(ValueError):
        if blocking is None:
            async with consumer:
                assert len(await consumer.poll(0)) == 2
                if is_interrupted:
                    raise reason
        else:
            with blocking:
                assert len(blocking.poll(0)) == 2
                if is_interrupted:
                    raise reason
    at = 0 if is_interrupted else 1
    assert [{key: each.offset for key, each in some.items()} for some in committed] == [
        {KEPT: at, GONE: at}
    ]


async def test_partition_with_a_failing_on_revoked_is_released_and_returns_no_more_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = Consumer(NOWHERE, group_id="g", enable_auto_commit=False)
    member(consumer, monkeypatch)
    given: list[list[TopicPartition]] = []

    async def on_revoked(_: Any) -> None:
        given.append([(r.topic, r.partition) for r in await consumer.poll(0)])
        raise ValueError("a callback that fails")

    assert consumer._member is not None
    holding = consumer._member.holding
    holding.listener.on_revoked = on_revoked
    await holding.revoke({GONE})
    assert given == [[KEPT]] and consumer.assignment == [KEPT]
    with pytest.raises(ValueError, match="fails"):
        holding.callbacks.raise_problem()
    holding.listener.on_revoked = None
    await consumer.close()


async def test_commit_for_partitions_revoked_since_the_last_poll_is_refused_in_any_generation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With group.protocol=consumer the new epoch arrives after the revocation."""
    consumer = Consumer(NOWHERE, group_id="g", enable_auto_commit=False)
    committed = member(consumer, monkeypatch)
    await consumer.poll(0)
    assert consumer._member is not None
    await consumer._member.holding.revoke({GONE})
    with pytest.raises(CommitFailed, match="t/1"):
        await consumer.commit({KEPT: 1, GONE: 1})
    await consumer.commit({KEPT: 1})
    await consumer.poll(0)
    await consumer.commit({GONE: 1})  # the caller knows of the loss by now, and commits on purpose
    assert [set(each) for each in committed] == [{KEPT}, {GONE}]
    await consumer.close()
