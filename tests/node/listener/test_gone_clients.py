"""Test that requests are executed although their client has disconnected, as in Kafka."""

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from oncelog.node.listener.pending_answer import PendingAnswer
from oncelog.node.listener.server import SWEPT_AT_ONCE, KafkaServer
from oncelog.wire.messages import api_keys, control

from ...awaiting import until
from ..fake_broker import FakeBroker, plain_listener
from ..transactions.one_node import OneNode
from .toy_server import ECHO, WAIT, Bench, Client

pytestmark = pytest.mark.uvloop
END_VERSION = 3


@asynccontextmanager
async def coordinator() -> AsyncIterator[tuple[OneNode, KafkaServer]]:
    """Yield a transaction coordinator with one shard, and its listener."""
    node, broker = OneNode(hold_ms=20), FakeBroker()
    broker.services.transactions = node.coordinators
    server = KafkaServer(broker.dispatcher, broker.services, logging.getLogger("oncelog.test"))
    await server.start(plain_listener())
    try:
        yield node, server
    finally:
        await server.stop(0)


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
    async with coordinator() as (node, server):
        producer = await node.init()
        await node.add(producer)
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await until(lambda: server.connection_count == 1)
        writer.write(end_request(producer.producer_id, producer.producer_epoch))
        if closes == "at once":
            writer.close()
        else:
            connection = next(iter(server._connections))
            await until(lambda: connection.has_requests or node.state() != "Ongoing")
            writer.transport.abort()
        await until(lambda: node.state() == "CompleteCommit")
        await until(lambda: server.connection_count == 0)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux passes the options on")
async def test_connection_of_an_unreachable_client_is_ended_by_the_kernel_when_it_is_idle(
    bench: Bench,
) -> None:
    """Such a client sends no FIN, and a connection with a waiting request is never idle."""
    await bench.connect()
    await until(lambda: bench.server.connection_count == 1)
    (connection,) = bench.server._connections
    assert connection._transport is not None
    accepted = connection._transport.get_extra_info("socket")
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


async def test_queued_requests_of_a_closed_connection_are_executed_except_fetches(
    bench: Bench,
) -> None:
    gone, reading = await bench.connect(), await bench.connect()
    gone.send(WAIT, b"first")
    gone.send(ECHO, b"end of a transaction")
    reading.send(WAIT, b"other")
    reading.send(WAIT, b"fetch behind it")
    await until(lambda: len(bench.toys.pending) == 2)
    gone.writer.close()
    reading.writer.close()
    await until(lambda: bench.server.connection_count == 1)
    bench.toys.pending[b"first"].complete(None)
    await until(lambda: bench.server.connection_count == 0)
    assert sorted(bench.toys.started) == [b"end of a transaction", b"first", b"other"]


async def test_connections_of_many_closed_clients_are_ended_in_many_turns(bench: Bench) -> None:
    """To close a socket takes 15 us, so 2,000 sockets would hold the event loop for 30 ms."""
    clients = [await bench.connect() for _ in range(5 * SWEPT_AT_ONCE)]
    for client in clients:
        client.send(WAIT, b"first")
        client.send(WAIT, b"queued, so that the socket is not read")
    connections = list(bench.server._connections)
    await until(lambda: all(each._is_reading_paused for each in connections))
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
