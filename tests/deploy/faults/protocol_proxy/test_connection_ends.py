"""Test that connections of a proxy end, in whatever order their two ends are lost."""

import asyncio
import contextlib
import socket
import struct
from typing import cast

import pytest

from oncelog.deploy.faults.protocol_proxy import brokers as brokers_module
from oncelog.deploy.faults.protocol_proxy import connection as connection_module
from oncelog.deploy.faults.protocol_proxy import side as side_module
from oncelog.deploy.faults.protocol_proxy.events import (
    Answer,
    ConnectionClosed,
    ConnectionOpened,
    FaultMade,
    Request,
)
from oncelog.deploy.faults.protocol_proxy.rules import (
    AnswerError,
    Delay,
    Hold,
    HoldPoint,
    LoseAnswer,
    LoseRequest,
    Match,
    Rule,
)
from oncelog.deploy.faults.protocol_proxy.side import Side
from oncelog.deploy.faults.protocol_proxy.two_ends import TwoEnds
from oncelog.wire.error_codes import ErrorCode
from oncelog.wire.messages.produce_answer import ProducedPartition, ProducedTopic, ProduceResponse

from ....awaiting import settle, until
from .frames import answer_frame, request_frame
from .samples import SAMPLES, produce_request
from .scripted_broker import Bench, Client, sent
from .test_connections import END, end_txn

METADATA = {
    "brokers": [{"node_id": 1, "host": "h", "port": 9092, "rack": None}],
    "topics": [], "cluster_id": "c", "controller_id": 1,
}  # fmt: skip
PRODUCED = ProduceResponse([ProducedTopic("t", None, [ProducedPartition(0, 0)])], 0, [])
RESET = struct.pack("ii", 1, 0)
COMMITS = Match(apis={"OffsetCommit"})
NO_LEADER = AnswerError(ErrorCode.NOT_COORDINATOR)
on_both_loops = pytest.mark.parametrize(
    "_loop", [pytest.param("uvloop", marks=pytest.mark.uvloop), "asyncio"]
)


def commit(number: int) -> bytes:
    return request_frame("OffsetCommit", 8, SAMPLES["OffsetCommit"], number)


def answered(number: int) -> bytes:
    return sent(answer_frame("EndTxn", 3, {"error_code": 0}, number))


async def reset(client: Client) -> None:
    connected = client.writer.get_extra_info("socket")
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.writer.transport.abort()
    await settle()


async def flood(client: Client, frame: bytes) -> None:
    """Send the frame again and again."""
    while True:
        client.writer.write(frame * 1000)
        await client.writer.drain()


def reading(end: Client | asyncio.StreamWriter) -> asyncio.Transport:
    """Return the transport. A test may pause its reading."""
    writer = end.writer if isinstance(end, Client) else end
    return cast(asyncio.Transport, writer.transport)


def unsent_bytes(side: Side) -> int:
    assert side.transport is not None
    return side.transport.get_write_buffer_size()


def only(bench: Bench) -> TwoEnds:
    (ends,) = bench.hub.connections.values()
    return ends


@on_both_loops
async def test_connection_that_is_cut_when_an_answer_begins_to_be_held_ends(
    bench: Bench, _loop: str
):
    rule = Rule(END, Delay(60, "answer"))
    bench.hub.add(rule)
    cuts: list[object] = []

    def cut(event: object) -> None:
        if isinstance(event, Answer) and not cuts:
            loop = asyncio.get_running_loop()
            cuts.append(loop.call_soon(only(bench).close, "it was cut", True))

    bench.hub._listeners = (*bench.hub._listeners, cut)
    client = await bench.client()
    client.send(end_txn(1))
    assert await client.read() is None
    await until(lambda: not bench.hub.connections, 5)


@on_both_loops
async def test_rule_after_a_cut_held_answer_acts_on_the_next_request(bench: Bench, _loop: str):
    async def wait(*_: object) -> None:
        await asyncio.Event().wait()

    bench.hub.add(Rule(END, Hold(HoldPoint.BEFORE_ANSWER, wait)))
    client = await bench.client()
    client.send(end_txn(1))
    await until(lambda: bench.of(Answer))
    await settle()
    only(bench).close("it was cut", is_abrupt=True)
    await until(lambda: not bench.hub.connections)
    again = await bench.client()
    again.send(end_txn(2))
    await until(lambda: len(bench.of(Answer)) == 2)
    assert [answer.fate for answer in bench.of(Answer)] == ["held", "held"]


async def test_answer_that_arrives_after_the_loss_of_its_client_is_lost(bench: Bench):
    bench.hub.add(Rule(COMMITS, Delay(60)))
    bench.broker.answers = False
    client = await bench.client()
    client.writer.write(b"".join(map(sent, (end_txn(1), end_txn(2), commit(3)))))
    await until(lambda: len(bench.of(Request)) == 3 and len(bench.broker.heard) == 2)
    await reset(client)
    bench.broker.writers[0].write(answered(1))  # the proxy loses the client as it writes this
    await until(lambda: only(bench).client.is_lost)
    bench.broker.writers[0].write(answered(2))
    await until(lambda: len(bench.of(Answer)) == 2)
    assert [answer.fate for answer in bench.of(Answer)] == ["delivered", "lost"]


async def test_rule_after_a_held_request_forwarded_too_late_acts_on_the_next_request(
    bench: Bench,
):
    go_on = asyncio.Event()

    async def wait(*_: object) -> LoseAnswer:
        await go_on.wait()
        return LoseAnswer()

    bench.hub.add(Rule(COMMITS, Hold(HoldPoint.BEFORE_REQUEST, wait)))
    bench.broker.answers = False
    client = await bench.client()
    client.writer.write(sent(end_txn(1)) + sent(commit(2)))
    await until(lambda: len(bench.of(Request)) == 2 and bench.broker.heard)
    await reset(client)
    bench.broker.writers[0].write(answered(1))  # the proxy loses the client as it writes this
    bench.broker.writers[0].close()
    await until(lambda: bench.of(ConnectionClosed))
    go_on.set()
    await settle()
    again = await bench.client()
    again.send(commit(3))
    await until(lambda: bench.broker.heard[-1] == commit(3))
    bench.broker.writers[1].write(sent(answer_frame("OffsetCommit", 8, {"topics": []}, 3)))
    assert await again.read() is None


async def test_rule_does_not_count_a_malformed_produce(bench: Bench):
    bench.hub.add(Rule(Match(apis={"Produce"}), LoseAnswer()))
    client = await bench.client()
    frame = request_frame("Produce", 3, produce_request(3))
    client.send(frame[:14])
    assert await client.read() is None
    again = await bench.client()
    again.send(frame)
    await until(lambda: bench.broker.heard)
    bench.broker.writers[-1].write(sent(answer_frame("Produce", 3, PRODUCED, 1)))
    assert await again.read() is None
    assert len(bench.of(FaultMade)) == 1


@on_both_loops
async def test_connection_with_both_directions_full_ends_when_its_client_is_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, _loop: str
):
    async def answer_and_read(writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        reading(writer).resume_reading()

    monkeypatch.setattr(side_module, "WRITE_BUFFER_HIGH_BYTES", 100_000)
    bench.broker.answers = False
    client = await bench.client()
    for number in range(30):
        client.send(end_txn(number))
    await until(lambda: len(bench.broker.heard) == 30)
    ends, broker = only(bench), bench.broker.writers[0]
    reading(broker).pause_reading()
    reading(client).pause_reading()
    for number in range(30):
        broker.write(sent(number.to_bytes(4) + bytes(1_000_000)))
    task = asyncio.create_task(answer_and_read(broker))
    frame = sent(request_frame("Produce", 9, produce_request(9, acks=0)))
    client.writer.write(frame * (30_000_000 // len(frame)))
    await until(lambda: ends.client._paused and ends.client._frames and ends.broker._paused)
    client.writer.transport.abort()
    await until(lambda: not bench.hub.connections, 10)
    await task


@on_both_loops
async def test_answer_that_the_proxy_cannot_forward_ends_its_connection(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, _loop: str
):
    monkeypatch.setattr(brokers_module, "LISTENERS_MAX", 1)
    bench.broker.answers = False
    client = await bench.client()
    for number in range(3):
        client.send(request_frame("Metadata", 9, {"topics": None}, number))
    await until(lambda: len(bench.broker.heard) == 3)
    answers = [sent(answer_frame("Metadata", 9, METADATA, number)) for number in range(3)]
    bench.broker.writers[0].write(b"".join(answers))
    assert await client.read() is None
    await until(lambda: not bench.hub.connections, 5)
    assert "at most 1 listeners" in bench.of(ConnectionClosed)[0].reason


@on_both_loops
async def test_delayed_answer_that_the_proxy_cannot_forward_ends_its_connection(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, _loop: str
):
    monkeypatch.setattr(brokers_module, "LISTENERS_MAX", 1)
    bench.broker.answers = False
    bench.hub.add(Rule(Match(apis={"Metadata"}), Delay(0.01, "answer")))
    client = await bench.client()
    client.send(request_frame("Metadata", 9, {"topics": None}, 1))
    await until(lambda: bench.broker.heard)
    bench.broker.writers[0].write(sent(answer_frame("Metadata", 9, METADATA, 1)))
    assert await client.read() is None
    await until(lambda: not bench.hub.connections, 5)


@on_both_loops
@pytest.mark.parametrize("address", [("a" * 64 + ".example", 9092), ("127.0.0.1", 70_000), ("", 1)])
async def test_connection_to_a_broker_with_an_invalid_address_ends(
    bench: Bench, address, _loop: str
):
    bench.hub.brokers.addresses[7] = address
    port = bench.hub.ports.port_of("one", 7)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
    finally:
        writer.close()
    await until(lambda: bench.of(ConnectionClosed), 5)


async def test_answer_error_rule_keeps_the_order_of_answers_behind_many_requests(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connection_module, "IN_FLIGHT_MAX", 3)
    bench.broker.answers = False
    bench.hub.add(Rule(COMMITS, NO_LEADER, times=None))
    client = await bench.client()
    client.writer.write(b"".join(map(sent, (end_txn(1), commit(2), end_txn(3), commit(4)))))
    await until(lambda: len(bench.broker.heard) == 2)
    bench.broker.writers[0].write(answered(1))
    assert [await client.correlation_id() for _ in range(2)] == [1, 2]
    bench.broker.writers[0].write(answered(3))
    assert [await client.correlation_id() for _ in range(2)] == [3, 4]


async def test_proxy_keeps_at_most_its_maximum_of_own_answers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connection_module, "IN_FLIGHT_MAX", 3)
    bench.broker.answers = False
    rule = Rule(COMMITS, NO_LEADER, times=None)
    bench.hub.add(rule)
    client = await bench.client()
    client.writer.write(sent(end_txn(1)) + b"".join(sent(commit(n)) for n in range(2, 100)))
    await until(lambda: bench.of(FaultMade))
    await settle(100)
    assert bench.hub.made(rule) == 2
    bench.broker.writers[0].write(answered(1))
    assert [await client.correlation_id() for _ in range(99)] == list(range(1, 100))


@on_both_loops
async def test_client_that_reads_none_of_the_proxy_s_own_answers_is_not_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, _loop: str
):
    monkeypatch.setattr(side_module, "WRITE_BUFFER_HIGH_BYTES", 10_000)
    rule = Rule(COMMITS, NO_LEADER, times=None)
    bench.hub.add(rule)
    client = await bench.client()
    reading(client).pause_reading()
    await until(lambda: bench.of(ConnectionOpened))
    ends = only(bench)
    frame = sent(commit(1))
    sending = asyncio.create_task(flood(client, frame))
    await until(lambda: ends.client._paused)
    assert unsent_bytes(ends.client) < 100_000
    sending.cancel()
    client.writer.transport.abort()
    await until(lambda: not bench.hub.connections, 5)


async def test_client_is_held_until_each_hold_after_its_answers_has_ended(bench: Bench):
    first, second = asyncio.Event(), asyncio.Event()
    waits = iter((first, second))

    async def wait(*_: object) -> None:
        await next(waits).wait()

    rule = Rule(END, Hold(HoldPoint.AFTER_ANSWER, wait), times=2)
    bench.hub.add(rule)
    client = await bench.client()
    client.writer.write(sent(end_txn(1)) + sent(end_txn(2)))
    assert [await client.correlation_id() for _ in range(2)] == [1, 2]
    client.send(end_txn(3))
    first.set()
    await until(lambda: bench.hub.made(rule) == 1)
    await settle(50)
    assert len(bench.broker.heard) == 2
    second.set()
    assert await client.correlation_id() == 3


@on_both_loops
async def test_half_closed_connection_of_a_client_that_reads_no_more_is_aborted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, _loop: str
):
    monkeypatch.setattr(side_module, "CLOSE_TIMEOUT_S", 0.1)
    bench.broker.answers = False
    client = await bench.client()
    client.send(end_txn(1))
    await until(lambda: bench.broker.heard)
    reading(client).pause_reading()
    bench.broker.writers[0].write(sent(b"\0\0\0\1" + bytes(30_000_000)))
    ends = only(bench)
    await until(lambda: unsent_bytes(ends.client) > 1_000_000)
    client.writer.write_eof()
    await until(lambda: not bench.hub.connections, 5)


@on_both_loops
async def test_ended_connection_leaves_no_timer(bench: Bench, _loop: str):
    bench.hub.add(Rule(END, LoseRequest()))
    client = await bench.client()
    client.send(end_txn(1))
    await until(lambda: bench.of(FaultMade))
    ends = only(bench)
    client.writer.transport.abort()
    await until(lambda: not bench.hub.connections)
    timers = [ends._silence, ends.broker._aborting, ends.client._aborting]
    assert all(timer is not None and timer.cancelled() for timer in timers)
