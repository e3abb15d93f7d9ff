"""Test that a closed consumer raises, and a cancelled close leaves no task running."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from oncelog.client import Consumer
from oncelog.client.failures import ClientClosed
from oncelog.client.group_metadata import GroupMetadata

from ..awaiting import until

NOWHERE = "127.0.0.1:1"
PLACE = ("t", 0)
CALLS: dict[str, Callable[[Consumer], Any]] = {
    "poll": lambda c: c.poll(0),
    "poll_columns": lambda c: c.poll_columns(0),
    "poll_batches": lambda c: c.poll_batches(0),
    "commit": lambda c: c.commit(),
    "commit of offsets": lambda c: c.commit({PLACE: 1}),
    "committed": lambda c: c.committed([PLACE]),
    "subscribe": lambda c: c.subscribe(["t"]),
    "assign": lambda c: c.assign([PLACE]),
    "position": lambda c: c.position(*PLACE),
    "seek": lambda c: c.seek(*PLACE, 0),
    "seek_to_beginning": lambda c: c.seek_to_beginning(),
    "seek_to_end": lambda c: c.seek_to_end([PLACE]),
    "pause": lambda c: c.pause(PLACE),
    "resume": lambda c: c.resume(PLACE),
    "beginning_offsets": lambda c: c.beginning_offsets([PLACE]),
    "end_offsets": lambda c: c.end_offsets([PLACE]),
    "offsets_for_times": lambda c: c.offsets_for_times({PLACE: 0}),
    "group_metadata": lambda c: c.group_metadata(),
}


@pytest.mark.parametrize("name", CALLS)
async def test_consumer_call_after_close_raises(name: str) -> None:
    consumer = Consumer(NOWHERE, group_id="g", enable_auto_commit=False)
    consumer.assign({PLACE: 0})
    await consumer.close()
    await consumer.close()
    assert consumer.assignment == []
    with pytest.raises(ClientClosed, match="the consumer is closed"):
        made = CALLS[name](consumer)
        if asyncio.iscoroutine(made):
            await made


@pytest.mark.parametrize("group_id", [None, "g"])
async def test_poll_is_ended_by_a_close_of_another_task(group_id: str | None) -> None:
    consumer = Consumer(NOWHERE, group_id=group_id, enable_auto_commit=False)
    if group_id is None:
        consumer.assign({PLACE: 0})
    else:
        consumer.subscribe(["t"])
    poll = asyncio.create_task(consumer.poll(60_000))
    await asyncio.sleep(0)
    await consumer.close()
    async with asyncio.timeout(10):
        with pytest.raises(ClientClosed):
            await poll


async def test_consumer_callbacks_during_close_can_commit_and_are_refused_a_poll() -> None:
    """Kafka's consumer also calls the callbacks before it leaves the group, and then closes."""
    consumer = Consumer(NOWHERE, group_id="g", enable_auto_commit=False)
    committed, said = [], []

    async def commit(offsets: Any) -> None:
        committed.append(offsets)

    async def on_revoked(_: Any) -> None:
        await consumer.commit({PLACE: 1})
        with contextlib.suppress(ClientClosed):
            await consumer.poll(0)
            said.append("a poll went on")

    consumer.subscribe(["t"], on_revoked=on_revoked)
    member = consumer._member
    assert member is not None
    member.holding.partitions = {PLACE}
    consumer._membership = member.requests.metadata
    assert isinstance(consumer._membership, GroupMetadata)
    consumer._commit = commit  # type: ignore[method-assign]
    await consumer.close()
    assert len(committed) == 1 and not said


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5])
async def test_consumer_close_that_was_cancelled_leaves_no_task_running(steps: int) -> None:
    consumer = Consumer(NOWHERE, group_id="g", enable_auto_commit=False)
    consumer.subscribe(["t"])
    await consumer.poll(20)
    closing = asyncio.create_task(consumer.close())
    for _ in range(steps):
        await asyncio.sleep(0)
    closing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await closing
    if steps:  # without steps, the closing has not begun
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
        with pytest.raises(ClientClosed):
            await consumer.poll(0)
    await consumer.close()
