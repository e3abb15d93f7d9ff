"""Test the rate of ISR proposals, and that they are applied in slices."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from oncelog.coordinator.metadata.commands import AlterPartition, Command
from oncelog.coordinator.metadata.results import Item, Result
from oncelog.node.partitions.isr_proposer import RETRY_MS, IsrProposer
from oncelog.replication.isr_change import IsrChange, IsrMember
from oncelog.runtime.sliced_work import SlicedWork
from oncelog.wire.errors import ErrorCode

from ...awaiting import until

TOPIC_ID = bytes(16)
WATCHED_S = 0.5


class _Partition:
    def __init__(self) -> None:
        self.topic_id, self.index, self.leader = TOPIC_ID, 0, _Hopeful()


class _Hopeful:
    """A leader that always proposes the same ISR change."""

    is_settled = False

    def tick(self, now_ms: int) -> bool:
        return False

    def next_isr_change(self, now_ms: int) -> IsrChange:
        return IsrChange(3, 7, (IsrMember(1, 10), IsrMember(2, 20)))

    def isr_change_failed(self, change: IsrChange, error: int) -> None:
        return None


async def test_isr_change_that_is_always_refused_is_proposed_at_a_limited_rate() -> None:
    """A refusal raises the partition epoch, which triggers the next check immediately."""
    partition: Any = _Partition()
    asked: list[Command] = []

    async def refuse(command: Command) -> Result:
        asked.append(command)
        await asyncio.sleep(0)
        replicas.in_sync.isr_may_change(partition)
        return Result(items=(Item(error=ErrorCode.INELIGIBLE_REPLICA),))

    clock = SimpleNamespace(monotonic_ms=lambda: 0)
    replicas: Any = SimpleNamespace(
        clock=clock, work=SlicedWork(), unsettled={}, raise_high_watermark=lambda *_: None
    )

    proposer = IsrProposer(replicas, refuse, node_id=1, broker_epoch=10, tick_ms=60_000)
    proposer.isr_may_change(partition)
    await asyncio.sleep(WATCHED_S)
    await proposer.stop()
    assert 2 <= len(asked) <= WATCHED_S * 1000 / RETRY_MS + 1
    assert isinstance(asked[0], AlterPartition)


class _Proposing:
    """A leader with one ISR change to propose, which records the change in `made`."""

    is_settled = False

    def __init__(self, made: list[int]) -> None:
        self.made, self.has_proposed = made, False

    def tick(self, now_ms: int) -> None:
        return None

    def next_isr_change(self, now_ms: int) -> IsrChange | None:
        has_proposed, self.has_proposed = self.has_proposed, True
        return None if has_proposed else IsrChange(3, 7, (IsrMember(1, 10),))

    def isr_change_succeeded(self, *_: object) -> None:
        self.made.append(1)


async def test_isr_changes_of_hundreds_of_partitions_are_applied_in_slices() -> None:
    """A restarted broker joins thousands of ISRs, and 500 changes in one step would take 30 ms."""
    count, made = 300, list[int]()
    ticks = iter(range(1 << 30))
    replicas: Any = SimpleNamespace(
        clock=SimpleNamespace(monotonic_ms=lambda: 0),
        work=SlicedWork(lambda: next(ticks) * 0.003),
        unsettled={},
        raise_high_watermark=lambda *_: None,
    )

    async def propose(command: Command) -> Result:
        assert isinstance(command, AlterPartition)
        return Result(items=tuple(Item(isr=(1,), partition_epoch=8) for _ in command.changes))

    proposer = IsrProposer(replicas, propose, node_id=1, broker_epoch=10, tick_ms=60_000)
    for _ in range(count):
        partition: Any = _Partition()
        partition.leader, partition.partition_epoch = _Proposing(made), 7
        proposer.isr_may_change(partition)
    sizes = [0]
    while len(made) < count:
        await asyncio.sleep(0)
        sizes.append(len(made))
    assert max(after - before for before, after in pairwise(sizes)) <= 2
    await proposer.stop()


class _Settled:
    """A leader that is settled, which counts how often it is checked."""

    is_settled = True

    def __init__(self) -> None:
        self.looks = 0

    def tick(self, now_ms: int) -> None:
        self.looks += 1

    def next_isr_change(self, now_ms: int) -> None:
        return None


async def test_isr_of_a_settled_partition_is_checked_once_until_the_next_append() -> None:
    partition: Any = _Partition()
    partition.leader = leader = _Settled()
    clock = SimpleNamespace(monotonic_ms=lambda: 0)
    replicas: Any = SimpleNamespace(
        clock=clock,
        work=SlicedWork(),
        unsettled={partition: None},
        raise_high_watermark=lambda *_: None,
    )

    async def propose(command: Command) -> Result:
        raise AssertionError("there is nothing to propose")

    proposer = IsrProposer(replicas, propose, node_id=1, broker_epoch=10, tick_ms=5)
    for looks in (1, 2):
        await until(lambda looks=looks: leader.looks >= looks)
        await asyncio.sleep(0.05)  # ten ticks
        assert leader.looks == looks
        replicas.unsettled[partition] = None  # as an append does
    await proposer.stop()
