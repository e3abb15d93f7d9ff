"""Test that connections of a proxy with TLS end, whatever a peer does with TLS."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager

import pytest
import trustme

from oncelog.deploy.faults.protocol_proxy import side as side_module
from oncelog.deploy.faults.protocol_proxy import two_ends as two_ends_module
from oncelog.deploy.faults.protocol_proxy.events import ConnectionClosed, Request
from oncelog.deploy.faults.protocol_proxy.rules import Delay, Rule
from oncelog.deploy.faults.protocol_proxy.two_ends import ProxyTls

from ....awaiting import until
from .scripted_broker import Bench, sent
from .scripted_broker import bench as new_bench
from .test_connection_ends import on_both_loops
from .test_connections import END, end_txn

AUTHORITY = trustme.CA()
CERTIFICATE = AUTHORITY.issue_cert("127.0.0.1")


def to_clients() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    CERTIFICATE.configure_cert(context)
    return context


def to_brokers() -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


class TlsPeer:
    """A TLS client over a plain socket, which sends the end of TLS, or answers it, only if told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._from, self._to = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = to_brokers().wrap_bio(self._from, self._to, server_hostname="127.0.0.1")

    async def begin_handshake(self) -> None:
        """Shake hands, but for the last bytes, which are still to be sent."""
        while True:
            try:
                self._tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                self.end_handshake()
                self._from.write(await self.reader.read(65536))

    def end_handshake(self) -> None:
        self.writer.write(self._to.read())

    def send(self, *frames: bytes) -> None:
        for frame in frames:
            self._tls.write(sent(frame))
        self.writer.write(self._to.read())

    def end_tls(self) -> None:
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        self.writer.write(self._to.read())


@pytest.fixture
def bench() -> AbstractAsyncContextManager[Bench]:
    return new_bench(tls=ProxyTls(to_clients(), to_brokers(), lambda *_: None))


@pytest.fixture
def silent() -> Generator[tuple[str, int]]:
    """Yield the address of a broker that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()


async def beginning_peer(bench: Bench) -> TlsPeer:
    port = bench.hub.ports.port_of("one", None)
    peer = TlsPeer(*await asyncio.open_connection("127.0.0.1", port))
    await peer.begin_handshake()
    return peer


async def tls_peer(bench: Bench) -> TlsPeer:
    peer = await beginning_peer(bench)
    peer.end_handshake()
    return peer


@on_both_loops
async def test_connection_to_a_broker_that_never_shakes_hands_ends(
    bench: Bench, silent: tuple[str, int], monkeypatch: pytest.MonkeyPatch, _loop: str
) -> None:
    monkeypatch.setattr(two_ends_module, "CONNECT_TIMEOUT_S", 0.05)
    bench.hub.brokers.addresses = {7: silent}
    bench.hub.brokers._bootstrap = []
    peer = await tls_peer(bench)
    await until(lambda: bench.of(ConnectionClosed))
    assert "no answer" in bench.of(ConnectionClosed)[0].reason
    assert not bench.hub.connections
    peer.writer.close()


@pytest.mark.uvloop
async def test_connection_left_by_its_client_during_the_handshake_of_a_broker_ends(
    bench: Bench, silent: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_ends_module, "CONNECT_TIMEOUT_S", 600.0)
    bench.hub.brokers.addresses = {7: silent}
    bench.hub.brokers._bootstrap = []
    peer = await tls_peer(bench)
    await until(lambda: bench.hub.connections)
    peer.writer.close()
    await until(lambda: not bench.hub.connections)


@on_both_loops
async def test_connection_without_an_answer_to_the_end_of_tls_is_aborted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, _loop: str
) -> None:
    monkeypatch.setattr(side_module, "CLOSE_TIMEOUT_S", 0.1)
    peer = await tls_peer(bench)
    peer.send(end_txn(1))
    await until(lambda: bench.broker.heard)
    bench.broker.writers[0].close()
    await until(lambda: not bench.hub.connections)
    peer.writer.close()


@on_both_loops
async def test_requests_before_the_end_of_tls_are_forwarded_after_a_delay(
    bench: Bench, _loop: str
) -> None:
    bench.hub.add(Rule(END, Delay(0.1)))
    peer = await tls_peer(bench)
    peer.send(end_txn(1), end_txn(2))
    await until(lambda: bench.of(Request))
    peer.end_tls()
    await until(lambda: not bench.hub.connections)
    assert bench.broker.correlation_ids == [1, 2]
    peer.writer.close()


@on_both_loops
async def test_connection_with_a_handshake_that_ends_after_the_proxy_is_closed(
    bench: Bench, _loop: str
) -> None:
    peer = await beginning_peer(bench)
    await bench.hub.close()
    peer.end_handshake()
    await until(lambda: bench.hub.begun["one"])
    with contextlib.suppress(ConnectionError):
        assert await peer.reader.read() == b""
    assert not bench.hub.connections
    peer.writer.close()
