"""Test the limits for clients that violate TLS after their handshake."""

import asyncio
import contextlib
import ctypes
import ctypes.util
import logging
import os
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from oncelog.node.config.listeners import parse_listeners
from oncelog.node.listener import server
from oncelog.node.listener.protection import Protection
from oncelog.node.listener.tls.channel import SLICE_BYTES
from oncelog.node.listener.tls.transport import TlsTransport

from ....awaiting import until
from ..toy_server import SMALL_ANSWER_BYTES, WAIT, Bench, Client, fill_the_socket, toy_server
from .certificates import Certificates

pytestmark = pytest.mark.uvloop  # as brokers do
OF_POINTERS = ("TLS_client_method", "SSL_CTX_new", "SSL_new")
ANSWER_BYTES = 10 * 1024 * 1024
BROKEN_RECORD = b"\x17\x03\x03\x00\x20" + bytes(32)


class RawClient:
    """A TLS client without checks, which can send bytes that TLS does not allow."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext
    ) -> None:
        self._reader, self.writer = reader, writer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")

    async def shake_hands(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
                self.writer.write(self._outgoing.read())
                return
            except ssl.SSLWantReadError:
                self.writer.write(self._outgoing.read())
                self._incoming.write(await self._reader.read(65_536))

    def encrypted(self, plain: bytes) -> bytes:
        self.tls.write(plain)
        return self._outgoing.read()

    async def received(self) -> bytes:
        """Return the plain text until the broker closes the connection."""
        plain = b""
        while data := await self._reader.read(65_536):
            self._incoming.write(data)
            with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                while part := self.tls.read(65_536):
                    plain += part
        return plain

    def ended(self) -> bytes:
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self._outgoing.read()


@asynccontextmanager
async def serving(certificates: Certificates) -> AsyncIterator[tuple[Bench, RawClient]]:
    listeners = parse_listeners(["SSL://127.0.0.1:0"], [], ["SSL:SSL"])
    protection = Protection({"SSL": certificates.credentials()})
    async with toy_server(listeners, protection) as bench:
        port = bench.server.ports["SSL"]
        streams = await asyncio.open_connection("127.0.0.1", port)
        client = RawClient(*streams, certificates.client())
        try:
            await client.shake_hands()
            await until(lambda: bench.server.connection_count == 1)
            (connection,) = bench.server._connections
            channel = cast(TlsTransport, connection._transport)._channel
            # A request that comes with the end of the handshake may have to wait for a later turn.
            await until(lambda: channel.is_established)
            yield bench, client
        finally:
            client.writer.transport.abort()


async def test_tls_answer_to_a_client_that_violated_the_protocol_raises_no_error(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oncelog.test")

    async with serving(certificates) as (bench, client):
        client.writer.write(client.encrypted(Client.frame(WAIT, b"asked")) + BROKEN_RECORD)
        await until(lambda: b"asked" in bench.toys.pending)
        bench.toys.pending[b"asked"].complete([b"answer"])
        await until(lambda: not bench.server.connection_count)

    assert [each.partition(": ")[2] for each in caplog.messages] == [
        "TLS failed: DECRYPTION_FAILED_OR_BAD_RECORD_MAC"
    ]


async def test_tls_bytes_after_the_close_of_a_client_are_not_kept(
    certificates: Certificates,
) -> None:
    """The connection stays open until its request is answered."""
    async with serving(certificates) as (bench, client):
        (connection,) = bench.server._connections
        client.writer.write(client.encrypted(Client.frame(WAIT, b"asked")))
        await until(lambda: b"asked" in bench.toys.pending)
        channel = cast(TlsTransport, connection._transport)._channel
        client.writer.write(client.ended())
        await until(lambda: channel.has_ended)
        for _ in range(20):
            client.writer.write(os.urandom(65_536))
            await client.writer.drain()
            await asyncio.sleep(0.01)
        assert bench.server.connection_count == 1
        assert channel.unread_bytes == 0


@pytest.mark.parametrize("sends_a_fin", [True, False])
async def test_tls_client_that_has_ended_its_direction_gets_its_answers(
    certificates: Certificates, sends_a_fin: bool
) -> None:
    async with serving(certificates) as (bench, client):
        requests = client.encrypted(Client.frame(WAIT, b"first") + Client.frame(WAIT, b"second"))
        client.writer.write(requests + client.ended())
        if sends_a_fin:
            client.writer.write_eof()
        for name in (b"first", b"second"):
            await until(lambda name=name: name in bench.toys.pending)
            bench.toys.pending[name].complete([name])
        answers = await client.received()
        assert answers.count(b"first") == answers.count(b"second") == 1
        await until(lambda: bench.server.connection_count == 0)


async def test_tls_client_that_has_ended_and_pauses_gets_the_last_bytes(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SWEEP_INTERVAL_S", 0.02)
    monkeypatch.setattr(server, "CLOSING_MAX_S", 0.1)
    async with serving(certificates) as (bench, client):
        transport: Any = client.writer.transport
        transport.pause_reading()
        await fill_the_socket(bench, lambda frame: client.writer.write(client.encrypted(frame)))
        client.writer.write(client.ended())
        now_s = bench.server.now_s
        await until(lambda: bench.server.now_s > now_s + 0.5)
        transport.resume_reading()
        received = await client.received()
        assert len(received) == len(bench.toys.started) * (SMALL_ANSWER_BYTES + 8)
        await until(lambda: bench.server.connection_count == 0)
        assert not bench.server.budget.held_bytes


def change_keys(
    port: int, times: int, request: bytes = b"", may_close: threading.Event | None = None
) -> int:
    """Send up to `times` key updates by OpenSSL without reading, and return the number sent.

    A request is sent first. The connection stays open until `may_close` is set.
    """
    path = ctypes.util.find_library("ssl")
    if path is None or not ssl.HAS_TLSv1_3:
        pytest.skip("there is no OpenSSL to load")
    openssl, pointer = ctypes.CDLL(path), ctypes.c_void_p
    for name, *arguments in (
        ("TLS_client_method",), ("SSL_CTX_new", pointer), ("SSL_new", pointer),
        ("SSL_set_fd", pointer, ctypes.c_int), ("SSL_connect", pointer),
        ("SSL_key_update", pointer, ctypes.c_int), ("SSL_do_handshake", pointer),
        ("SSL_write", pointer, ctypes.c_char_p, ctypes.c_int),
    ):  # fmt: skip
        function = getattr(openssl, name)
        function.argtypes = arguments
        function.restype = pointer if name in OF_POINTERS else ctypes.c_int
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 1, 0))
        client.connect(("127.0.0.1", port))
        peer = openssl.SSL_new(openssl.SSL_CTX_new(openssl.TLS_client_method()))
        assert openssl.SSL_set_fd(peer, client.fileno()) == openssl.SSL_connect(peer) == 1
        assert not request or openssl.SSL_write(peer, request, len(request)) == len(request)
        sent = 0
        while (
            sent < times and openssl.SSL_key_update(peer, 1) == openssl.SSL_do_handshake(peer) == 1
        ):
            sent += 1
        if may_close is not None:
            may_close.wait(60)
    return sent


@pytest.fixture
def transports(monkeypatch: pytest.MonkeyPatch) -> list[TlsTransport]:
    """Return a list that gets the transport of each connection, whose socket is soon full."""
    found: list[TlsTransport] = []
    made = TlsTransport.connection_made

    def connection_made(self: TlsTransport, transport: Any) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        found.append(self)
        made(self, transport)

    monkeypatch.setattr(TlsTransport, "connection_made", connection_made)
    return found


async def test_tls_key_updates_with_unread_answers_use_bounded_memory(
    certificates: Certificates, transports: list[TlsTransport]
) -> None:
    most_bytes = 0
    async with serving(certificates) as (bench, _):
        loop, port = asyncio.get_running_loop(), bench.server.ports["SSL"]
        asking = loop.run_in_executor(None, change_keys, port, 20_000)
        while not asking.done():
            most_bytes = max(most_bytes, transports[-1].get_write_buffer_size())
            await asyncio.sleep(0.01)
        assert await asking > 1_000
        assert most_bytes < 3 * SLICE_BYTES


async def test_tls_answer_after_unread_key_updates_is_held_in_the_memory_budget(
    certificates: Certificates, transports: list[TlsTransport]
) -> None:
    """The connection is already stalled by answers of TLS itself when its request is answered."""
    may_close, request = threading.Event(), Client.frame(WAIT, b"asked")
    async with serving(certificates) as (bench, _):
        loop, port = asyncio.get_running_loop(), bench.server.ports["SSL"]
        asking = loop.run_in_executor(None, change_keys, port, 20_000, request, may_close)
        try:
            await until(lambda: len(transports) == 2 and transports[1]._is_transport_full)
            assert bench.server.budget.held_bytes < ANSWER_BYTES
            bench.toys.pending[b"asked"].complete([bytes(ANSWER_BYTES)])
            assert bench.server.budget.held_bytes > ANSWER_BYTES
        finally:
            may_close.set()
            await asking
        await until(lambda: bench.server.connection_count == 1)
        assert bench.server.budget.held_bytes == 0
