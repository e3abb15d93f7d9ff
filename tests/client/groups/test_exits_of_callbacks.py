"""Test rebalance callbacks that raise SystemExit or another BaseException."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import pytest

from oncelog.client import BlockingConsumer
from oncelog.client.groups.membership import LEAVES, MembershipState
from oncelog.wire.errors import UnreleasedInstanceId
from oncelog.wire.identifiers import TopicPartition

from .scene import OF_P, OF_Q, Q, Scene

TIMEOUT_S = 20.0


class Leave(BaseException):
    """An exception of the application that no `except Exception` takes."""


@pytest.fixture(params=[SystemExit, Leave])
def leave(request: pytest.FixtureRequest) -> type[BaseException]:
    return request.param


def called(leave: type[BaseException]) -> Callable[[list[TopicPartition]], None]:
    def on_revoked(_: list[TopicPartition]) -> None:
        raise leave(3)

    return on_revoked


def awaited(leave: type[BaseException]) -> Callable[[list[TopicPartition]], Awaitable[None]]:
    async def on_revoked(_: list[TopicPartition]) -> None:
        await asyncio.sleep(0)
        raise leave(3)

    return on_revoked


@pytest.fixture(params=[called, awaited])
def on_revoked(request: pytest.FixtureRequest, leave: type[BaseException]) -> Any:
    return request.param(leave)


async def test_exit_of_a_callback_is_raised_by_the_poll_once_and_the_rebalance_continues(
    scene: Scene, leave: type[BaseException], on_revoked: Any
) -> None:
    async with scene.consumer:
        scene.subscribe(on_revoked=on_revoked)
        await scene.is_given(OF_P)
        await scene.has(OF_P)
        await scene.is_given(OF_Q)
        with pytest.raises(leave):
            await scene.has(OF_Q)
        await scene.has(OF_Q)
        assert scene.consumer.assignment == [Q]
        scene.subscribe()


async def test_exit_of_a_callback_is_raised_by_the_close_that_leaves_the_group(
    scene: Scene, leave: type[BaseException], on_revoked: Any
) -> None:
    scene.subscribe(on_revoked=on_revoked)
    await scene.is_given(OF_P)
    await scene.has(OF_P)
    with pytest.raises(leave):
        await scene.consumer.close()
    assert scene.said[-1].member_epoch == LEAVES
    await scene.consumer.close()


async def test_exit_of_a_callback_is_raised_before_the_error_that_ended_the_membership(
    scene: Scene, leave: type[BaseException]
) -> None:
    scene.subscribe(on_lost=called(leave))
    await scene.is_given(OF_P)
    await scene.has(OF_P)
    scene.member._problem = UnreleasedInstanceId("taken")
    scene.member._membership.state = MembershipState.FENCED
    with pytest.raises(leave):
        await scene.consumer.poll(0)
    with pytest.raises(UnreleasedInstanceId):
        await scene.consumer.poll(0)
    await scene.consumer.close()


@pytest.fixture(params=["classic", "consumer"])
def consumer(
    request: pytest.FixtureRequest, bootstrap: str, topic: str
) -> Generator[BlockingConsumer]:
    with BlockingConsumer(
        bootstrap, group_id=topic, group_protocol=request.param, auto_offset_reset="earliest"
    ) as made:
        yield made


def poll_until_assigned(consumer: BlockingConsumer) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not consumer.assignment:
        assert time.monotonic() < deadline_s
        consumer.poll(50)


@pytest.mark.cluster
@pytest.mark.xdist_group("dual_write")
def test_exit_of_a_callback_is_raised_by_a_blocking_poll(
    consumer: BlockingConsumer, topic: str, leave: type[BaseException]
) -> None:
    consumer.subscribe([topic], on_assigned=called(leave))
    with pytest.raises(leave):
        poll_until_assigned(consumer)
        consumer.poll(50)
    consumer.poll(50)
    assert len(consumer.assignment) == 2


@pytest.mark.cluster
@pytest.mark.xdist_group("dual_write")
def test_exit_of_a_callback_is_raised_by_a_blocking_close_that_ends_the_client(
    consumer: BlockingConsumer, topic: str, leave: type[BaseException]
) -> None:
    consumer.subscribe([topic], on_revoked=called(leave))
    poll_until_assigned(consumer)
    with pytest.raises(leave):
        consumer.close()
    assert consumer._thread.loop.is_closed()
    consumer.close()
