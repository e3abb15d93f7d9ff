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
        self.can_finish, self.has_sent_more = can_finish, True
        self.held_bytes = ALLOWANCE_BYTES + 1
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
        assert budget.must_wait(holder)
    return budget


def test_memory_budget_above_its_limit_lets_a_connection_that_can_finish_read() -> None:
    idle, partial = FakeHolder(can_finish=False), FakeHolder(can_finish=True)
    budget = full(idle, partial)
    budget.check()
    assert (idle.leaves, partial.leaves) == (0, 1)
    assert not budget.must_wait(partial)


def test_memory_budget_reservation_without_use_is_given_to_the_next_connection() -> None:
    first, second = FakeHolder(can_finish=True), FakeHolder(can_finish=True)
    budget = full(first, second)
    budget.check()
    budget.check()
    assert (first.leaves, second.leaves) == (1, 0), "one at a time"
    first.can_finish = False
    budget.check()
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
    first.held_bytes = 0
    budget.release(100, first)
    assert (second.leaves, third.leaves) == (1, 0)
    budget.remove(second)
    assert third.leaves == 1


def test_memory_budget_lets_a_connection_read_once_its_large_request_is_answered() -> None:
    answered = FakeHolder(can_finish=False)
    budget = full(answered)
    assert budget.must_wait(answered)
    answered.held_bytes = 0
    assert not budget.must_wait(answered)
    assert not budget.waiting_count


def test_memory_budget_lets_another_connection_read_although_a_request_waits_for_long() -> None:
    first, second = FakeHolder(can_finish=True), FakeHolder(can_finish=True)
    budget = full(first, second)
    budget.check()
    budget.finished_request(first)
    budget.check()
    assert second.leaves == 1


def test_memory_budget_skips_a_connection_whose_client_has_sent_nothing_more() -> None:
    silent, sending = FakeHolder(can_finish=True), FakeHolder(can_finish=True)
    silent.has_sent_more = False
    budget = full(silent, sending)
    budget.check()
    assert (silent.leaves, sending.leaves) == (0, 1)


def test_memory_budget_asks_a_silent_connection_again_only_when_it_is_looked_at() -> None:
    """To ask 2,000 silent connections at each turn would hold the event loop for 8 ms."""
    silent, sending = FakeHolder(can_finish=True), FakeHolder(can_finish=True)
    silent.has_sent_more = False
    budget = full(silent, sending)
    budget.check()
    silent.has_sent_more = True
    budget.remove(sending)
    assert silent.leaves == 0
    budget.look_at(silent)
    budget.pass_next()
    assert (silent.leaves, budget.waiting_count) == (1, 0)


@pytest.mark.parametrize(
    ("more_bytes", "held_bytes", "leaves"),
    [
        (0, 9 * ALLOWANCE_BYTES, 1),
        (1, 2 * ALLOWANCE_BYTES, 1),
        (1, 2 * ALLOWANCE_BYTES + 1, 0),
    ],
)
def test_memory_budget_takes_a_silent_connection_back_unless_it_holds_much_of_the_memory(
    more_bytes: int, held_bytes: int, leaves: int
) -> None:
    """A connection keeps what it has received, so more of them would fill the memory."""
    silent, sending = FakeHolder(can_finish=True), FakeHolder(can_finish=True)
    budget = full(silent, sending)
    budget.pass_next()
    silent.has_sent_more, silent.held_bytes = False, held_bytes
    budget.hold(more_bytes)
    budget.pass_next()
    assert (sending.leaves, budget.must_wait(silent)) == (leaves, bool(leaves))


def test_memory_budget_forgets_the_passing_connection_when_memory_is_free() -> None:
    """A slow client that was let through is not closed once memory is free."""
    first, second = FakeHolder(can_finish=True), FakeHolder(can_finish=True)
    budget = full(first, second)
    budget.check()
    budget.release(1_500)
    assert not budget.is_passing(first)


def above_twice_the_limit(*holders: FakeHolder) -> MemoryBudget:
    budget = full(*holders)
    budget.hold(1)
    budget.pass_next()
    budget.finished_request(holders[0])
    return budget


def test_memory_budget_names_a_request_that_waits_above_twice_the_limit() -> None:
    first, second = FakeHolder(can_finish=True), FakeHolder(can_finish=True)
    budget = above_twice_the_limit(first, second)
    assert budget.check() is None
    assert budget.check() is first
    assert second.leaves == 0


def test_memory_budget_names_no_waiting_request_if_no_other_connection_needs_its_memory() -> None:
    budget = above_twice_the_limit(FakeHolder(can_finish=True))
    assert [budget.check() for _ in range(3)] == [None] * 3


def test_memory_budget_names_no_connection_whose_next_request_has_passed_meanwhile() -> None:
    first, second = FakeHolder(can_finish=True), FakeHolder(can_finish=True)
    budget = above_twice_the_limit(first, second)
    second.can_finish = False
    assert budget.check() is None
    first.held_bytes = 0
    budget.release(0, first)
    first.held_bytes = ALLOWANCE_BYTES + 1
    assert budget.must_wait(first)
    budget.pass_next()
    budget.finished_request(first)
    second.can_finish = True
    assert budget.check() is None


def test_memory_budget_lets_no_connection_pass_for_an_answer_to_an_earlier_request() -> None:
    first, second = FakeHolder(can_finish=True), FakeHolder(can_finish=True)
    budget = above_twice_the_limit(first, second)
    budget.release(0, first)
    assert second.leaves == 0
    first.held_bytes = 0
    budget.release(0, first)
    assert second.leaves == 1


def test_memory_budget_counts_a_connection_that_can_no_longer_finish_as_waiting() -> None:
    """Above twice the limit, its received part would be the first of many."""
    first, second = FakeHolder(can_finish=True), FakeHolder(can_finish=True)
    budget = full(first, second)
    budget.hold(1)
    budget.pass_next()
    first.can_finish = False
    assert budget.check() is None
    assert budget.check() is first
    assert second.leaves == 0


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


async def send_slowly_until_closed(client: Client) -> None:
    """Send single bytes until the broker has closed the connection, perhaps with a reset."""
    async with asyncio.timeout(20):
        while not (client.reader.at_eof() or client.writer.is_closing()):
            client.writer.write(b"a")
            await asyncio.sleep(0.02)


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
        await send_slowly_until_closed(slow)
        assert len((await other.receive())[1]) == 2 * MIB


async def fill_with_silent_clients(bench: Bench) -> list[Client]:
    """Fill the memory budget with requests of which the clients send no more than the beginning."""
    budget, begun = bench.server.budget, MIB.to_bytes(4, "big") + bytes(144 * KIB)
    silent = [await bench.connect() for _ in range(10)]
    for client in silent:
        assert await client.ask(ECHO, b"a") == b"a"
        client.writer.write(begun)
    await until(lambda: budget.held_bytes == len(silent) * len(begun))
    assert budget.held_bytes > budget.limit_bytes and budget.waiting_count
    return silent


@pytest.mark.uvloop
async def test_clients_that_send_no_rest_of_their_requests_delay_no_other_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "SWEEP_INTERVAL_S", 3_600)
    async with toy_server(queued_max_request_bytes=MIB) as bench:
        await fill_with_silent_clients(bench)
        other = await bench.connect()
        for _ in range(3):
            assert len(await other.ask(ECHO, bytes(2 * MIB))) == 2 * MIB


@pytest.mark.uvloop
async def test_clients_that_send_no_rest_of_their_requests_lose_their_connections_in_time(
    quick_sweep: None,
) -> None:
    async with toy_server(queued_max_request_bytes=MIB, request_receive_timeout_ms=300) as bench:
        budget = bench.server.budget
        silent = await fill_with_silent_clients(bench)
        budget.hold(budget.limit_bytes)  # so that memory is short for all of the time
        for client in silent:
            assert await client.is_closed()
        assert budget.held_bytes == budget.limit_bytes


@pytest.mark.uvloop
async def test_slow_request_beyond_the_budget_has_no_more_time_for_bytes_sent_before(
    quick_sweep: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BYTES_S_MIN", 100 * KIB)
    monkeypatch.setattr(connection, "PASSING_SILENCE_MAX_S", 0.2)
    async with toy_server(queued_max_request_bytes=64 * MIB) as bench:
        budget = bench.server.budget
        slow = await bench.connect()
        assert await slow.ask(ECHO, b"a") == b"a"
        slow.writer.write((50 * MIB).to_bytes(4, "big") + bytes(20 * MIB))
        await until(lambda: budget.held_bytes > 20 * MIB)
        budget.hold(budget.limit_bytes)
        slow.writer.write(bytes(300 * KIB))
        await until(lambda: budget._passing is not None)
        await send_slowly_until_closed(slow)


async def test_stall_begins_later_by_the_time_allowed_for_the_taken_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that took 64 KiB every 5 s would otherwise keep its answers in memory for hours."""
    untaken = iter([10 * MIB, 10 * MIB - 3 * connection.BYTES_S_MIN, 0, MIB])
    monkeypatch.setattr(connection, "unacknowledged_bytes", lambda _: next(untaken))
    async with toy_server() as bench:
        await bench.connect()
        await until(lambda: bench.server.connection_count)
        (held,) = bench.server._connections
        now_s, late_s = bench.server.now_s, list[float]()
        held.stalled_since_s = now_s - 10
        for _ in range(4):
            held.shorten_stall()
            late_s.append(now_s - held.stalled_since_s)
        held.stalled_since_s = None
    assert late_s == pytest.approx([10, 7, 0, 0])


@pytest.mark.uvloop
async def test_client_that_reads_steadily_keeps_its_connection_while_memory_is_short(
    quick_sweep: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel accepts a megabyte or more of an answer at once, and then nothing for a while."""
    monkeypatch.setattr(server, "STALLED_MAX_S", 0.7)
    monkeypatch.setattr(connection, "BYTES_S_MIN", 1)
    async with toy_server() as bench:
        budget, loop = bench.server.budget, asyncio.get_running_loop()
        budget.hold(budget.limit_bytes)
        with socket.create_connection(("127.0.0.1", bench.server.port)) as slow:
            slow.setblocking(False)
            await loop.sock_sendall(slow, Client.frame(ECHO, b"big %d" % (16 * MIB)))
            for _ in range(75):
                assert await loop.sock_recv(slow, 24 * KIB)
                await asyncio.sleep(0.02)
                assert bench.server.connection_count == 1
