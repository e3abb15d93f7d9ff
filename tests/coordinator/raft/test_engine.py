"""Test the asyncio interface of the Raft engine, with real files and a real event loop."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from oncelog.coordinator.raft import (
    CorruptJournal,
    DefinitelyNot,
    ForeignJournal,
    OutcomeUnknown,
    RaftEngine,
    RaftGroup,
)
from oncelog.coordinator.raft.queues import OUTCOMES_AT_ONCE
from oncelog.runtime.sliced_work import Steps

from ...awaiting import until


class Items:
    def __init__(self) -> None:
        self.items: list[bytes] = []

    def apply(self, command: bytes, index: int, term: int) -> int:
        self.items.append(command)
        return len(self.items)

    def snapshot_steps(self) -> Steps[list[bytes]]:
        def steps(data: bytes) -> Steps[list[bytes]]:
            yield
            return [data]

        return steps(b",".join(self.items))

    def restore_steps(self, snapshot: bytes | memoryview) -> Steps[None]:
        yield
        self.items = bytes(snapshot).split(b",") if snapshot else []


class Trio:
    """Three Raft engines in one event loop, which exchange frames without a network."""

    def __init__(self, directory: Path, voters: tuple[int, ...]) -> None:
        self.directory, self.voters = directory, voters
        self.executor = ThreadPoolExecutor(4)
        self.engines: dict[int, RaftEngine] = {}
        self.groups: dict[int, RaftGroup] = {}
        self.machines: dict[int, Items] = {}
        self.fault_point: Callable[[str], None] = lambda name: None

    async def start(self, node_id: int) -> None:
        loop = asyncio.get_running_loop()

        def deliver(peer: int, frame: bytes) -> None:
            if peer in self.engines:
                self.engines[peer].receive(node_id, frame)

        def send(peer: int, frame: bytes) -> bool:
            loop.call_soon(deliver, peer, frame)
            return peer in self.engines

        engine = RaftEngine(
            node_id=node_id,
            voters=self.voters,
            directory=self.directory / str(node_id),
            send=send,
            loop=loop,
            executor=self.executor,
            random=random.Random(node_id),
            fault_point=lambda name: self.fault_point(name),
        )
        machine = self.machines[node_id] = Items()
        self.groups[node_id] = engine.add_group(0, machine)
        await engine.start()
        self.engines[node_id] = engine

    async def leader(self) -> RaftGroup:
        await until(lambda: any(group.is_leader for group in self.groups.values()))
        return next(group for group in self.groups.values() if group.is_leader)

    async def stop(self) -> None:
        for node_id in list(self.engines):
            await self.engines.pop(node_id).stop(hand_over=False)
        self.executor.shutdown()


async def running(directory: Path, *voters: int) -> AsyncIterator[Trio]:
    trio = Trio(directory, voters)
    for node_id in voters:
        await trio.start(node_id)
    yield trio
    await trio.stop()


@pytest.fixture
def one(tmp_path: Path) -> AbstractAsyncContextManager[Trio]:
    return asynccontextmanager(running)(tmp_path, 1)


@pytest.fixture
def trio(tmp_path: Path) -> AbstractAsyncContextManager[Trio]:
    return asynccontextmanager(running)(tmp_path, 1, 2, 3)


async def test_raft_group_of_one_node_commits_after_its_own_sync(one: Trio) -> None:
    """A single node is its own majority, but only after it has synced the entry."""
    names: list[str] = []
    group = await one.leader()
    one.fault_point = names.append
    assert await group.submit(b"a") == 1
    assert names.index("raft.journal.after-sync") < names.index("raft.apply.before")
    assert names.index("raft.propose.after") < names.index("raft.journal.before-write")
    assert await asyncio.gather(*(group.submit(b"b") for _ in range(100))) == list(range(2, 102))
    await one.engines[1].stop()
    await one.start(1)
    assert await (await one.leader()).submit(b"c") == 102


async def test_raft_group_of_three_elects_a_new_leader_when_its_leader_stops(trio: Trio) -> None:
    """A node that stops gracefully first transfers its leadership."""
    group = await trio.leader()
    # A new disk votes only once it has caught up with the leader; two voters must remain.
    await until(lambda: all(g.status().is_voter for g in trio.groups.values()))
    terms: list[int] = []
    for other in trio.groups.values():
        other.on_elected(terms.append)
    assert await group.submit(b"a") == 1
    follower = next(g for g in trio.groups.values() if not g.is_leader)
    with pytest.raises(DefinitelyNot, match="does not lead; the leader is"):
        await follower.submit(b"x")
    old, old_term = next(n for n, g in trio.groups.items() if g is group), group.term
    engine = trio.engines[old]
    await engine.stop()
    del trio.engines[old]
    with pytest.raises(DefinitelyNot, match="not running"):
        await trio.groups.pop(old).submit(b"x")
    new = await trio.leader()
    assert await new.submit(b"b") == 2
    assert terms == [new.term] == [old_term + 1]  # one election, not the split votes of two


async def test_raft_command_of_a_submitter_that_is_cancelled_is_still_committed(one: Trio) -> None:
    """The timeout expires after the command was proposed."""
    group = await one.leader()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await group.submit(b"a")
    assert await group.submit(b"b") == 2


async def test_raft_engine_stop_gives_waiting_submitters_an_unknown_outcome(trio: Trio) -> None:
    group = await trio.leader()
    lonely = next(n for n, g in trio.groups.items() if g is group)
    for node_id in trio.voters:
        if node_id != lonely:
            await trio.engines.pop(node_id).stop(hand_over=False)
    waiting = asyncio.create_task(group.submit(b"x"))
    await asyncio.sleep(0.01)
    await trio.stop()
    with pytest.raises(OutcomeUnknown):
        await waiting


async def test_raft_leader_that_is_deposed_answers_its_submitters_a_few_at_a_time(
    one: Trio,
) -> None:
    """Thousands of callbacks in one step blocked the loop for 0.1 s during an election."""
    group, engine = await one.leader(), one.engines[1]
    outcomes: list[tuple[int, Exception | None]] = []
    for number in range(5 * OUTCOMES_AT_ONCE):
        group.propose(b"x", 5_000, lambda _, error, number=number: outcomes.append((number, error)))
    group._core.follow(group.term + 1)
    engine.touch(group)
    most, turns = 0, 0
    while len(outcomes) < 5 * OUTCOMES_AT_ONCE:
        before = len(outcomes)
        await asyncio.sleep(0)
        most = max(most, len(outcomes) - before)
        turns += 1
    assert 0 < most <= OUTCOMES_AT_ONCE
    assert [number for number, _ in outcomes] == list(range(5 * OUTCOMES_AT_ONCE))
    assert all(isinstance(error, OutcomeUnknown) for _, error in outcomes)


async def test_raft_engine_stop_with_waiting_submitters_answers_all_of_them(one: Trio) -> None:
    group, engine = await one.leader(), one.engines[1]
    outcomes: list[Exception | None] = []
    for _ in range(5 * OUTCOMES_AT_ONCE):
        group.propose(b"x", 5_000, lambda _, error: outcomes.append(error))
    engine.halt()
    assert len(outcomes) == 5 * OUTCOMES_AT_ONCE


async def test_raft_engine_with_a_damaged_or_foreign_directory_does_not_start(
    tmp_path: Path, one: Trio
) -> None:
    """No file stays open or locked, so the operator can act on the error."""
    group = await one.leader()
    for k in range(40):
        await group.submit(b"%d" % k)
    await one.engines.pop(1).stop()
    path = next((tmp_path / "1").glob("*.wal"))
    good = path.read_bytes()
    damaged = bytearray(good)
    damaged[2_000] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CorruptJournal, match="move its raft directory aside"):
        await one.start(1)
    path.write_bytes(good)
    (tmp_path / "1" / "group-0.snapshot").write_bytes(b"rubbish")
    with pytest.raises(CorruptJournal, match="the snapshot is damaged"):
        await one.start(1)
    (tmp_path / "1" / "group-0.snapshot").unlink()
    one.voters = (1, 2, 3)
    with pytest.raises(ForeignJournal):
        await one.start(1)
    one.voters = (1,)
    await one.start(1)
    assert await (await one.leader()).submit(b"x") == 41
