"""Test that a client gets the addresses of the listener that it uses."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from oncelog.deploy.cluster.ports import free_ports
from oncelog.node.config.listeners import parse_listeners
from oncelog.node.handlers.leader_hints import LeaderHints
from oncelog.node.listener import server

from ...awaiting import until
from ..fake_broker import FakeBroker
from ..own_broker import OwnBroker
from .toy_server import ECHO, WAIT, toy_server

METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER = 3, 10, 60
MAP = "IN:PLAINTEXT,OUT:PLAINTEXT"


@pytest.fixture
def broker() -> FakeBroker:
    found = FakeBroker(1)
    endpoints = (("IN", "127.0.0.1", 9091, 0), ("OUT", "example.org", 9, 0))
    found.start_broker(1, endpoints)
    return found


@pytest.mark.parametrize(
    ("listener", "addresses"),
    [("IN", [("127.0.0.1", 9091)]), ("OUT", [("example.org", 9)]), ("PLAINTEXT", [])],
)
def test_metadata_shows_the_broker_addresses_of_the_listener_that_was_asked(
    broker: FakeBroker, listener: str, addresses: list[tuple[str, int]]
) -> None:
    broker.create("orders", partitions=1, factor=1)
    for asked in ("IN", listener):  # equal questions of two listeners have two answers
        broker.context.listener = asked
        metadata = broker.ask(METADATA, 9, {"topics": [{"name": "orders"}]})
    assert [(each.host, each.port) for each in metadata.brokers] == addresses
    cluster = broker.ask(DESCRIBE_CLUSTER, 1)
    assert [(each.host, each.port) for each in cluster.brokers] == addresses
    hints = LeaderHints(broker.context)
    assert hints.leader_of("orders", 0) == (1, 0)
    assert [each[1:3] for each in hints.endpoints] == addresses


async def test_connection_limit_of_one_listener_is_independent_of_another() -> None:
    listeners = parse_listeners(["IN://127.0.0.1:0", "OUT://127.0.0.1:0"], [], [*MAP.split(",")])
    limited = [
        type(each)(each.name, each.protocol, each.bind, each.advertised, {"max_connections": 1})
        if each.name == "OUT"
        else each
        for each in listeners
    ]

    async with toy_server(limited) as bench:
        first = await bench.connect("OUT")
        assert await first.ask(ECHO, b"a") == b"a"
        assert await (await bench.connect("OUT")).is_closed()
        for _ in range(2):
            assert await (await bench.connect("IN")).ask(ECHO, b"b") == b"b"
        first.writer.close()
        await until(lambda: bench.server.connection_count == 2)
        silent = await bench.connect("OUT")
        assert await silent.is_silent()
        second = await bench.connect("OUT")  # takes the place of the silent connection
        assert await second.ask(ECHO, b"c") == b"c"
        assert await silent.is_closed()


async def test_inter_broker_listener_accepts_connections_when_other_listeners_are_full() -> None:
    listeners = parse_listeners(["IN://127.0.0.1:0", "OUT://127.0.0.1:0"], [], [*MAP.split(",")])
    limits = {"max_connections": 2, "inter_broker_listener_name": "in"}
    async with toy_server(listeners, **limits) as bench:
        busy, idle = await bench.connect("OUT"), await bench.connect("OUT")
        assert await idle.ask(ECHO, b"a") == b"a"
        busy.send(WAIT, b"later")
        await until(lambda: b"later" in bench.toys.pending)
        first = await bench.connect("IN")  # takes the place of the idle one
        assert await idle.is_closed() and await busy.is_silent()
        assert await (await bench.connect("OUT")).is_closed()  # though `first` has said nothing
        assert await first.ask(ECHO, b"b") == b"b"
        second = await bench.connect("IN")
        assert await second.ask(ECHO, b"c") == b"c" and await busy.is_closed()
        assert await (await bench.connect("IN")).is_closed()  # all connections are taken
        assert await first.ask(ECHO, b"d") == b"d"


async def test_silent_connections_of_the_inter_broker_listener_do_not_block_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "RESERVED_PLACES", 1)
    listeners = parse_listeners(["IN://127.0.0.1:0", "OUT://127.0.0.1:0"], [], [*MAP.split(",")])
    limits = {"max_connections": 3, "inter_broker_listener_name": "IN"}
    async with toy_server(listeners, **limits) as bench:
        active = await bench.connect("OUT")
        assert await active.ask(ECHO, b"a") == b"a"
        silent = [await bench.connect("IN") for _ in range(2)]
        assert await (await bench.connect("IN")).is_silent()
        assert await silent[0].is_closed()  # for one of its own kind, not for the active one
        assert await active.ask(ECHO, b"b") == b"b"
        newcomer = await bench.connect("OUT")
        assert await newcomer.ask(ECHO, b"c") == b"c"
        assert await silent[1].is_closed() and await active.ask(ECHO, b"d") == b"d"


async def test_listener_other_than_inter_broker_is_full_when_another_uses_the_limit() -> None:
    listeners = parse_listeners(["IN://127.0.0.1:0", "OUT://127.0.0.1:0"], [], [*MAP.split(",")])
    async with toy_server(listeners, max_connections=1) as bench:
        client = await bench.connect("OUT")
        assert await client.ask(ECHO, b"a") == b"a"
        assert await (await bench.connect("IN")).is_closed()
        assert await client.ask(ECHO, b"b") == b"b"


async def test_clients_of_two_listeners_produce_and_consume(tmp_path: Path) -> None:
    ports = free_ports(2)
    settings = {
        "listeners": f"IN://127.0.0.1:{ports[0]},OUT://localhost:{ports[1]}",
        "listener.security.protocol.map": MAP,
        "inter.broker.listener.name": "OUT",
    }

    async def produced_and_consumed(bootstrap: str) -> tuple[bytes | None, set[Any]]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait("orders", b"x")
        consumer: Any = AIOKafkaConsumer(
            "orders", bootstrap_servers=bootstrap, group_id="g", auto_offset_reset="earliest"
        )
        async with consumer:
            record = await asyncio.wait_for(consumer.getone(), 20)
            brokers = consumer._client.cluster.brokers()
            return record.value, {(each.host, each.port) for each in brokers}

    broker = OwnBroker(tmp_path, settings=settings)
    await broker.start()
    try:
        await broker.create("orders", 1)
        registered = broker.state.brokers[1]
        assert (registered.host, registered.port) == ("localhost", ports[1])
        for host, port in (("127.0.0.1", ports[0]), ("localhost", ports[1])):
            found = await produced_and_consumed(f"{host}:{port}")
            assert found == (b"x", {(host, port)})
    finally:
        await broker.stop()
