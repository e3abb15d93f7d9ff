"""Test which connections are served while the memory for requests and answers is short."""

import asyncio
import socket

import pytest

from oncelog.node.listener import connection, server
from oncelog.node.listener.memory_budget import ALLOWANCE_BYTES, MemoryBudget

from ...awaiting import until
from .toy_server import ECHO, WAIT, Bench, Client, toy_server

KIB, MIB = 1024, 1024 * 1024


@pytest.fixture
def quick_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SWEEP_INTERVAL_S", 0.02)


class FakeHolder:
    """A connection that counts how often it may read."""

    def __init__(self, *, can_finish: bool) -> None:
        self.can_finish = can_finish
        self.leaves = 0

    def budget_allows(self) -> None:
        self.leaves += 1

    def close(self, reason: str) -> None:
        raise AssertionError("the server closes connections")

    def abort(self) -> None:
        raise AssertionError("the server closes connections")


def full(*holders: FakeHolder) -> MemoryBudget:
    budget = MemoryBudget(1_000)
    budget.hold(2_000)
    for holder in holders:
        assert budget.must_wait(holder, ALLOWANCE_BYTES + 1)
    return budget


def test_memory_budget_above_its_limit_lets_a_connection_that_can_finish_read() -> None:
    idle, partial = FakeHolder(can_finish=False), FakeHolder(can_finish=True)
    budget = full(idle, partial)
    budget.let_one_pass()
    assert (idle.leaves, partial.leaves) == (0, 1)
    assert not budget.must_wait(partial, ALLOWANCE_BYTES + 1)


def test_memory_budget_reservation_without_use_is_given_to_the_next_connection() -> None:
    first, second = FakeHolder(can_finish=True), FakeHolder(can_finish=True)
    budget = full(first, second)
    budget.let_one_pass()
    budget.let_one_pass()
    assert (first.leaves, second.leaves) == (1, 0), "one at a time"
    first.can_finish = False
    budget.let_one_pass()
    assert (first.leaves, second.leaves) == (1, 1)


def test_memory_budget_release_wakes_all_waiting_connections() -> None:
    idle, partial = FakeHolder(can_finish=False), FakeHolder(can_finish=True)
    budget = full(idle, partial)
    budget.release(1_500)
    assert (idle.leaves, partial.leaves, budget.waiting_count) == (1, 1, 0)


def test_memory_budget_lets_the_next_connection_read_when_a_request_is_answered() -> None:
    first, second, third = (FakeHolder(can_finish=True) for _ in range(3))
    budget = full(first, second, third)
    budget.pass_next()
    budget.finished_request(first)
    budget.pass_next()
    budget.release(0, second)
    assert (first.leaves, second.leaves) == (1, 0), "the first request is not answered"
    budget.release(100, first)
    assert (second.leaves, third.leaves) == (1, 0)
    budget.remove(second)
    assert third.leaves == 1


def test_memory_budget_lets_a_connection_read_once_its_large_request_is_answered() -> None:
    answered = FakeHolder(can_finish=False)
    budget = full(answered)
    assert budget.must_wait(answered, ALLOWANCE_BYTES + 1)
    assert not budget.must_wait(answered, 0)
    assert not budget.waiting_count


def test_memory_budget_lets_another_connection_read_although_a_request_waits_for_long() -> None:
    first, second = FakeHolder(can_finish=True), FakeHolder(can_finish=True)
    budget = full(first, second)
    budget.let_one_pass()
    budget.finished_request(first)
    budget.let_one_pass()
    assert second.leaves == 1


async def fill_the_budget(bench: Bench) -> None:
    """Fill the memory budget with two requests that wait, for a test."""
    budget = bench.server.budget
    (await bench.connect()).send(WAIT, bytes(budget.limit_bytes - 64 * KIB))
    await until(lambda: budget.held_bytes > budget.limit_bytes - 64 * KIB)
    (await bench.connect()).send(WAIT, bytes(100 * KIB))
    await until(lambda: budget.held_bytes > budget.limit_bytes)
    assert not budget.waiting_count


@pytest.mark.uvloop
async def test_large_requests_are_served_without_delay_while_waiting_requests_fill_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "SWEEP_INTERVAL_S", 3_600)
    async with toy_server(queued_max_request_bytes=MIB) as bench:
        await fill_the_budget(bench)
        clients = [await bench.connect() for _ in range(5)]
        request = Client.frame(ECHO, bytes(MIB))
        for _ in range(2):
            for client in clients:
                client.writer.write(request[: 300 * KIB])
            await until(lambda: bench.server.budget.waiting_count == 4)
            for client in clients:
                client.writer.write(request[300 * KIB :])
            for client in clients:
                assert len((await client.receive())[1]) == MIB


@pytest.mark.uvloop
async def test_requests_that_wait_above_twice_the_budget_lose_their_connections(
    quick_sweep: None,
) -> None:
    """Beside the requests, each connection may hold the allowance and one read."""
    most_bytes = 0
    async with toy_server(queued_max_request_bytes=4 * MIB) as bench:
        clients = [await bench.connect() for _ in range(30)]
        for client in clients:
            client.send(WAIT, bytes(MIB - KIB))
        async with asyncio.timeout(20):
            while len(bench.toys.started) < len(clients):
                most_bytes = max(most_bytes, bench.server.budget.held_bytes)
                await asyncio.sleep(0.002)
        assert bench.toys.abandoned
        assert bench.server.connection_count >= 4, "earlier requests wait on"
    assert most_bytes < 20 * MIB


@pytest.mark.uvloop
async def test_slow_request_beyond_the_budget_does_not_block_other_requests(
    quick_sweep: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client sends some bytes in time again and again, but far too slowly."""
    monkeypatch.setattr(connection, "BYTES_S_MIN", 10 * MIB)
    monkeypatch.setattr(connection, "PASSING_SILENCE_MAX_S", 0.2)
    async with toy_server(queued_max_request_bytes=MIB) as bench:
        await fill_the_budget(bench)
        slow, other = await bench.connect(), await bench.connect()
        assert await slow.ask(ECHO, b"a") == b"a"
        slow.writer.write((50 * MIB).to_bytes(4, "big") + bytes(300 * KIB))
        await until(lambda: bench.server.budget._passing is not None)
        other.send(ECHO, bytes(2 * MIB))
        async with asyncio.timeout(20):
            while not slow.reader.at_eof():
                slow.writer.write(b"a")
                await asyncio.sleep(0.02)
        assert len((await other.receive())[1]) == 2 * MIB


@pytest.mark.uvloop
async def test_client_that_reads_steadily_keeps_its_connection_while_memory_is_short(
    quick_sweep: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "STALLED_MAX_S", 0.3)
    monkeypatch.setattr(connection, "BYTES_S_MIN", 1)
    async with toy_server() as bench:
        budget, loop = bench.server.budget, asyncio.get_running_loop()
        budget.hold(budget.limit_bytes)
        with socket.create_connection(("127.0.0.1", bench.server.port)) as slow:
            slow.setblocking(False)
            await loop.sock_sendall(slow, Client.frame(ECHO, b"big %d" % (16 * MIB)))
            left_bytes = 16 * MIB
            while left_bytes > 0 and (part := await loop.sock_recv(slow, 256 * KIB)):
                left_bytes -= len(part)
                await asyncio.sleep(0.02)  # the whole answer takes more than a second
        assert left_bytes <= 0
