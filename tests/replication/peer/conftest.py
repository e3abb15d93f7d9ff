"""Fixtures that run broker 2 in its own process, and link the test to it as broker 1."""

import asyncio
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from oncelog.replication.peer.link_gate import LinkGate
from oncelog.replication.peer.transport import PeerTransport

from ...awaiting import until
from ...present import present

PEER_PROGRAM = Path(__file__).with_name("peer_process.py")


class Peer:
    """The process of broker 2, to which the tests connect as broker 1."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process: subprocess.Popen | None = None
        self.changes: list[bool] = []
        self.gate = LinkGate()

    def start(self) -> None:
        self.process = subprocess.Popen([sys.executable, PEER_PROGRAM, "2", str(self.directory)])

    def signal(self, number: int) -> None:
        present(self.process).send_signal(number)

    def kill(self) -> None:
        present(self.process).kill()
        present(self.process).wait()

    @asynccontextmanager
    async def linked(self) -> AsyncIterator[PeerTransport]:
        """Yield broker 1's transport, connected to broker 2 if that process was started."""
        transport = PeerTransport(
            1, self.directory, [1, 2], max_message_bytes=1 << 24, gate=self.gate
        )
        transport.on_peer_change(lambda peer, is_up: self.changes.append(is_up))
        await transport.start()
        try:
            async with asyncio.timeout(30):
                if self.process is not None:
                    await connected(transport)
                yield transport
        finally:
            await transport.stop()


async def connected(transport: PeerTransport) -> None:
    """Wait until the transport's control link and stream to broker 2 are open."""
    streams = present(transport._streams)
    await until(lambda: transport.is_up(2) and streams.to(2) is not None)


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="peer") as name:  # tmp_path is too long for a socket
        yield Path(name)


@pytest.fixture
def peer(directory: Path) -> Iterator[Peer]:
    peer = Peer(directory)
    peer.start()
    yield peer
    peer.kill()


@pytest.fixture
def transport(peer: Peer) -> AbstractAsyncContextManager[PeerTransport]:
    return peer.linked()


@pytest.fixture
def lone(directory: Path) -> AbstractAsyncContextManager[PeerTransport]:
    """Return a context with the transport of broker 1, while broker 2 does not run."""
    return Peer(directory).linked()


@pytest.fixture
def unused_ports() -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
