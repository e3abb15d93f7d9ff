"""Test rebalance callbacks that raise, wait or close the consumer.

Each callback is called once, and the rebalance continues.
"""

import asyncio
import contextlib

import pytest

from oncelog.client import Consumer
from oncelog.client.groups.member import GroupMember
from oncelog.client.groups.membership import LEAVES, NOWHERE
from oncelog.wire.identifiers import TopicPartition

from ...awaiting import until
from .scene import NO_BROKER, OF_P, OF_Q, P, Q, Scene


class Callback:
    """A rebalance callback that records its calls and raises ValueError."""

    def __init__(self) -> None:
        self.calls: list[list[TopicPartition]] = []

    def __call__(self, places: list[TopicPartition]) -> None:
        self.calls.append(places)
        raise ValueError(places)


class WaitingCallback:
    """A rebalance callback that records its calls and waits until the test ends it."""

    def __init__(self) -> None:
        self.calls: list[list[TopicPartition]] = []
        self.is_called, self.may_end = asyncio.Event(), asyncio.Event()

    async def __call__(self, places: list[TopicPartition]) -> None:
        self.calls.append(places)
        self.is_called.set()
        await self.may_end.wait()


async def test_on_revoked_that_raises_is_called_once_and_the_rebalance_continues(
    scene: Scene,
) -> None:
    on_revoked = Callback()
    async with scene.consumer:
        scene.subscribe(on_revoked=on_revoked)
        await scene.is_given(OF_P)
        await scene.has(OF_P)
        await scene.is_given(OF_Q)
        with pytest.raises(ValueError, match="'t', 0"):
            await scene.has(OF_Q)
        await scene.has(OF_Q)
        assert on_revoked.calls == [[P]] and scene.consumer.assignment == [Q]
        assert scene.happened[-1] == ("on_assigned", [Q])
        scene.subscribe()


async def test_first_error_of_a_rebalance_is_raised_by_a_poll_once(scene: Scene) -> None:
    on_revoked, on_assigned = Callback(), Callback()
    async with scene.consumer:
        scene.subscribe()
        await scene.is_given(OF_P)
        await scene.has(OF_P)
        scene.subscribe(on_assigned=on_assigned, on_revoked=on_revoked)
        await scene.is_given(OF_Q)
        with pytest.raises(ValueError, match="'t', 0"):
            await scene.has(OF_Q)
        await scene.has(OF_Q)
        assert (on_revoked.calls, on_assigned.calls) == ([[P]], [[Q]])
        scene.subscribe()


async def test_rebalance_callback_that_raises_during_a_leave_does_not_stop_the_leave(
    scene: Scene,
) -> None:
    on_revoked = Callback()
    async with scene.consumer:
        scene.subscribe(on_revoked=on_revoked)
        await scene.is_given(OF_P)
        await scene.has(OF_P)
        scene.consumer.subscribe([], on_revoked=on_revoked)
        with pytest.raises(ValueError, match="'t', 0"):
            await scene.polls_until(lambda: scene.said[-1].member_epoch == LEAVES)
        await scene.polls_until(lambda: scene.said[-1].member_epoch == LEAVES)
        assert on_revoked.calls == [[P]]


async def test_close_with_a_callback_that_raises_still_leaves_the_group(scene: Scene) -> None:
    scene.subscribe(on_revoked=Callback())
    await scene.is_given(OF_P)
    await scene.has(OF_P)
    with pytest.raises(ValueError, match="'t', 0"):
        await scene.consumer.close()
    assert scene.said[-1].member_epoch == LEAVES
    assert scene.member._membership.owned == NOWHERE


async def test_consumer_close_during_a_callback_waits_for_the_callback(scene: Scene) -> None:
    on_revoked = WaitingCallback()
    scene.subscribe(on_revoked=on_revoked)
    await scene.is_given(OF_P, OF_Q)
    await scene.has(OF_P, OF_Q)
    await scene.is_given(OF_Q)
    await scene.consumer.poll(0)
    await on_revoked.is_called.wait()
    closing = asyncio.create_task(scene.consumer.close())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not closing.done() and scene.said[-1].member_epoch != LEAVES
    on_revoked.may_end.set()
    await closing
    assert on_revoked.calls == [[P], [Q]]
    assert scene.said[-1].member_epoch == LEAVES


async def test_cancelled_close_cancels_a_callback_that_does_not_end(scene: Scene) -> None:
    on_revoked = WaitingCallback()
    scene.subscribe(on_revoked=on_revoked)
    await scene.is_given(OF_P)
    await scene.has(OF_P)
    await scene.is_given()
    await scene.consumer.poll(0)
    await on_revoked.is_called.wait()
    closing = asyncio.create_task(scene.consumer.close())
    for _ in range(10):
        await asyncio.sleep(0)
    closing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await closing
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


async def test_close_in_a_callback_is_refused_and_the_member_continues(scene: Scene) -> None:
    async def on_revoked(_: list[TopicPartition]) -> None:
        await scene.consumer.close()

    async with scene.consumer:
        scene.subscribe(on_revoked=on_revoked)
        await scene.is_given(OF_P)
        await scene.has(OF_P)
        await scene.is_given(OF_Q)
        with pytest.raises(RuntimeError, match="may not wait for its own client"):
            await scene.has(OF_Q)
        await scene.has(OF_Q)
        scene.subscribe()


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
async def test_classic_member_with_on_revoked_that_raises_still_gets_its_assignment(
    monkeypatch: pytest.MonkeyPatch, assignor: str
) -> None:
    on_revoked, taken = Callback(), list[TopicPartition]()
    given = {"group_id": "g", "enable_auto_commit": False}
    consumer = Consumer(NO_BROKER, partition_assignment_strategy=[assignor], **given)
    member = consumer._member
    assert isinstance(member, GroupMember)
    member.holding.partitions = {P}
    consumer.subscribe(["t"], on_revoked=on_revoked, on_assigned=taken.extend)

    async def join() -> None:
        member._must_join = False
        await member._take({Q})

    monkeypatch.setattr(member, "_join", join)
    async with asyncio.timeout(10):
        with pytest.raises(ValueError, match="'t', 0"):
            while member.holding.partitions != {Q}:
                await member.poll(1 << 60)
        while member._must_join:
            await member.poll(1 << 60)
    assert on_revoked.calls == [[P]] and taken == [Q]
    consumer.subscribe(["t"])
    await consumer.close()
