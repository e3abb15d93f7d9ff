"""Connections of a view: who waits for one, and which broker is asked first."""

import asyncio
from typing import Any

import pytest

from oncelog.client.cluster_view import BrokerNode, ClusterView
from oncelog.client.connection import BrokerConnection
from oncelog.wire.errors import NetworkException, RequestTimedOut

DEAF, ALIVE = ("10.0.0.1", 9092), ("10.0.0.2", 9092)


class Hosts:
    """Brokers of which one takes no connection: it costs the whole timeout to find out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, timeout_s: float = 0.2) -> None:
        self.opened: list[tuple[str, int]] = []
        self.timeout_s = timeout_s
        monkeypatch.setattr(BrokerConnection, "open", self.open)

    async def open(self, host: str, port: int, **_: Any) -> BrokerConnection:
        self.opened.append((host, port))
        if (host, port) == DEAF:
            await asyncio.sleep(self.timeout_s)
            raise RequestTimedOut(f"{host}:{port} took no connection")
        connection = BrokerConnection(host, port, "test", 1_000)
        connection._transport = _Open()
        return connection


class _Open(asyncio.Transport):
    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        pass


async def test_who_waits_for_a_connection_that_fails_does_not_try_it_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts, view = Hosts(monkeypatch), ClusterView("127.0.0.1:1")
    waiting = [asyncio.create_task(view.connection_to(*DEAF)) for _ in range(10)]
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(each, RequestTimedOut) for each in outcomes)
    assert hosts.opened == [DEAF], "one after the other"
    assert len({id(each) for each in outcomes}) == 10, "errors are marked by those who get them"
    with pytest.raises(RequestTimedOut):
        await view.connection_to(*DEAF)
    assert hosts.opened == [DEAF, DEAF], "who comes later tries anew"


async def test_who_gives_up_leaves_the_connection_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts, view = Hosts(monkeypatch), ClusterView("127.0.0.1:1")
    first, second = (asyncio.create_task(view.connection_to(*DEAF)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(RequestTimedOut):
        await second
    assert hosts.opened == [DEAF, DEAF]


async def test_a_broker_that_was_lost_is_not_asked_before_those_that_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hosts, view = Hosts(monkeypatch), ClusterView("127.0.0.1:1")
    await view.connection_to(*ALIVE)
    lost = BrokerConnection(*DEAF, "test", 1_000)  # it was open once
    view._connections[(*DEAF, "")] = lost
    view.snapshot.brokers = {1: BrokerNode(1, *DEAF), 2: BrokerNode(2, *ALIVE)}
    for _ in range(20):
        assert (await view.any_broker()).host == ALIVE[0]
    assert hosts.opened == [ALIVE]


class _Full(_Open):
    """The other side reads nothing."""

    def __init__(self) -> None:
        self.is_aborted = False

    def writelines(self, list_of_data: Any) -> None:
        pass

    def abort(self) -> None:
        self.is_aborted = True


async def test_a_request_without_an_answer_has_a_deadline_too() -> None:
    connection = BrokerConnection("127.0.0.1", 1, "test", 50)
    transport = connection._transport = _Full()
    connection.writable.clear()
    with pytest.raises((RequestTimedOut, NetworkException)):
        async with asyncio.timeout(10):
            await connection.post(0, 9, [b""])
    assert transport.is_aborted
