"""Test that partitions added to a transaction by several requests are written by one command."""

import asyncio
from typing import Any

import pytest

from oncelog.coordinator.transactions.commands import WriteRecords, decode_transaction_command
from oncelog.coordinator.transactions.messages import VerifyTransaction
from oncelog.node.transactions.pending_transactions import HELD_PER_ID_MAX
from oncelog.wire.errors import ErrorCode

from ...awaiting import until
from .one_node import OneNode

E = ErrorCode
T0, T1, T2 = ("t", 0), ("t", 1), ("u", 0)


def start(node: OneNode, who: Any, *partitions: tuple[str, int]) -> "asyncio.Task[int]":
    """Return a task that adds partitions to the transaction of a V2 producer.

    The leader of a partition sends such a request when it gets the first batch.
    """

    async def ask() -> int:
        request = VerifyTransaction(
            "id", who.producer_id, who.producer_epoch, partitions or (T0,), adds=True
        )
        return int((await node.coordinators.verify(request)).error)

    return node.loop.create_task(ask())


def written(node: OneNode, since: int) -> list[list[str]]:
    """Return the states of the records that each command wrote since entry `since`."""
    commands = map(decode_transaction_command, node.groups[0].log[since:])
    return [
        [w.record.state.kafka_name if w.record else "" for w in command.writes]
        for command in commands
        if isinstance(command, WriteRecords)
    ]


async def test_transaction_over_three_leaders_is_written_as_two_commands() -> None:
    """The additions of three leaders wait for the markers of the previous transaction.

    The first command has the completion of that transaction and all additions, the second the
    commit.
    """
    node = OneNode(hold_ms=5_000)
    who = await node.init()
    await node.add(who, transaction_version=2)
    node.partitions.gate = asyncio.Event()
    who = await node.end(who, v2=True)
    commands = len(node.groups[0].log)
    adding = [start(node, who, partition) for partition in (T0, T1, T2)]
    await asyncio.sleep(0.01)
    node.release_markers()
    assert await asyncio.gather(*adding) == [0, 0, 0]
    assert node.shards[0].records["id"].partitions == {T0, T1, T2}
    assert (await node.end(who, v2=True)).error == 0
    await until(lambda: len(node.groups[0].log) >= commands + 2)
    assert written(node, commands)[:2] == [["CompleteCommit", "Ongoing"], ["PrepareCommit"]]
    await node.until_state("CompleteCommit")


async def test_partition_additions_during_a_write_are_joined_into_the_next_write() -> None:
    node = OneNode(hold_ms=5_000)
    who = await node.init()
    group = node.groups[0]
    group.held = []
    first = start(node, who, T0)
    await until(lambda: bool(group.held))
    others = [start(node, who, partition) for partition in (T1, T2, T0)]
    await asyncio.sleep(0.01)
    assert len(group.held) == 1 and not any(task.done() for task in others)
    commands = len(group.log)
    group.release()
    assert await asyncio.gather(first, *others) == [0, 0, 0, 0]
    assert written(node, commands) == [["Ongoing"], ["Ongoing"]]
    assert node.shards[0].records["id"].partitions == {T0, T1, T2}


async def test_partition_additions_written_together_get_errors_of_their_own() -> None:
    node = OneNode(hold_ms=5_000, partitions_max=2)
    old = await node.init()
    who = await node.init()
    adding = [
        start(node, who, T0),
        start(node, old, T1),
        start(node, who, T1, T2),
        start(node, who, T1),
    ]
    assert await asyncio.gather(*adding) == [0, E.PRODUCER_FENCED, E.POLICY_VIOLATION, 0]
    assert node.shards[0].records["id"].partitions == {T0, T1}


async def test_partition_additions_of_one_write_share_its_outcome() -> None:
    node = OneNode(hold_ms=5_000)
    who = await node.init()
    for fate in ("refused", "lost"):
        node.groups[0].fate = [fate]
        adding = [start(node, who, partition) for partition in (T0, T1)]
        assert await asyncio.gather(*adding) == [E.COORDINATOR_NOT_AVAILABLE] * 2
        assert node.state() == "Empty"
    adding = [start(node, who, partition) for partition in (T0, T1)]
    assert await asyncio.gather(*adding) == [0, 0]


async def test_partition_addition_is_written_unless_it_is_cancelled_before_the_joint_write() -> (
    None
):
    node = OneNode(hold_ms=5_000)
    who = await node.init()
    group = node.groups[0]
    first, second = start(node, who, T0), start(node, who, T1)
    await asyncio.sleep(0)  # both are in one joint addition, and nothing is proposed yet
    first.cancel()
    assert await second == 0
    assert node.shards[0].records["id"].partitions == {T1}
    group.held = []
    first, second = start(node, who, T0), start(node, who, T2)
    await until(lambda: bool(group.held))
    first.cancel()
    group.release()
    assert await second == 0
    assert node.shards[0].records["id"].partitions == {T0, T1, T2}


async def test_partition_additions_cancelled_before_the_write_are_not_written() -> None:
    node = OneNode(hold_ms=5_000)
    who = await node.init()
    commands = len(node.groups[0].log)
    adding = start(node, who, T0)
    await asyncio.sleep(0)
    ending = asyncio.ensure_future(node.end(who, False))  # waits for the pending addition
    adding.cancel()
    assert (await ending).error == E.INVALID_TXN_STATE
    assert len(node.groups[0].log) == commands


async def test_end_txn_after_unfinished_partition_additions_waits_for_the_additions(
    node: OneNode,
) -> None:
    who = await node.init()
    adding = start(node, who, T0)
    await asyncio.sleep(0)
    ended = await node.end(who, v2=True)
    assert (await adding, ended.error) == (0, 0)
    await node.until_state("CompleteCommit")
    assert {partition for partition, _ in node.partitions.written} == {T0}


async def test_partition_additions_are_refused_at_the_end_of_the_term() -> None:
    node = OneNode(hold_ms=5_000)
    who = await node.init()
    adding = [start(node, who, partition) for partition in (T0, T1)]
    await asyncio.sleep(0)
    node.groups[0].resign(successor=2)
    assert await asyncio.gather(*adding) == [E.NOT_COORDINATOR] * 2
    assert node.state() == "Empty"


async def test_partition_additions_of_a_failed_proposal_all_get_its_error(
    node: OneNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = await node.init()

    def propose(*_: Any) -> None:
        raise OSError("made by chaos")

    with monkeypatch.context() as patch:
        patch.setattr(node.groups[0], "propose", propose)
        adding = [start(node, who, partition) for partition in (T0, T1, T2)]
        async with asyncio.timeout(10):
            problems = await asyncio.gather(*adding, return_exceptions=True)
    assert [type(problem) for problem in problems] == [OSError] * 3
    assert await node.add(who, T0) == 0 and held(node) == 0


# -- bounds


def held(node: OneNode) -> int:
    (leader,) = node.coordinators.leaders
    return leader._pending._held  # pyright: ignore[reportPrivateUsage]


async def test_partition_additions_are_included_in_the_limit_of_held_requests() -> None:
    node = OneNode(hold_ms=300, held_max=2)
    who = await node.init()
    group = node.groups[0]
    group.held = []
    adding = [start(node, who, ("t", index)) for index in range(5)]
    await until(lambda: bool(group.held))
    assert held(node) == 2
    refused = [task for task in adding if task.done()]
    assert [await task for task in refused] == [E.CONCURRENT_TRANSACTIONS] * 2
    assert await node.add(who, T0) == E.CONCURRENT_TRANSACTIONS  # at once, because no more may wait
    group.release()
    assert sorted(await asyncio.gather(*adding)) == [0, 0, 0] + [E.CONCURRENT_TRANSACTIONS] * 2
    assert held(node) == 0


async def test_partition_additions_of_one_id_in_a_write_are_bounded() -> None:
    node = OneNode(hold_ms=300)
    who = await node.init()
    adding = [start(node, who, ("t", index)) for index in range(HELD_PER_ID_MAX + 3)]
    answers = await asyncio.gather(*adding)
    assert sorted(answers) == [0] * HELD_PER_ID_MAX + [E.CONCURRENT_TRANSACTIONS] * 3
    assert len(node.shards[0].records["id"].partitions) == HELD_PER_ID_MAX
    assert held(node) == 0


async def test_partition_addition_entries_are_dropped_after_the_last_addition(
    node: OneNode,
) -> None:
    who = await node.init()
    await asyncio.gather(*(start(node, who, partition) for partition in (T0, T1)))
    (leader,) = node.coordinators.leaders
    assert leader._pending.get("id") is None  # pyright: ignore[reportPrivateUsage]
