"""Test the limits of the memory, connections and time that a client may use."""

import asyncio
import random
import socket
import time

import psutil
import pytest

from oncelog.node.listener import connection, connection_limits, connection_state, server
from oncelog.node.listener.memory_budget import ALLOWANCE_BYTES, Holder
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages import control

from ...awaiting import turns_until, until
from ...present import present
from .toy_server import ECHO, PRODUCE, WAIT, Bench, Client, toy_server

pytestmark = pytest.mark.uvloop  # as brokers do
KIB, MIB = 1024, 1024 * 1024


@pytest.fixture(scope="module", autouse=True)
def codecs_are_there() -> None:
    for version in range(5):
        control.prepare(18, version)


@pytest.fixture
def quick_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SWEEP_INTERVAL_S", 0.02)


def sized(size: int) -> bytes:
    return size.to_bytes(4, "big", signed=True)


async def honest(bench: Bench) -> None:
    """Check that another client is still served."""
    client = await bench.connect()
    began = time.monotonic()
    assert await client.ask(ECHO, b"hello") == b"hello"
    assert time.monotonic() - began < 10  # seconds: this machine may be busy


@pytest.mark.parametrize(
    "data",
    [
        sized(0),
        sized(-1),
        sized(-(2**31)),
        sized(2**31 - 1),
        sized(1001),
        sized(3) + b"abc",
        sized(8) + b"\0\x63\0\0\0\0\0\1",
        sized(10) + b"\0\0\0\2\0\0\0\1\xff\xff",
        sized(10) + b"\0\2\0\1\0\0\0\1\0\x09",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=[
        "empty",
        "negative",
        "most negative",
        "2 GiB",
        "above the limit",
        "no header",
        "unknown API",
        "a version not served",
        "a client id longer than the frame",
        "HTTP",
        "TLS",
    ],
)
async def test_malformed_frame_closes_only_its_own_connection(data: bytes) -> None:
    async with toy_server(socket_request_max_bytes=1000) as bench:
        good, bad = await bench.connect(), await bench.connect()
        assert await bad.ask(ECHO, b"fine") == b"fine"
        bad.writer.write(data)
        assert await bad.is_closed()
        assert await good.ask(ECHO, b"hello") == b"hello"
        assert bench.server.budget.held_bytes == 0


@pytest.mark.parametrize("version", [6, 99, 32767])
async def test_api_versions_of_an_unknown_version_is_answered_in_version_0(
    bench: Bench, version: int
) -> None:
    client = await bench.connect()
    request = b"\0\x12" + version.to_bytes(2, "big") + b"\0\0\0\x07" + b"whatever follows"
    client.writer.write(sized(len(request)) + request)
    correlation_id, body = await client.receive()
    answer = control.decode_response(18, 0, memoryview(body))
    assert (correlation_id, answer.error_code) == (7, ErrorCode.UNSUPPORTED_VERSION)
    ((api),) = answer.api_keys
    assert (api.api_key, api.min_version, api.max_version) == (18, 0, 5)
    supported = await client.ask((18, 0))
    keys = {a.api_key: a for a in control.decode_response(18, 0, supported).api_keys}
    assert (keys[0].min_version, keys[0].max_version) == (0, 3)  # Produce from 0


async def test_connections_beyond_the_maximum_are_closed() -> None:
    async with toy_server(max_connections=3) as bench:
        clients = [await bench.connect() for _ in range(3)]
        for client in clients:
            assert await client.ask(ECHO, b"a") == b"a"
        late = await bench.connect()
        assert await late.is_closed()
        clients[0].writer.close()
        await until(lambda: bench.server.connection_count == 2)
        await honest(bench)


async def test_connections_that_arrive_together_are_accepted_in_few_loop_turns() -> None:
    """With one accepted connection a turn, 200 clients would wait for 200 turns of 5 ms."""
    async with toy_server() as bench:
        sockets = [socket.socket() for _ in range(200)]
        for each in sockets:
            each.connect(("127.0.0.1", bench.server.port))  # the kernel accepts all of them
        turns = await turns_until(lambda: bench.server.connection_count == len(sockets))
        for each in sockets:
            each.close()
        assert turns <= len(sockets) // 4


async def test_connection_without_a_request_is_closed_for_a_new_connection_at_the_maximum() -> None:
    async with toy_server(max_connections=3) as bench:
        good, oldest, half = [await bench.connect() for _ in range(3)]
        half.writer.write(Client.frame(ECHO, b"half")[:7])
        assert await good.ask(ECHO, b"a") == b"a"
        for silent in (oldest, half):
            await honest(bench)
            assert await silent.is_closed()
        late = await bench.connect()
        assert await late.is_closed(), "all others have sent a request"
        assert await good.ask(ECHO, b"b") == b"b"
        assert bench.server.connection_count == 3


async def test_connection_without_a_request_is_closed_at_its_deadline(quick_sweep: None) -> None:
    async with toy_server(first_request_timeout_ms=100) as bench:
        good, silent, half = [await bench.connect() for _ in range(3)]
        assert await good.ask(ECHO, b"a") == b"a"
        half.writer.write(Client.frame(ECHO, b"half")[:7])
        assert await silent.is_closed() and await half.is_closed()
        assert await good.ask(ECHO, b"b") == b"b"
        assert bench.server.connection_count == 1


async def test_connections_of_one_address_are_limited_except_on_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with toy_server(max_connections_per_ip=2) as bench:
        for _ in range(5):
            await honest(bench)
        monkeypatch.setattr(connection_limits, "is_loopback", lambda host: False)
        late = await bench.connect()
        assert await late.is_closed()
        for client in bench.clients[:4]:
            client.writer.close()
        await until(lambda: bench.server.connection_count == 1)
        await honest(bench)


async def test_idle_connection_is_closed_and_a_connection_waiting_for_an_answer_is_not(
    quick_sweep: None,
) -> None:
    async with toy_server(connections_max_idle_ms=150) as bench:
        idle, waiting, active = [await bench.connect() for _ in range(3)]
        waiting.send(WAIT, b"long poll")
        for _ in range(10):
            await asyncio.sleep(0.04)
            assert await active.ask(ECHO, b"a") == b"a"
        assert await idle.is_closed()
        bench.toys.pending[b"long poll"].complete([b"1"])
        assert await waiting.receive() == (1, b"1")


async def test_idle_connection_with_queued_requests_is_closed_although_its_end_is_hidden(
    quick_sweep: None,
) -> None:
    """The kernel reports no close behind bytes that the broker does not read."""
    async with toy_server(connections_max_idle_ms=150) as bench:
        with socket.create_connection(("127.0.0.1", bench.server.port)) as gone:
            gone.setblocking(False)
            gone.send(Client.frame(WAIT, b"long poll") + Client.frame(WAIT, b"queued"))
            await until(lambda: bool(bench.toys.pending))
            with pytest.raises(BlockingIOError):
                while True:
                    gone.send(bytes(MIB))
        await until(lambda: bench.server.connection_count == 0)
        assert bench.toys.abandoned == [b"long poll"]
        assert bench.server.budget.held_bytes == 0


async def test_connection_with_an_unfinished_request_is_closed_at_its_deadline(
    quick_sweep: None,
) -> None:
    async with toy_server(request_receive_timeout_ms=150) as bench:
        slow, drop_by_drop, steady = [await bench.connect() for _ in range(3)]
        slow.writer.write(sized(100) + b"\0\2")
        frame = Client.frame(ECHO, b"x" * 300)
        for number in range(12):
            if not drop_by_drop.writer.transport.is_closing():
                drop_by_drop.writer.write(frame[number : number + 1])
            steady.writer.write(Client.frame(ECHO, b"steady", number))
            await asyncio.sleep(0.03)
        assert await slow.is_closed()
        assert await drop_by_drop.is_closed()
        for number in range(12):
            assert await steady.receive() == (number, b"steady")


async def test_client_that_reads_no_answers_is_paused_and_takes_bounded_memory(
    quick_sweep: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "STALLED_MAX_S", 0.1)
    async with toy_server(queued_max_request_bytes=2 * MIB) as bench:
        deaf = await bench.connect()
        deaf.transport.pause_reading()
        for _ in range(100):
            deaf.send(ECHO, b"big %d" % MIB)
        await until(lambda: bench.toys.started)
        await asyncio.sleep(0.05)  # time enough to serve too many
        assert len(bench.toys.started) < 20
        (held,) = bench.server._connections
        assert present(held._transport).get_write_buffer_size() < 12 * MIB
        assert bench.server.connection_count == 1
        # With the answer to another client the memory is short, and both clients are disconnected.
        other = await bench.connect()
        other.transport.pause_reading()
        other.send(ECHO, b"big %d" % (32 * MIB))
        await until(lambda: bench.server.connection_count == 0)
        assert bench.server.budget.held_bytes == 0
        await honest(bench)


async def test_answer_partly_sent_is_counted_with_its_full_size(bench: Bench) -> None:
    """The transport keeps an answer until all of it is sent, so 40 answers may take 150 MB."""
    deaf = await bench.connect()
    deaf.transport.pause_reading()
    answer_bytes = 16 * MIB
    deaf.send(ECHO, b"big %d" % answer_bytes)
    await until(lambda: bench.server.budget.held_bytes > MIB)
    assert bench.server.budget.held_bytes >= answer_bytes
    assert bench.server.budget.share_bytes <= (64 - 16) * MIB // 2
    deaf.transport.resume_reading()
    assert len((await deaf.receive())[1]) == answer_bytes
    await until(lambda: bench.server.budget.held_bytes == 0)


async def test_client_that_reads_slowly_gets_all_its_answers(bench: Bench) -> None:
    slow = await bench.connect()
    for _ in range(20):
        slow.send(ECHO, b"big %d" % MIB)
    slow.send(ECHO, b"last")
    await asyncio.sleep(0.1)
    for number in range(1, 21):
        assert await slow.receive() == (number, bytes(MIB))
    assert await slow.receive() == (21, b"last")
    assert bench.server.budget.held_bytes == 0


async def test_requests_beyond_the_memory_budget_stay_in_the_socket(
    quick_sweep: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with toy_server(queued_max_request_bytes=4 * MIB) as bench:
        budget, told_to_wait = bench.server.budget, list[int]()
        must_wait = budget.must_wait

        def noted(holder: Holder) -> bool:
            waits = must_wait(holder)
            if waits:
                told_to_wait.append(holder.held_bytes)
            return waits

        monkeypatch.setattr(budget, "must_wait", noted)
        clients = [await bench.connect() for _ in range(10)]
        for number, client in enumerate(clients):
            client.send(WAIT, b"%d" % number + b" " * 2 * MIB)
        await until(lambda: bool(told_to_wait) and bool(bench.toys.started))
        await honest(bench)
        for _ in clients:
            assert budget.held_bytes < 4 * MIB + 10 * (ALLOWANCE_BYTES + 2 * MIB)
            await until(lambda: bench.toys.pending)
            _, pending = bench.toys.pending.popitem()
            pending.complete([b"done"])
        for client in clients:
            assert await client.receive() == (1, b"done")
        await until(lambda: (budget.held_bytes, budget.waiting_count) == (0, 0))


async def test_unfinished_requests_that_fill_the_budget_do_not_block_a_complete_large_request(
    quick_sweep: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PASSING_SILENCE_MAX_S", 0.05)
    async with toy_server(queued_max_request_bytes=MIB, request_receive_timeout_ms=30_000) as bench:
        attackers = [await bench.connect() for _ in range(20)]
        frame = sized(50 * MIB) + b"\0\2\0\1" + bytes(400 * KIB)
        for attacker in attackers:
            attacker.writer.write(frame)
        await until(lambda: bench.server.budget.waiting_count > 0)
        assert bench.server.budget.held_bytes < 20 * 500 * KIB
        large = await bench.connect()
        large.send(ECHO, b"now" + bytes(3 * MIB))
        await honest(bench)
        assert len((await large.receive(20))[1]) == 3 * MIB + 3


async def test_thousand_idle_connections_cost_little_memory_and_delay_no_active_client(
    bench: Bench,
) -> None:
    await honest(bench)
    process = psutil.Process()
    before = process.memory_info().rss
    clients = [await bench.connect() for _ in range(1000)]
    for client in clients:
        client.send(ECHO, b"a")
    for client in clients:
        assert (await client.receive())[1] == b"a"
    assert bench.server.connection_count == 1001
    # Both ends live in this process, and the client's end is asyncio's streams.
    assert process.memory_info().rss - before < 48 * MIB
    for _ in range(20):
        began = time.monotonic()
        assert await bench.clients[0].ask(ECHO, b"hello") == b"hello"
        assert time.monotonic() - began < 10
    for client in clients:
        client.writer.transport.abort()
    await until(lambda: bench.server.connection_count == 1)


async def test_malformed_bytes_on_one_connection_delay_no_other_connection(
    quick_sweep: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_state, "UNATTENDED_MAX_S", 0.3)
    rng = random.Random(11)
    async with toy_server(socket_request_max_bytes=MIB) as bench:
        good = await bench.connect()
        process = psutil.Process()
        before = process.memory_info().rss
        for number in range(400):
            bad = await bench.connect()
            bad.writer.write(_rubbish(rng))
            if rng.random() < 0.5:
                bad.writer.close()
            if number % 20 == 0:
                assert await good.ask(ECHO, b"hello") == b"hello"
                assert await good.ask(PRODUCE, b"now %d" % number) == b"now %d" % number
        assert process.memory_info().rss - before < 64 * MIB
        for client in bench.clients[1:]:
            client.writer.transport.abort()
        await until(lambda: bench.server.connection_count == 1)
        assert bench.server.budget.held_bytes == 0


def _rubbish(rng: random.Random) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return rng.randbytes(rng.randrange(1, 200))
    if kind == 1:  # a lying length
        return sized(rng.randrange(-5, 2 * MIB)) + rng.randbytes(rng.randrange(0, 100))
    key, version = rng.choice([(0, 3), (1, 4), (2, 1), (3, 1), (18, rng.randrange(6))])
    frame = bytearray(Client.frame((key, min(version, 4)), rng.randbytes(rng.randrange(60))))
    for _ in range(rng.randrange(1, 4)):  # a good frame with a few bytes turned
        frame[rng.randrange(4, len(frame))] = rng.randrange(256)
    return bytes(frame) * rng.randrange(1, 4)


async def test_connection_log_lines_are_rate_limited(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with toy_server() as bench:
        for _ in range(40):
            bad = await bench.connect()
            bad.writer.write(sized(-1))
            assert await bad.is_closed()
    assert len([r for r in caplog.records if "closed" in r.getMessage()]) == 10


def test_transport_write_buffer_limit_is_below_4_mib() -> None:
    assert connection.WRITE_BUFFER_HIGH_BYTES < 4 * MIB


async def gone_from_a_long_poll(bench: Bench, behind: tuple[int, int], *bodies: bytes) -> None:
    """Disconnect a client while its first request waits and other requests are queued."""
    client = await bench.connect()
    client.send(WAIT, b"first")
    for body in bodies:
        client.send(behind, body)
    await until(lambda: bool(bench.toys.pending))
    client.writer.close()


async def swept(bench: Bench) -> None:
    """Wait until the server has checked all connections some times."""
    now_s = bench.server.now_s
    await until(lambda: bench.server.now_s > now_s + 0.1)


async def test_requests_sent_before_the_client_closed_are_executed(quick_sweep: None) -> None:
    """As in Kafka, a produce with acks=0 is appended although its client has disconnected."""
    async with toy_server() as bench:
        toys = bench.toys
        bodies = [b"none %d" % number for number in range(100)]
        await gone_from_a_long_poll(bench, PRODUCE, *bodies)
        await swept(bench)
        toys.pending[b"first"].complete(None)
        await until(lambda: bench.server.connection_count == 0)
        assert toys.started == [b"first", *bodies]


@pytest.mark.parametrize("behind", [WAIT, PRODUCE])
async def test_requests_of_a_closed_client_are_abandoned_after_a_bounded_time(
    quick_sweep: None, monkeypatch: pytest.MonkeyPatch, behind: tuple[int, int]
) -> None:
    async with toy_server() as bench:
        toys = bench.toys
        await gone_from_a_long_poll(bench, behind, b"none behind it")
        await swept(bench)
        assert bench.server.connection_count == 1
        monkeypatch.setattr(connection_state, "UNATTENDED_MAX_S", 0.1)
        await until(lambda: bench.server.connection_count == 0)
        assert toys.abandoned == toys.started == [b"first"]


async def test_requests_of_a_closed_client_are_kept_for_their_full_time_despite_a_broker_pause(
    quick_sweep: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time in which the broker's process was paused is not counted."""
    monkeypatch.setattr(connection_state, "UNATTENDED_MAX_S", 0.3)
    async with toy_server() as bench:
        toys = bench.toys
        await gone_from_a_long_poll(bench, PRODUCE, b"none")
        time.sleep(0.5)  # the whole process
        now_s = bench.server.now_s
        await until(lambda: bench.server.now_s != now_s)
        assert bench.server.connection_count == 1
        await until(lambda: bench.server.connection_count == 0)
        assert toys.abandoned == toys.started == [b"first"]
