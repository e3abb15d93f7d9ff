"""Clients that break TLS after their handshake: what they had asked for, and what they may cost."""

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from oncelog.node.config.listeners import parse_listeners
from oncelog.node.handlers.produce.large_produce import LargeProduce
from oncelog.node.handlers.produce.queue import ProduceQueue
from oncelog.node.listener.protection import Protection
from oncelog.node.listener.tls.transport import TlsTransport
from oncelog.wire.messages.produce import ProduceRequest, encode_request

from ....awaiting import until
from ..toy_server import WAIT, Bench, Client, toy_server
from .certificates import Certificates

pytestmark = pytest.mark.uvloop  # as brokers do
BROKEN_RECORD = b"\x17\x03\x03\x00\x20" + bytes(32)


class RawClient:
    """A client that speaks TLS itself, and can send what TLS does not allow."""

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
                return
            except ssl.SSLWantReadError:
                self.writer.write(self._outgoing.read())
                self._incoming.write(await self._reader.read(65_536))

    def encrypted(self, plain: bytes) -> bytes:
        self.tls.write(plain)
        return self._outgoing.read()

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
        await client.shake_hands()
        yield bench, client
        client.writer.transport.abort()


async def test_answer_to_a_client_that_broke_tls_troubles_nobody_who_completes_it(
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


async def test_bytes_behind_the_end_of_a_client_are_not_kept(certificates: Certificates) -> None:
    """The connection stays for a while, since a produce without an answer waits."""
    async with serving(certificates) as (bench, client):
        await until(lambda: bench.server.connection_count == 1)
        (connection,) = bench.server._connections
        assert connection.context is not None
        request = ProduceRequest(None, 0, 1_000, [])
        body = memoryview(b"".join(encode_request(request, 12)))
        queue = ProduceQueue(connection.context)
        queue._waiting.append(LargeProduce(connection.context, body, 12))
        channel = cast(TlsTransport, connection._transport)._channel
        client.writer.write(client.ended())
        await until(lambda: channel.has_ended)
        for _ in range(20):
            client.writer.write(os.urandom(65_536))
            await client.writer.drain()
            await asyncio.sleep(0.01)
        assert bench.server.connection_count == 1
        assert channel.unread_bytes == 0
