"""Test that markers are sent again until they are written, also after leaders have changed."""

import asyncio
from collections import Counter

import pytest

from oncelog.coordinator.transactions.commands import (
    Write,
    WriteRecords,
    decode_transaction_command,
    encode_transaction_command,
)
from oncelog.coordinator.transactions.messages import (
    TransactionMarker,
    VerifyTransaction,
    WriteMarkers,
)
from oncelog.coordinator.transactions.record import TransactionRecord
from oncelog.coordinator.transactions.states import TransactionState
from oncelog.node.transactions import marker_sender
from oncelog.node.transactions.marker_sender import NO_LEADER, MarkerTask
from oncelog.node.transactions.marker_writer import COMMIT_WAIT_MS
from oncelog.replication.peer.transport import PeerTimeout
from oncelog.wire.errors import ErrorCode, RequestTimedOut

from ...awaiting import until
from .one_node import WAIT_S, OneNode

E = ErrorCode
T0, T1, T2 = ("t", 0), ("t", 1), ("t", 2)
RETRIED = sorted(marker_sender.RETRIED_SOON)


class Task:
    def __init__(self, node: OneNode, *partitions: tuple[str, int], producer_id: int = 7) -> None:
        self.written: list[tuple[str, int]] = []
        self.is_wanted = True
        marker = TransactionMarker(producer_id, 3, 9, True, (), 2)
        task = MarkerTask(
            marker=marker, is_wanted=lambda: self.is_wanted, on_written=self.written.append
        )
        node.markers.send(task, partitions)


async def test_markers_of_one_loop_turn_are_one_message_to_each_broker(node: OneNode) -> None:
    node.partitions.leaders = {T0: 1, T1: 2, T2: 2}
    calls = []
    write = node.partitions.write

    async def counted(where, request):
        calls.append((where, len(request.markers)))
        return await write(where, request)

    node.partitions.write = counted  # type: ignore[method-assign]
    one, two = Task(node, T0, T1, T2), Task(node, T1, producer_id=8)
    await until(lambda: len(one.written) == 3 and len(two.written) == 1)
    assert sorted(calls) == [(1, 1), (2, 2)]


@pytest.mark.parametrize("error", RETRIED)
async def test_marker_is_resent_after_a_temporary_error(node: OneNode, error: int) -> None:
    node.partitions.errors = {T0: [error, error]}
    task = Task(node, T0, T1)
    await until(lambda: sorted(task.written) == [T0, T1])
    assert task.written.count(T0) == 1


async def test_markers_are_sent_to_the_new_leader_after_an_election(node: OneNode) -> None:
    node.partitions.leaders = {T0: 2}
    node.partitions.down = {2}
    task = Task(node, T0)
    await asyncio.sleep(0.02)
    node.partitions.leaders = {T0: NO_LEADER}
    await asyncio.sleep(0.05)
    assert task.written == []
    node.partitions.leaders = {T0: 3}
    await until(lambda: task.written == [T0])
    assert [where for where, _ in node.partitions.asked] == [3]


@pytest.mark.parametrize("error", sorted(marker_sender.WRITTEN))
async def test_marker_for_a_partition_that_needs_none_is_counted_as_written(
    node: OneNode, error: int
) -> None:
    node.partitions.errors = {T0: [error]}
    task = Task(node, T0)
    await until(lambda: task.written == [T0])
    assert len(node.partitions.asked) == 1


@pytest.mark.parametrize(
    "error",
    [E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED, E.CORRUPT_MESSAGE, 12345],
)
async def test_marker_that_is_refused_is_resent_at_a_limited_rate(error, monkeypatch) -> None:
    monkeypatch.setattr(marker_sender, "SLOW_RETRY_MS", 100)
    node = OneNode()
    node.partitions.errors = {T0: [error]}
    task = Task(node, T0)
    begun_s = node.loop.time()
    await until(lambda: task.written == [T0])
    assert node.loop.time() - begun_s >= 0.1


async def test_marker_for_a_deleted_topic_is_not_required(monkeypatch) -> None:
    node = OneNode()
    node.partitions.leadership_of = lambda topic, index: None  # type: ignore[method-assign]
    node.markers._leadership_of = node.partitions.leadership_of
    task = Task(node, T0)
    await until(lambda: task.written == [T0])
    assert node.partitions.asked == []


async def test_markers_of_possibly_deleted_topics_share_one_metadata_catch_up(monkeypatch) -> None:
    """Each catch-up writes a metadata entry, and one large topic may need many markers."""
    node = OneNode()
    node.markers._leadership_of = lambda *partition: None
    under_way, later = asyncio.Event(), []

    async def catch_up() -> None:
        node.partitions.caught_up += 1
        if not later:
            later.append(Task(node, T0, T1, T2))
            await under_way.wait()

    node.markers._catch_up = catch_up
    tasks = [Task(node, T0, T1, T2) for _ in range(10)]
    await until(lambda: bool(later and node.markers._unknown))  # more transactions wait
    assert node.partitions.caught_up == 1
    under_way.set()
    await until(lambda: all(set(t.written) == {T0, T1, T2} for t in (*tasks, *later)))
    assert node.partitions.caught_up <= 3
    assert not node.markers._is_catching_up


async def test_marker_for_a_topic_not_yet_in_the_metadata_is_sent(monkeypatch) -> None:
    """In an earlier version a node with outdated metadata took new topics for deleted ones."""
    monkeypatch.setattr(marker_sender, "SLOW_RETRY_MS", 10)
    node = OneNode()
    knows, leadership_of = False, node.partitions.leadership_of
    node.markers._leadership_of = lambda *partition: leadership_of(*partition) if knows else None
    refusals: list[Exception] = [RequestTimedOut("no controller"), RequestTimedOut("again")]

    async def catch_up() -> None:
        nonlocal knows
        if refusals:
            raise refusals.pop()
        knows = True

    node.markers._catch_up = catch_up
    task = Task(node, T0)
    await until(lambda: task.written == [T0])
    assert node.partitions.asked and knows


async def test_markers_of_a_deposed_coordinator_are_no_longer_sent(node: OneNode) -> None:
    node.partitions.errors = {T0: [E.NOT_ENOUGH_REPLICAS] * 1000}
    task = Task(node, T0)
    await until(lambda: len(node.partitions.asked) > 2)
    task.is_wanted = False
    await asyncio.sleep(0.1)
    asked = len(node.partitions.asked)
    await asyncio.sleep(0.1)
    assert len(node.partitions.asked) == asked and task.written == []


async def test_marker_for_a_partition_that_cannot_commit_delays_no_other_marker(
    node: OneNode,
) -> None:
    node.partitions.gate = asyncio.Event()
    stuck = [Task(node, ("stuck", i)) for i in range(3)]
    await asyncio.sleep(0.01)
    node.partitions.gate, gate = None, node.partitions.gate
    free = Task(node, T0)
    await until(lambda: free.written == [T0])
    assert not any(task.written for task in stuck)
    gate.set()
    await until(lambda: all(task.written for task in stuck))


async def test_marker_has_the_index_of_its_prepared_record_and_the_leader_epoch(
    node: OneNode,
) -> None:
    """By index and leader epoch, a partition recognizes a late marker of an earlier transaction."""
    who = await node.init()
    ongoing, decided = [], []
    for _ in range(3):
        assert await node.add(who, T0) == 0
        verify = VerifyTransaction("id", who.producer_id, who.producer_epoch, (T0,))
        ongoing.append((await node.coordinators.verify(verify)).ongoing_index)
        await node.end(who)
        await until(lambda: len(node.partitions.written) > len(decided))
        marker = node.partitions.written[-1][1]
        decided.append(marker.prepare_index)
        assert marker.leader_epochs == (node.partitions.leader_epoch,)
        node.partitions.leader_epoch += 1
    in_order = [index for both in zip(ongoing, decided, strict=True) for index in both]
    assert in_order == sorted(set(in_order)) and in_order[0] > 0


async def test_markers_of_many_transactions_that_cannot_complete_leave_the_loop_free() -> None:
    """A new coordinator resumes 1,000 transactions, but a partition refuses their markers.

    Sent together, the markers would repeatedly block the loop for 100 ms.
    """
    node = OneNode(is_led=False)
    (shard,), (group,) = node.shards, node.groups
    count, partition = 1_000, ("t", 0)
    empty = TransactionRecord(
        producer_id=1,
        producer_epoch=0,
        timeout_ms=1,
        state=TransactionState.EMPTY,
        last_update_ms=1,
    )
    ongoing = empty._replace(
        state=TransactionState.ONGOING, start_ms=1, partitions=frozenset({partition})
    )
    prepared = ongoing._replace(state=TransactionState.PREPARE_COMMIT)
    for number in range(count):
        writes = [Write.after(f"id-{number}", None, empty._replace(producer_id=number))]
        for old, new in ((empty, ongoing), (ongoing, prepared)):
            before, after = old._replace(producer_id=number), new._replace(producer_id=number)
            writes.append(Write.chained(f"id-{number}", before, after))
        command = encode_transaction_command(WriteRecords(1, tuple(writes)))
        assert shard.apply(command, number + 1, 1).is_done
    turn, routed, sizes = 0, Counter[int](), list[int]()
    leadership_of, write = node.partitions.leadership_of, node.partitions.write

    def looked_up(topic: str, index: int):
        routed[turn] += 1
        return leadership_of(topic, index)

    async def counted(where: int, request: WriteMarkers):
        sizes.append(len(request.markers))
        return await write(where, request)

    node.markers._leadership_of = looked_up
    node.partitions.write = counted  # type: ignore[method-assign]
    node.partitions.errors = {partition: [int(E.NOT_ENOUGH_REPLICAS)] * 3 * count}
    group.elect()
    begun = node.loop.time()
    while shard.prepared_ids and node.loop.time() < begun + WAIT_S:
        await asyncio.sleep(0)
        turn += 1
    assert not shard.prepared_ids
    assert len(node.partitions.written) == count
    assert sum(routed.values()) == 4 * count
    assert max(routed.values()) <= 100
    assert max(sizes) <= 250
    commands = [decode_transaction_command(command) for command in group.log]
    assert max(len(each.writes) for each in commands if isinstance(each, WriteRecords)) <= 100


async def test_marker_to_a_silent_leader_is_sent_to_its_successor_after_a_short_timeout(
    node: OneNode,
) -> None:
    """The link to the leader stays open. A long timeout would block read_committed consumers."""
    node.partitions.leaders = {T0: 2}
    asked: list[tuple[int, int]] = []
    answer = node.links.request

    async def request(peer: int, kind: int, header: bytes, *, timeout_ms: int):
        asked.append((peer, timeout_ms))
        if peer == 2:
            node.partitions.leaders = {T0: 3}
            raise PeerTimeout("it stands still")
        return await answer(peer, kind, header, timeout_ms=timeout_ms)

    node.links.request = request  # type: ignore[method-assign]
    task = Task(node, T0)
    await until(lambda: task.written == [T0])
    assert [peer for peer, _ in asked] == [2, 3]
    assert COMMIT_WAIT_MS < asked[0][1] <= 3 * COMMIT_WAIT_MS


async def test_coordinator_that_resigns_stops_resuming_its_transactions(node: OneNode) -> None:
    waiting = []
    node.partitions.gate = asyncio.Event()
    for number in range(200):
        who = await node.init(f"id-{number}")
        await node.add(who, T0, name=f"id-{number}")
        assert not (await node.end(who, name=f"id-{number}")).error
    for number in range(200):
        waiting.append(asyncio.ensure_future(node.init(f"id-{number}")))
    await asyncio.sleep(0)
    node.groups[0].resign()
    answers = await asyncio.gather(*waiting)
    assert {answer.error for answer in answers} == {E.NOT_COORDINATOR}
    node.groups[0].elect()
    await asyncio.sleep(0)
    node.groups[0].resign()
    node.partitions.gate.set()
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(node.shards[0].prepared_ids) == 200
    node.groups[0].elect()
    await until(lambda: not node.shards[0].prepared_ids)
