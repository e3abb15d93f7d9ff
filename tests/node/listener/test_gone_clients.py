"""Test that requests are executed although their client has disconnected, as in Kafka."""

import asyncio
import errno
import logging
import mmap
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from oncelog.node.linux import has_peer_closed
from oncelog.node.listener import connection_limits, connection_state, server
from oncelog.node.listener.pending_answer import PendingAnswer
from oncelog.node.listener.server import SWEPT_AT_ONCE, KafkaServer
from oncelog.wire.frame_memory import FrameMemory
from oncelog.wire.messages import api_keys, control

from ...awaiting import until
from ..fake_broker import FakeBroker, plain_listener
from ..transactions.one_node import OneNode
from .toy_server import (
    ECHO,
    SMALL_ANSWER_BYTES,
    WAIT,
    Bench,
    Client,
    fill_the_socket,
    toy_server,
)

pytestmark = pytest.mark.uvloop
END_VERSION, MIB = 3, 1024 * 1024


@asynccontextmanager
async def coordinator() -> AsyncIterator[tuple[OneNode, KafkaServer]]:
    """Yield a transaction coordinator with one shard, and its listener."""
    node, broker = OneNode(hold_ms=20), FakeBroker()
    broker.services.transactions = node.coordinators
    listener = KafkaServer(broker.dispatcher, broker.services, logging.getLogger("oncelog.test"))
    await listener.start(plain_listener())
    try:
        yield node, listener
    finally:
        await listener.stop(0)


def end_request(producer_id: int, producer_epoch: int) -> bytes:
    fields = {
        "transactional_id": "id",
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "committed": True,
    }
    body = control.encode_request(api_keys.END_TXN, END_VERSION, fields)
    return Client.frame((int(api_keys.END_TXN), END_VERSION), body)


@pytest.mark.parametrize("closes", ["at once", "with a reset"])
async def test_end_txn_is_executed_after_its_client_has_closed(
    closes: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with coordinator() as (node, listener):
        producer = await node.init()
        await node.add(producer)
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        await until(lambda: listener.connection_count == 1)
        writer.write(end_request(producer.producer_id, producer.producer_epoch))
        if closes == "at once":
            writer.close()
        else:
            accepted = next(iter(listener._connections))
            await until(lambda: accepted.has_requests or node.state() != "Ongoing")
            writer.transport.abort()
        await until(lambda: node.state() == "CompleteCommit")
        await until(lambda: listener.connection_count == 0)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux passes the options on")
async def test_connection_of_an_unreachable_client_is_ended_by_the_kernel_when_it_is_idle(
    bench: Bench,
) -> None:
    """Such a client sends no FIN, and a connection with a waiting request is never idle."""
    await bench.connect()
    await until(lambda: bench.server.connection_count == 1)
    (kept,) = bench.server._connections
    assert kept._transport is not None
    accepted = kept._transport.get_extra_info("socket")
    options = socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT
    idle_s, interval_s, count = (accepted.getsockopt(socket.IPPROTO_TCP, each) for each in options)
    assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert idle_s + interval_s * count == bench.server.config.connections_max_idle_ms // 1000


async def test_request_age_of_a_closed_connection_is_zero(bench: Bench) -> None:
    client = await bench.connect()
    assert await client.ask(ECHO, b"here") == b"here"
    context = next(iter(bench.server._connections)).context
    assert context is not None
    client.writer.close()
    await until(lambda: bench.server.connection_count == 0)
    assert context.waited_ms() == 0


async def test_queued_requests_of_a_closed_connection_are_executed(bench: Bench) -> None:
    gone = await bench.connect()
    gone.send(WAIT, b"first")
    gone.send(ECHO, b"end of a transaction")
    await until(lambda: bool(bench.toys.pending))
    gone.writer.close()
    bench.toys.pending[b"first"].complete(None)
    await until(lambda: bench.server.connection_count == 0)
    assert sorted(bench.toys.started) == [b"end of a transaction", b"first"]


@pytest.mark.parametrize("is_read", [True, False])
async def test_half_closed_client_gets_all_its_answers_and_is_then_disconnected(
    monkeypatch: pytest.MonkeyPatch, is_read: bool
) -> None:
    """The end of the stream is read before the answer, or stays unread behind a queued request."""
    monkeypatch.setattr(server, "SWEEP_INTERVAL_S", 0.02)
    async with toy_server() as bench:
        client, toys = await bench.connect(), bench.toys
        client.send(WAIT, b"first")
        if not is_read:
            client.send(WAIT, b"second")
        client.writer.write_eof()
        await until(lambda: bool(toys.pending))
        now_s = bench.server.now_s
        await until(lambda: bench.server.now_s > now_s + 0.1)  # some sweeps
        toys.pending[b"first"].complete([b"answer"])
        assert await client.receive() == (1, b"answer")
        if not is_read:
            await until(lambda: b"second" in toys.pending)
            toys.pending[b"second"].complete([b"another"])
            assert await client.receive() == (2, b"another")
        assert await client.is_closed()
        await until(lambda: bench.server.connection_count == 0)
        assert not bench.server.budget.held_bytes


async def test_half_closed_client_that_reads_slowly_gets_the_whole_of_a_large_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "SWEEP_INTERVAL_S", 0.02)
    async with toy_server() as bench:
        loop, size_bytes = asyncio.get_running_loop(), 16 * MIB
        with socket.create_connection(("127.0.0.1", bench.server.port)) as slow:
            slow.setblocking(False)
            await loop.sock_sendall(slow, Client.frame(ECHO, b"big %d" % size_bytes))
            slow.shutdown(socket.SHUT_WR)
            received_bytes = 0
            while part := await loop.sock_recv(slow, 256 * 1024):
                received_bytes += len(part)
                await asyncio.sleep(0.01)  # the answer takes dozens of sweeps
        assert received_bytes > size_bytes


async def test_half_closed_client_that_pauses_gets_the_last_bytes_of_its_last_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The transport holds fewer bytes than the limit at which writing is paused."""
    monkeypatch.setattr(server, "SWEEP_INTERVAL_S", 0.02)
    monkeypatch.setattr(server, "CLOSING_MAX_S", 0.1)
    async with toy_server() as bench:
        client = await bench.connect()
        client.transport.pause_reading()
        await fill_the_socket(bench, client.writer.write)
        client.writer.write_eof()
        now_s = bench.server.now_s
        await until(lambda: bench.server.now_s > now_s + 0.5)
        client.transport.resume_reading()
        received = await client.reader.read()
        assert len(received) == len(bench.toys.started) * (SMALL_ANSWER_BYTES + 8)
        await until(lambda: bench.server.connection_count == 0)
        assert not bench.server.budget.held_bytes


async def test_request_of_a_half_closed_client_that_waits_too_long_is_abandoned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "SWEEP_INTERVAL_S", 0.02)
    monkeypatch.setattr(connection_state, "UNATTENDED_MAX_S", 0.1)
    async with toy_server() as bench:
        client = await bench.connect()
        client.send(WAIT, b"first")
        client.writer.write_eof()
        assert await client.is_closed()
        assert bench.toys.abandoned == [b"first"]


async def test_half_closed_client_gets_its_answer_though_its_request_waited_for_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of the stream is behind the rest of the request, which the kernel still holds."""
    monkeypatch.setattr(server, "SWEEP_INTERVAL_S", 3_600)
    async with toy_server(queued_max_request_bytes=2 * MIB) as bench:
        waiting, client = await bench.connect(), await bench.connect()
        for each in (waiting, client):
            assert await each.ask(ECHO, b"a") == b"a"
        budget = bench.server.budget
        budget.hold(2 * MIB)
        waiting.send(WAIT, bytes(MIB))
        await until(lambda: bool(bench.toys.pending))
        client.send(ECHO, bytes(3 * MIB // 16))
        client.writer.write_eof()
        await until(lambda: budget.waiting_count == 2)
        transports: list[Any] = [each._transport for each in bench.server._connections]
        peers = [each.get_extra_info("socket") for each in transports]
        await until(lambda: any(map(has_peer_closed, peers)))
        bench.server._sweep()
        assert len((await client.receive())[1]) == 3 * MIB // 16
        assert await client.is_closed()


async def test_half_closed_client_above_the_creation_rate_gets_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "SWEEP_INTERVAL_S", 0.02)
    rate: dict[str, Any] = {"max_connection_creation_rate": 2, "quota_window_num": 2}
    async with toy_server(quota_window_size_seconds=1, **rate) as bench:
        clients = [await bench.connect() for _ in range(4)]
        for client in clients:
            client.send(ECHO, b"abc")
            client.writer.write_eof()
        assert [await client.receive() for client in clients] == [(1, b"abc")] * 4


async def test_request_of_a_half_closed_client_is_abandoned_after_the_idle_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka does the same, and has no other limit for such a request."""
    monkeypatch.setattr(server, "SWEEP_INTERVAL_S", 0.02)
    async with toy_server(connections_max_idle_ms=100) as bench:
        client = await bench.connect()
        client.send(WAIT, b"first")
        client.writer.write_eof()
        assert await client.is_closed()
        assert bench.toys.abandoned == [b"first"]


async def test_half_closed_client_holds_no_memory_for_a_request_without_its_end(
    bench: Bench,
) -> None:
    client, budget = await bench.connect(), bench.server.budget
    client.send(WAIT, b"first")
    client.writer.write((20 * MIB).to_bytes(4, "big") + bytes(5 * MIB))
    await until(lambda: budget.held_bytes > 5 * MIB)
    (kept,) = bench.server._connections
    client.writer.write_eof()
    await until(lambda: kept._has_ended)
    assert budget.held_bytes == kept.held_bytes == len(Client.frame(WAIT, b"first"))
    assert kept._receiver._frame is None
    bench.toys.pending[b"first"].complete([b"answer"])
    assert await client.receive() == (1, b"answer")
    assert await client.is_closed()
    await until(lambda: bench.server.connection_count == 0)
    assert not budget.held_bytes


async def fill_with_closed_clients(bench: Bench, count: int) -> None:
    """Let clients close their connections while their requests wait, for a test."""
    for number in range(count):
        client, name = await bench.connect(), b"%d" % number
        client.send(WAIT, name)
        await until(lambda name=name: name in bench.toys.pending)
        client.writer.close()
    connections = bench.server._connections
    await until(lambda: [each._has_ended for each in connections] == [True] * count)


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_ip", "of the listener"])
async def test_connections_of_closed_clients_leave_their_places_to_new_clients(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Kafka has no limits by default, so an application can always start again there."""
    monkeypatch.setattr(connection_limits, "is_loopback", lambda host: False)
    (listener,) = plain_listener()
    limits: dict[str, Any] = {limit: 3}
    if limit == "of the listener":
        listener, limits = replace(listener, overrides={"max_connections": 3}), {}
    async with toy_server([listener], **limits) as bench:
        await fill_with_closed_clients(bench, 3)
        new = [await bench.connect() for _ in range(3)]
        for client in new:
            assert await client.ask(ECHO, b"a") == b"a"
        await until(lambda: bench.toys.abandoned == [b"0", b"1", b"2"])
        assert await (await bench.connect()).is_closed()
        assert bench.server.connection_count == 3


async def test_connection_of_a_closed_client_with_a_queued_request_keeps_its_place() -> None:
    """The end of a transaction may be queued, and a produce may wait for its append."""
    async with toy_server(max_connections=2) as bench:
        await fill_with_closed_clients(bench, 2)
        queued, appending = bench.server._connections
        queued._frames.append(memoryview(b"a request"))
        assert appending.context is not None
        appending.context.produce_queue = "not empty"
        assert await (await bench.connect()).is_closed()
        queued._frames.clear()
        assert await (await bench.connect()).ask(ECHO, b"a") == b"a"
        assert bench.toys.abandoned == [b"0"]


@pytest.mark.parametrize("size_bytes", [5 * MIB, 17 * MIB])
async def test_request_without_memory_closes_its_connection_with_one_line_of_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, size_bytes: int
) -> None:
    large = FrameMemory.large

    def of_the_heap(self: FrameMemory, size: int) -> bytearray:
        if size > MIB:
            raise MemoryError
        return large(self, size)

    def of_the_kernel(*_: int) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(FrameMemory, "large", of_the_heap)
    monkeypatch.setattr(mmap, "mmap", of_the_kernel)
    caplog.set_level(logging.INFO)
    async with toy_server() as bench:
        client, other = await bench.connect(), await bench.connect()
        client.send(WAIT, b"first")
        await until(lambda: bool(bench.toys.pending))
        client.writer.write(size_bytes.to_bytes(4, "big") + bytes(2 * MIB))
        (connection, _) = bench.server._connections
        await until(lambda: bool(connection._malformed))
        bench.toys.pending[b"first"].complete([b"answer"])
        assert await client.receive() == (1, b"answer")
        assert await client.is_closed()
        assert await other.ask(ECHO, b"a") == b"a"
        assert not bench.server.budget.held_bytes
    reason = f"there is no memory for a frame of {size_bytes} bytes"
    assert [record.getMessage() for record in caplog.records] == [f"closed 127.0.0.1: {reason}"]


async def test_connections_of_many_closed_clients_are_ended_in_many_turns(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To close a socket takes 15 us, so 2,000 sockets would hold the event loop for 30 ms."""
    clients = [await bench.connect() for _ in range(5 * SWEPT_AT_ONCE)]
    for client in clients:
        client.send(WAIT, b"first")
        client.send(WAIT, b"queued, so that the socket is not read")
    connections = list(bench.server._connections)
    await until(lambda: all(each._is_reading_paused for each in connections))
    monkeypatch.setattr(connection_state, "UNATTENDED_MAX_S", 0.1)
    for client in clients:
        client.writer.close()
    most, before = 0, len(clients)
    while before:
        await asyncio.sleep(0)
        now = bench.server.connection_count
        most, before = max(most, before - now), now
    assert most <= 2 * SWEPT_AT_ONCE


async def test_end_txn_age_is_measured_before_its_client_can_close() -> None:
    """A closed socket reports an age of 0, even for a late EndTxn (KAFKA-17754)."""
    broker, node = FakeBroker(), OneNode(hold_ms=20)
    broker.services.transactions = node.coordinators
    producer = await node.init(connection_id=1)
    await node.add(producer)
    ages_ms = iter((3_600_000, 0))
    broker.context.waited_ms = lambda: next(ages_ms)
    frame = memoryview(end_request(producer.producer_id, producer.producer_epoch))[4:]
    answer = broker.dispatcher.dispatch(broker.context, broker.dispatcher.find(frame), frame)
    assert isinstance(answer, PendingAnswer)
    assert next(ages_ms) == 0, "it is asked in the turn that brings the request"
    await until(lambda: answer.is_done)
    assert answer.close_reason is not None and node.state() == "Ongoing"
