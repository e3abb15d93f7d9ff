"""Test that requests of a connection are answered in their order."""

import asyncio
import random

import pytest

from oncelog.node.listener.connection import PIPELINED_MAX, REQUESTS_AT_A_STRETCH
from oncelog.runtime.turn_share import SHARE_S, TurnShare

from ...awaiting import until
from ...present import present
from ..fake_broker import plain_listener
from .toy_server import ECHO, PRODUCE, SLOW, WAIT, Bench, Client, toy_server

pytestmark = pytest.mark.uvloop  # as brokers do


async def test_request_is_answered_on_its_connection(bench: Bench) -> None:
    client = await bench.connect()
    assert await client.ask(ECHO, b"hello") == b"hello"
    assert await client.ask(WAIT, b"now") == b"now"


async def test_request_frames_may_arrive_in_any_pieces(bench: Bench) -> None:
    client = await bench.connect()
    bodies = [b"x" * size for size in (0, 1, 70_000, 3, 200_000, 2)]
    stream = b"".join(Client.frame(ECHO, body, number) for number, body in enumerate(bodies))
    rng = random.Random(7)
    while stream:
        size = rng.choice((1, 2, 3, 5, 4096, 65_536))
        client.writer.write(stream[:size])
        stream = stream[size:]
        await asyncio.sleep(0)
    for number, body in enumerate(bodies):
        assert await client.receive() == (number, body)


async def test_produces_start_immediately_and_are_answered_in_order(bench: Bench) -> None:
    client, toys = await bench.connect(), bench.toys
    names = [b"%d" % number for number in range(20)]
    for name in names:
        client.send(PRODUCE, name)
    await until(lambda: len(toys.started) == 20)
    finished = random.Random(3).sample(names, 20)
    for name in finished:
        toys.pending[name].complete([name])
    for number, name in enumerate(names, 1):
        assert await client.receive() == (number, name)


async def test_answer_that_is_ready_early_waits_for_earlier_answers(bench: Bench) -> None:
    client, toys = await bench.connect(), bench.toys
    for name in (b"first", b"now", b"none", b"third"):
        client.send(PRODUCE, name)
    await until(lambda: len(toys.started) == 4)
    assert await client.is_silent()
    toys.pending[b"first"].complete([b"1"])
    assert await client.receive() == (1, b"1")
    assert await client.receive() == (2, b"now")
    toys.pending[b"third"].complete([b"4"])
    assert await client.receive() == (4, b"4")


@pytest.mark.parametrize("second", [ECHO, WAIT, SLOW])
async def test_request_other_than_produce_starts_after_all_earlier_answers(
    bench: Bench, second: tuple[int, int]
) -> None:
    client, toys = await bench.connect(), bench.toys
    client.send(PRODUCE, b"a")
    client.send(PRODUCE, b"b")
    client.send(second, b"now")
    client.send(PRODUCE, b"c")
    await until(lambda: len(toys.started) == 2)
    toys.pending[b"b"].complete([b"2"])
    await asyncio.sleep(0.02)
    assert toys.started == [b"a", b"b"]
    toys.pending[b"a"].complete([b"1"])
    await until(lambda: len(toys.started) >= 3)
    toys.gate.set()
    await until(lambda: len(toys.started) == 4)
    toys.pending[b"c"].complete([b"4"])
    for answer in ((1, b"1"), (2, b"2"), (3, b"now"), (4, b"4")):
        assert await client.receive() == answer


@pytest.mark.parametrize("last", ["not served", "no header"])
async def test_request_that_closes_its_connection_sends_earlier_answers_first(
    bench: Bench, last: str
) -> None:
    client, toys = await bench.connect(), bench.toys
    client.send(PRODUCE, b"a")
    client.send(PRODUCE, b"b")
    if last == "not served":
        client.send((99, 1), b"c")
    else:
        client.writer.write(b"\0\0\0\x0a" + bytes((0, PRODUCE[0], 0, PRODUCE[1], 0, 0, 0, 3, 9, 9)))
    client.send(PRODUCE, b"d")
    await until(lambda: len(toys.started) == 2)
    assert await client.is_silent()
    toys.pending[b"b"].complete([b"2"])
    toys.pending[b"a"].complete([b"1"])
    assert await client.receive() == (1, b"1")
    assert await client.receive() == (2, b"2")
    assert await client.is_closed()
    assert toys.started == [b"a", b"b"]


async def test_malformed_frame_length_sends_earlier_answers_before_the_close(bench: Bench) -> None:
    client, toys = await bench.connect(), bench.toys
    frames = [Client.frame(WAIT, b"later", 1), Client.frame(ECHO, b"queued", 2)]
    client.writer.write(b"".join(frames) + b"\xff" * 8)
    await until(lambda: b"later" in toys.pending)
    assert await client.is_silent()
    client.writer.write(Client.frame(ECHO, b"is not read any more", 3))
    toys.pending[b"later"].complete([b"now"])
    assert await client.receive() == (1, b"now")
    assert await client.receive() == (2, b"queued")
    assert await client.is_closed()


async def test_produce_after_a_waiting_fetch_on_its_connection_waits_for_the_fetch(
    bench: Bench,
) -> None:
    client, toys = await bench.connect(), bench.toys
    client.send(WAIT, b"fetch")
    client.send(PRODUCE, b"produce")
    await until(lambda: toys.started == [b"fetch"])
    await asyncio.sleep(0.02)
    assert toys.started == [b"fetch"]
    toys.pending[b"fetch"].complete([b"1"])
    await until(lambda: toys.started == [b"fetch", b"produce"])


async def test_at_most_64_produces_are_pipelined(bench: Bench) -> None:
    client, toys = await bench.connect(), bench.toys
    names = [b"%d" % number for number in range(PIPELINED_MAX + 10)]
    for name in names:
        client.send(PRODUCE, name)
    await until(lambda: len(toys.started) == PIPELINED_MAX)
    await asyncio.sleep(0.02)
    assert len(toys.started) == PIPELINED_MAX
    for done, name in enumerate(names):
        await until(lambda name=name: name in toys.pending)
        assert len(toys.started) <= done + PIPELINED_MAX
        toys.pending[name].complete([name])
    for number, name in enumerate(names, 1):
        assert await client.receive() == (number, name)


async def test_requests_of_different_connections_do_not_wait_for_one_another(bench: Bench) -> None:
    stuck, free = await bench.connect(), await bench.connect()
    stuck.send(WAIT, b"never")
    stuck.send(ECHO, b"behind")
    assert await free.ask(ECHO, b"hello") == b"hello"
    assert bench.toys.started == [b"never", b"hello"]


async def test_queue_of_many_small_requests_leaves_loop_turns_to_other_connections(
    bench: Bench,
) -> None:
    greedy, other = await bench.connect(), await bench.connect()
    for _ in range(50 * REQUESTS_AT_A_STRETCH):
        greedy.send(ECHO, b"g")
    other.send(ECHO, b"other")
    assert await other.receive() == (1, b"other")
    place = bench.toys.started.index(b"other")
    for number in range(1, 50 * REQUESTS_AT_A_STRETCH + 1):
        assert await greedy.receive() == (number, b"g")
    assert place < 45 * REQUESTS_AT_A_STRETCH


async def test_request_that_is_slow_delays_only_its_own_connection(bench: Bench) -> None:
    slow, other = await bench.connect(), await bench.connect()
    slow.send(SLOW, b"slow")
    slow.send(ECHO, b"next")
    assert await other.ask(ECHO, b"hello") == b"hello"
    bench.toys.gate.set()
    assert await slow.receive() == (1, b"slow")
    assert await slow.receive() == (2, b"next")


async def test_handler_that_raises_is_answered_where_an_error_answer_exists(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with toy_server() as bench:
        client, toys = await bench.connect(), bench.toys
        assert await client.ask(ECHO, b"defect") == b"error -1"
        assert await client.ask(ECHO, b"and on") == b"and on"
        toys.gate.set()
        client.send(SLOW, b"defect")
        assert await client.is_closed()  # this toy has no error answer
    assert len([r for r in caplog.records if "on purpose" in r.getMessage()]) >= 2


@pytest.mark.parametrize("body", [b"close", b"malformed"])
async def test_handler_may_close_its_connection(bench: Bench, body: bytes) -> None:
    client, other = await bench.connect(), await bench.connect()
    client.send(ECHO, b"before")
    client.send(ECHO, body)
    client.send(ECHO, b"after")
    assert await client.receive() == (1, b"before")
    assert await client.is_closed()
    assert b"after" not in bench.toys.started
    assert await other.ask(ECHO, b"hello") == b"hello"


async def test_handler_that_fails_late_without_an_answer_closes_the_connection(
    bench: Bench,
) -> None:
    client, toys = await bench.connect(), bench.toys
    client.send(PRODUCE, b"a")
    client.send(PRODUCE, b"b")
    await until(lambda: len(toys.pending) == 2)
    toys.pending[b"b"].abort("a write with acks=0 failed")
    assert await client.is_silent()
    toys.pending[b"a"].complete([b"1"])
    assert await client.receive() == (1, b"1")
    assert await client.is_closed()


async def test_requests_of_many_clients_closing_together_are_abandoned_in_many_turns(
    bench: Bench,
) -> None:
    """To abandon 1,000 requests that wait for hundreds of partitions takes many turns."""
    toys = bench.toys
    names = [b"%d" % number for number in range(20)]
    for name in names:
        (await bench.connect()).send(WAIT, name)
    await until(lambda: len(toys.pending) == len(names))
    bench.server.share = TurnShare(lambda: len(toys.abandoned) * SHARE_S / 2)
    connections = list(bench.server._connections)
    for connection in connections:
        connection.abort()
    most, before = 0, 0
    while len(toys.abandoned) < len(names):
        await asyncio.sleep(0)
        most, before = max(most, len(toys.abandoned) - before), len(toys.abandoned)
    assert most <= 2
    assert sorted(toys.abandoned) == sorted(names)
    for name in names:  # late answers are dropped
        toys.pending[name].complete([b"late"])


async def test_handlers_are_notified_when_their_client_closes(bench: Bench) -> None:
    client, toys = await bench.connect(), bench.toys
    closed = []
    client.send(PRODUCE, b"a")
    client.send(PRODUCE, b"b")
    await until(lambda: len(toys.pending) == 2)
    (connection,) = bench.server._connections
    assert connection.context is not None
    connection.context.on_close.append(lambda: closed.append(True))
    client.reset()
    await until(lambda: toys.abandoned == [b"a", b"b"])
    assert closed == [True]
    toys.pending[b"a"].complete([b"too late"])
    assert bench.server.budget.held_bytes == 0
    assert bench.server.connection_count == 0


async def test_server_stop_answers_received_requests(bench: Bench) -> None:
    client, toys = await bench.connect(), bench.toys
    client.send(PRODUCE, b"a")
    await until(lambda: b"a" in toys.pending)
    asyncio.get_running_loop().call_later(0.05, lambda: toys.pending[b"a"].complete([b"1"]))
    await bench.server.stop(deadline_s=2)
    assert await client.receive() == (1, b"1")
    assert await client.is_closed()
    with pytest.raises(OSError):
        await bench.connect()


async def test_server_stop_ends_after_its_time_limit(bench: Bench) -> None:
    client = await bench.connect()
    client.send(WAIT, b"never")
    await until(lambda: b"never" in bench.toys.pending)
    async with asyncio.timeout(1):
        await bench.server.stop(deadline_s=0.1)
    assert await client.is_closed()


async def test_listener_port_in_use_is_reported_in_one_sentence() -> None:
    async with toy_server() as one, toy_server() as two:
        with pytest.raises(OSError, match=f"Cannot listen on 127.0.0.1:{one.server.port}"):
            await two.server.start(plain_listener(one.server.port))


async def test_answer_for_a_client_that_has_just_closed_is_dropped(bench: Bench) -> None:
    client, toys = await bench.connect(), bench.toys
    for name in (b"a", b"b"):
        client.send(PRODUCE, name)
    await until(lambda: len(toys.pending) == 2)
    (connection,) = bench.server._connections
    present(connection._transport).abort()  # the transport knows, the protocol does not yet
    for name in (b"a", b"b"):
        toys.pending[name].complete([bytes(1000)])
    await until(lambda: bench.server.connection_count == 0)
    assert bench.server.budget.held_bytes == 0
