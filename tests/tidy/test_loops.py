"""Test that the event loops of tests close open transports, and warn of them."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from oncelog.client.loop_thread import LoopThread

from ..loops import run_in_new_loop

TIMEOUT_S = 20


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(TIMEOUT_S)
        yield listening


def in_a_coroutine(work: Coroutine[Any, Any, None]) -> None:
    run_in_new_loop(work, is_uvloop=False)


def in_uvloop(work: Coroutine[Any, Any, None]) -> None:
    run_in_new_loop(work, is_uvloop=True)


def in_a_thread(work: Coroutine[Any, Any, None]) -> None:
    thread = LoopThread("left open")
    thread.run(work)
    thread.close()


def assert_closed(server: socket.socket) -> None:
    peer, _ = server.accept()
    with peer:
        peer.settimeout(TIMEOUT_S)
        assert peer.recv(1) == b""


@pytest.mark.parametrize("run", [in_a_coroutine, in_uvloop, in_a_thread])
def test_loop_closed_with_an_open_transport_closes_it_and_warns(
    server: socket.socket, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def connect() -> None:
        await asyncio.get_running_loop().create_connection(asyncio.Protocol, *server.getsockname())

    with pytest.raises(ResourceWarning, match=r"unclosed resource <.*Transport"):
        run(connect())
    assert_closed(server)


@pytest.mark.parametrize("run", [in_a_coroutine, in_uvloop])
def test_failed_coroutine_with_an_open_transport_closes_it_and_raises_its_own_error(
    server: socket.socket, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    left: list[asyncio.BaseTransport] = []

    async def connect() -> None:
        transport, _ = await asyncio.get_running_loop().create_connection(
            asyncio.Protocol, *server.getsockname()
        )
        left.append(transport)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        run(connect())
    assert_closed(server)


@pytest.mark.parametrize("run", [in_a_coroutine, in_uvloop])
def test_loop_closed_with_a_closing_transport_does_not_warn(
    server: socket.socket, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def connect() -> None:
        transport, _ = await asyncio.get_running_loop().create_connection(
            asyncio.Protocol, *server.getsockname()
        )
        transport.close()

    run(connect())
    assert_closed(server)
