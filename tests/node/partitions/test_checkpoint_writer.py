"""Test that truncations of several partitions lower their offsets in a checkpoint file."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.node.partitions.checkpoint_writer import CheckpointWriter
from oncelog.runtime.sliced_work import SlicedWork
from oncelog.runtime.steps import Steps
from oncelog.wire.identifiers import TopicPartition

from ...awaiting import settle, until

NAME = "replication-offset-checkpoint"
KEY, OTHER = ("t", 0), ("t", 1)


class _Directory:
    """The offsets of two logs and their checkpoint file. Each write waits for `may_end`."""

    def __init__(self) -> None:
        self.current: dict[TopicPartition, int] = {KEY: 9, OTHER: 9}
        self.offsets: Any = SimpleNamespace(on_disk={NAME: dict(self.current)})
        self.may_end = threading.Semaphore(0)
        self.may_collect = True
        self.writes = 0

    def collect_offsets(self, name: str) -> Steps[dict[TopicPartition, int]]:
        yield
        while not self.may_collect:
            yield
        return dict(self.current)

    def write_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets.on_disk[name] = None
        self.writes += 1
        assert self.may_end.acquire(timeout=20)
        self.offsets.on_disk[name] = offsets


@pytest.fixture
def directory() -> _Directory:
    return _Directory()


@pytest.fixture
def executor(directory: _Directory) -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor
        directory.may_end.release(20)


def _writer(directory: Any, executor: Executor) -> CheckpointWriter:
    return CheckpointWriter(directory, NAME, executor, SlicedWork())


async def test_checkpoint_offset_counts_as_lowered_when_finished_and_running_writes_have_it(
    directory: _Directory, executor: Executor
) -> None:
    """With a wait for all writes, truncations would wait for one another on a slow disk."""
    checkpoint = _writer(directory, executor)
    first = asyncio.create_task(checkpoint.lower(KEY, 5))
    await until(lambda: directory.writes == 1)
    assert not checkpoint.is_at_most(KEY, 5), "a crash may leave the old file"
    second = asyncio.create_task(checkpoint.lower(OTHER, 5))
    directory.may_end.release()
    await first
    await until(lambda: directory.writes == 2)
    assert checkpoint.is_at_most(KEY, 5)
    assert not checkpoint.is_at_most(KEY, 4)
    assert not checkpoint.is_at_most(OTHER, 5)
    directory.may_end.release()
    await second
    assert checkpoint.is_at_most(OTHER, 5)


@pytest.mark.parametrize("is_periodic", [False, True])
async def test_checkpoint_offset_counts_as_lowered_while_the_next_write_collects_offsets(
    directory: _Directory, executor: Executor, is_periodic: bool
) -> None:
    """Otherwise two groups of truncations cause writes for each other for ever.

    A periodic write, which begins meanwhile, must not raise the offset in the running one.
    """
    checkpoint = _writer(directory, executor)
    directory.may_end.release()
    await checkpoint.lower(KEY, 5)
    directory.may_collect = False
    tasks = [asyncio.create_task(checkpoint.lower(OTHER, 5))]
    await settle()
    assert checkpoint.is_at_most(KEY, 5)
    assert not checkpoint.is_at_most(KEY, 4)
    assert not checkpoint.is_at_most(OTHER, 5)
    if is_periodic:
        tasks.append(asyncio.create_task(checkpoint.write_now_and_then()))
        await settle()
        assert checkpoint.is_at_most(KEY, 5)
    directory.may_collect = True
    await until(lambda: directory.writes == 2)
    assert checkpoint.is_at_most(KEY, 5)
    directory.may_end.release(2)
    await asyncio.gather(*tasks)
    assert checkpoint.is_at_most(KEY, 5) == (not is_periodic)


async def test_checkpoint_offset_raised_by_a_running_write_does_not_count_as_lowered(
    directory: _Directory, executor: Executor
) -> None:
    checkpoint = _writer(directory, executor)
    directory.may_end.release()
    await checkpoint.lower(KEY, 5)
    assert checkpoint.is_at_most(KEY, 5)
    raising = asyncio.create_task(checkpoint.write_now_and_then())
    await until(lambda: directory.writes == 2)
    assert not checkpoint.is_at_most(KEY, 5)
    directory.may_end.release()
    await raising
    assert not checkpoint.is_at_most(KEY, 5)
    assert checkpoint.is_at_most(KEY, 9)


async def test_checkpoint_offset_being_lowered_is_not_raised_by_a_periodic_write_meanwhile(
    directory: _Directory, executor: Executor
) -> None:
    """The truncation has not begun, so the current offset of the log is still the higher one."""
    checkpoint = _writer(directory, executor)
    first = asyncio.create_task(checkpoint.write())
    await until(lambda: directory.writes == 1)
    lowering = asyncio.create_task(checkpoint.lower(KEY, 5))
    await settle()
    periodic = asyncio.create_task(checkpoint.write_now_and_then())
    directory.may_end.release(3)
    await asyncio.gather(first, lowering, periodic)
    assert checkpoint.is_at_most(KEY, 5)
    directory.may_end.release()
    await checkpoint.write_now_and_then()
    assert not checkpoint.is_at_most(KEY, 5)
