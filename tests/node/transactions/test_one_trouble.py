"""Test that an unexpected error in one transaction or partition does not delay others."""

import asyncio
from typing import Any

import pytest

from oncelog.coordinator.transactions.record import TransactionRecord
from oncelog.node.transactions import marker_sender
from oncelog.node.transactions.marker_sender import MarkerSender
from oncelog.node.transactions.shard_leader import ShardLeader

from ...awaiting import settle, until
from .one_node import OneNode

T0, T1, T2 = ("t", 0), ("t", 1), ("u", 0)


class Defect(Exception):
    """An unexpected exception, raised by the tests."""


def breaking_once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    call, left = getattr(owner, name), [Defect(name)]

    def broken(*args: Any, **named: Any) -> Any:
        if left:
            raise left.pop()
        return call(*args, **named)

    monkeypatch.setattr(owner, name, broken)


async def committed(node: OneNode, name: str, *partitions: tuple[str, int]) -> None:
    who = await node.init(name)
    assert await node.add(who, *partitions, name=name) == 0
    assert (await node.end(who, name=name)).error == 0


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_sender, "SLOW_RETRY_MS", 10)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (MarkerSender, "_route"),
        (MarkerSender, "_answered"),
        (marker_sender, "_marker"),
        (ShardLeader, "_refresh"),
        (ShardLeader, "_marked"),
        (ShardLeader, "_complete"),
        (TransactionRecord, "completed"),
    ],
)
async def test_transaction_completes_when_a_step_between_decision_and_markers_raises(
    node: OneNode, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    names = ("one", "two", "three")
    node.partitions.gate = asyncio.Event()
    with monkeypatch.context() as patched:
        if name not in ("_answered", "_marked", "_complete", "completed"):
            breaking_once(patched, owner, name)
        for each in names:
            await committed(node, each, T0, T1, T2)
        breaking_once(patched, owner, name)
        node.release_markers()
        for each in names:
            await node.until_state("CompleteCommit", each)


async def test_markers_for_a_deleted_topic_need_one_metadata_catch_up_and_no_delay(
    node: OneNode,
) -> None:
    """At one time further transactions of the id stalled for more than two seconds."""
    known = node.partitions.leadership_of
    node.markers._leadership_of = lambda topic, index: None if topic == "u" else known(topic, index)
    await committed(node, "id", T0, T2)
    await settle(100)
    assert node.partitions.caught_up == 1
    assert not node.markers._due_again
    await node.until_state("CompleteCommit")


async def test_markers_for_a_deleted_topic_are_kept_when_the_metadata_catch_up_raises(
    node: OneNode,
) -> None:
    node.markers._leadership_of = lambda topic, index: None
    troubles: list[Exception] = [Defect("catching up")]

    async def catch_up() -> None:
        if troubles:
            raise troubles.pop()

    node.markers._catch_up = catch_up
    await committed(node, "id", T0)
    await node.until_state("CompleteCommit")


async def test_transaction_timeouts_after_an_exception_for_one_are_still_enforced(
    node: OneNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        await node.add(await node.init(name, timeout_ms=1), T0, name=name)
    node.wall_ms += 1_000_000
    breaking_once(monkeypatch, TransactionRecord, "is_timed_out")
    await node.coordinators.leaders.look()
    await until(lambda: sorted((node.state("one"), node.state("two")))[0] == "CompleteAbort")
