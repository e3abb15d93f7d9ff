"""Test the TLS of a connection in memory, with random traffic."""

import asyncio
import random
import ssl
import time
from typing import Any, cast

import pytest

from oncelog.node.listener.connection import Connection
from oncelog.node.listener.tls.channel import SLICE_BYTES
from oncelog.node.listener.tls.transport import SMALL_BYTES, TlsTransport
from oncelog.runtime.turn_share import TurnShare
from oncelog.wire.framing import Buffer

from .certificates import Certificates

RECEIVE_BYTES = 65_536
SEEDS = range(80)
ROUNDS_MAX = 5_000


class PlainTransport:
    """A plain transport that pauses its protocol above `high_bytes`, and keeps what was written."""

    def __init__(self, high_bytes: int) -> None:
        self._high_bytes = high_bytes
        self._unsent = bytearray()
        self._is_full = False
        self.protocol: TlsTransport
        self.most_bytes = 0
        self.is_paused = False

    def write(self, data: bytes) -> None:
        self._unsent += data
        self.most_bytes = max(self.most_bytes, len(self._unsent))
        if len(self._unsent) > self._high_bytes and not self._is_full:
            self._is_full = True
            self.protocol.pause_writing()

    def sent(self, most: int) -> bytes:
        """Return at most this many bytes, as a client reads them."""
        sent = bytes(self._unsent[:most])
        del self._unsent[:most]
        if self._is_full and len(self._unsent) <= self._high_bytes // 4:
            self._is_full = False
            self.protocol.resume_writing()
        return sent

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def set_write_buffer_limits(self, **limits: int) -> None: ...

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


class RandomConnection:
    """A connection with random answers to received bytes, and random pauses of reading."""

    context = None

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        around = SMALL_BYTES - 4
        self._sizes = chance.choice(([1, 10, 50], [1, 3000, around, 70_000], [around, around + 1]))
        self._room = memoryview(b"")
        self.transport: TlsTransport
        self.got, self.answered = bytearray(), bytearray()
        self.is_stalled = self.has_ended = self._is_paused = False

    def connection_made(self, transport: TlsTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        size = self._chance.choice((1, 7, 100, 4096, 16_384, 16_385, RECEIVE_BYTES))
        self._room = memoryview(bytearray(size))
        return self._room

    def buffer_updated(self, count: int) -> None:
        self.got += self._room[:count]
        if self._chance.random() < 0.2:
            self._is_paused = True
            self.transport.pause_reading()
        for _ in range(self._chance.choice((0, 1, 1, 3))):
            if not self.is_stalled or self._chance.random() < 0.5:  # it may be due already
                self.answer(self._chance.choice(self._sizes))

    def resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self.transport.resume_reading()

    def answer(self, size: int) -> None:
        parts: list[Buffer] = [self._chance.randbytes(size), b"", b"tail"]
        self.answered += b"".join(parts)
        self.transport.writelines(parts)

    def eof_received(self) -> bool:
        self.has_ended = True
        return True

    def pause_writing(self) -> None:
        self.is_stalled = True

    def resume_writing(self) -> None:
        self.is_stalled = False


class Traffic:
    """A client of TLS and the transport of its server, which exchange bytes in memory."""

    def __init__(
        self, certificates: Certificates, version: ssl.TLSVersion, seed: int, high_bytes: int
    ) -> None:
        self.chance = random.Random(seed)
        self.plain = PlainTransport(high_bytes)
        self.connection = RandomConnection(self.chance)
        self._received = memoryview(bytearray(RECEIVE_BYTES))
        context = certificates.credentials().context
        share = TurnShare(time.perf_counter)
        self.transport = TlsTransport(
            cast(Connection, self.connection), context, cast(Any, None), share, self._received
        )
        self.plain.protocol = self.transport
        self.transport.connection_made(cast(asyncio.Transport, self.plain))
        own = certificates.client()
        own.minimum_version = own.maximum_version = version
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = own.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")
        self._on_wire = b""
        self.read = bytearray()

    async def shake_hands(self) -> None:
        for _ in range(ROUNDS_MAX):
            self._incoming.write(self.plain.sent(1 << 20))
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.turn()
            else:
                break
        while not self.transport._channel.is_established:
            await self.turn()

    async def turn(self) -> None:
        """Deliver a piece of the client's bytes, and run one turn of the event loop."""
        self._on_wire += self._outgoing.read()
        if self._on_wire and not self.plain.is_paused:
            size = min(len(self._on_wire), self.chance.choice((1, 3, 5, 6, 50, 1000, 65_536)))
            self._received[:size] = self._on_wire[:size]
            self._on_wire = self._on_wire[size:]
            self.transport.buffer_updated(size)
        await asyncio.sleep(0)

    def receive(self, most: int) -> None:
        self._incoming.write(self.plain.sent(most))
        try:
            while part := self.tls.read(1 << 20):
                self.read += part  # pyright: ignore[reportOperatorIssue]
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_transport_with_random_traffic_keeps_all_bytes_in_order(
    certificates: Certificates, version: ssl.TLSVersion
) -> None:
    async def scenario(seed: int) -> None:
        high_bytes = random.Random(seed).choice((0, 100, 5000, 65_536))
        traffic = Traffic(certificates, version, seed, high_bytes)
        connection, chance, sent = traffic.connection, traffic.chance, bytearray()
        await traffic.shake_hands()
        for _ in range(chance.randrange(20, 60)):
            data = chance.randbytes(chance.choice((1, 5, 100, 16_384, 50_000, 65_536)))
            sent += data
            traffic.tls.write(data)
            traffic.receive(chance.choice((10, 1000, 100_000)))
            await traffic.turn()
            if chance.random() < 0.5:
                connection.resume()
        with pytest.raises(ssl.SSLWantReadError):
            traffic.tls.unwrap()
        for _ in range(ROUNDS_MAX):
            traffic.receive(1 << 20)
            await traffic.turn()
            connection.resume()
            if connection.has_ended and traffic.read == connection.answered:
                break
        assert connection.got == sent and traffic.read == connection.answered
        assert traffic.plain.most_bytes <= high_bytes + SLICE_BYTES + 5000

    for seed in SEEDS:
        asyncio.run(scenario(seed))


def test_tls_transport_full_of_small_answers_stalls_the_connection_until_the_client_reads(
    certificates: Certificates,
) -> None:
    async def scenario() -> None:
        traffic = Traffic(certificates, ssl.TLSVersion.TLSv1_3, 0, SLICE_BYTES)
        await traffic.shake_hands()
        connection = traffic.connection
        while not traffic.plain._is_full:
            connection.answer(1000)
        assert connection.is_stalled
        for _ in range(100):  # answers that are due already
            connection.answer(1000)
        assert connection.is_stalled and traffic.plain.most_bytes < SLICE_BYTES + 2000
        while connection.is_stalled:
            traffic.receive(1 << 20)
        traffic.receive(1 << 20)
        assert traffic.read == connection.answered

    asyncio.run(scenario())


def test_tls_transport_filled_by_the_last_slice_stalls_the_connection_until_the_client_reads(
    certificates: Certificates,
) -> None:
    async def scenario() -> None:
        traffic = Traffic(certificates, ssl.TLSVersion.TLSv1_3, 0, SLICE_BYTES)
        await traffic.shake_hands()
        connection = traffic.connection
        connection.answer(SLICE_BYTES - 4)
        connection.answer(SLICE_BYTES - 4)
        for _ in range(2):
            assert connection.is_stalled
            traffic.receive(1 << 20)
        assert not connection.is_stalled

    asyncio.run(scenario())
