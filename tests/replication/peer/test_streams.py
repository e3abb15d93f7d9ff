"""Test which brokers may open streams, and streams that break or are replaced."""

import asyncio
import signal
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.replication.peer.handlers import PeerPacket, What
from oncelog.replication.peer.streams import (
    UNSENT_BYTES_MAX,
    PeerStream,
    PeerStreams,
    StreamAddress,
    StreamTls,
)
from oncelog.replication.peer.transport import PeerTimeout, PeerTransport, PeerUnavailable

from ...awaiting import until
from ...present import present
from .conftest import Peer, connected
from .peer_process import BULK, ECHO

pytestmark = pytest.mark.uvloop
HELLO = struct.Struct(">I8sII")


class Side:
    """The streams of one broker, which answer each request with the frames of the request."""

    def __init__(
        self,
        node_id: int,
        address: StreamAddress,
        peers: dict[int, StreamAddress],
        tls: StreamTls | None = None,
    ) -> None:
        self.heard: list[tuple[int, PeerPacket]] = []
        self.lost: list[int] = []
        self.dropped = {"stranger": 0, "malformed": 0}
        self.streams = PeerStreams(
            node_id, address, peers, max_message_bytes=1 << 20, tls=tls, dropped=self.dropped,
            received=self._received, lost=lambda stream, peer: self.lost.append(peer),
        )  # fmt: skip

    def _received(
        self, stream: PeerStream, peer: int, is_ours: bool, message: PeerPacket, size_bytes: int
    ) -> None:
        self.heard.append((peer, message))
        if not is_ours:
            stream.send(What.REPLY, 0, message.correlation_id, message.header, message.frames)

    async def open_to(self, peer: int) -> PeerStream:
        await until(lambda: self.streams.to(peer))
        return present(self.streams.to(peer))


@asynccontextmanager
async def running(*sides: Side) -> AsyncIterator[None]:
    try:
        for side in sides:
            await side.streams.start()
        yield
    finally:
        for side in sides:
            await side.streams.stop()


def pair(directory: Path) -> tuple[Side, Side]:
    return (
        Side(1, directory / "1", {2: directory / "2"}),
        Side(2, directory / "2", {1: directory / "1"}),
    )


async def refused(connected: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    reader, writer = connected
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    writer.close()


async def test_peer_stream_request_is_answered_on_the_same_stream(directory: Path) -> None:
    one, two = pair(directory)
    async with running(one, two):
        stream = await one.open_to(2)
        stream.send(What.REQUEST, 5, 77, b"head", [b"", b"x", bytes(300_000)])
        await until(lambda: bool(one.heard))
        assert [(peer, m.what, m.kind) for peer, m in two.heard] == [(1, What.REQUEST, 5)]
        (sender, (what, _, correlation_id, header, frames)), = one.heard  # fmt: skip
        assert (sender, what, correlation_id, header) == (2, What.REPLY, 77, b"head")
        assert [bytes(frame) for frame in frames] == [b"", b"x", bytes(300_000)]


@pytest.mark.parametrize(
    ("reason", "sent"),
    [
        ("stranger", HELLO.pack(16, b"oncelog1", 9, 1)),  # no peer
        ("stranger", HELLO.pack(16, b"oncelog1", 1, 1)),  # ourselves
        ("stranger", HELLO.pack(16, b"oncelog1", 2, 3)),  # for another broker
        ("malformed", HELLO.pack(16, b"POST / H", 2, 1)),
        ("malformed", b"\0\0\0\x01x"),
        ("malformed", b"\x7f\xff\xff\xff"),  # beyond max_message_bytes
        ("malformed", HELLO.pack(16, b"oncelog1", 2, 1) + b"\0\0\0\x05short"),
    ],
)
async def test_peer_connection_of_a_stranger_or_with_malformed_bytes_is_refused(
    directory: Path, reason: str, sent: bytes
) -> None:
    one, _ = pair(directory)
    async with running(one):
        connected = await asyncio.open_unix_connection(str(directory / "1"))
        connected[1].write(sent)
        await refused(connected)
        assert one.dropped[reason] == 1
        assert sum(one.dropped.values()) == 1
        assert one.heard == []


async def test_peer_connection_without_a_hello_is_closed(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.replication.peer.streams.HELLO_TIMEOUT_S", 0.05)
    one, _ = pair(directory)
    async with running(one):
        await refused(await asyncio.open_unix_connection(str(directory / "1")))


async def test_peer_stream_of_a_restarted_broker_closes_the_previous_stream(
    directory: Path,
) -> None:
    one, _ = pair(directory)
    async with running(one):
        former = await asyncio.open_unix_connection(str(directory / "1"))
        former[1].write(HELLO.pack(16, b"oncelog1", 2, 1))
        restarted = Side(2, directory / "2", {1: directory / "1"})
        async with running(restarted):
            await refused(former)
            stream = await restarted.open_to(1)
            stream.send(What.REQUEST, 5, 1, b"new", [])
            await until(lambda: bool(restarted.heard))
            assert one.lost == []


async def test_peer_stream_that_broke_is_dialled_again(directory: Path) -> None:
    one, two = pair(directory)
    async with running(one):
        async with running(two):
            former = await one.open_to(2)
        await until(lambda: one.lost == [2])
        assert one.streams.to(2) is None
        assert not former.send(What.REQUEST, 5, 1, b"late", [])
        again = Side(2, directory / "2", {1: directory / "1"})
        async with running(again):
            assert await one.open_to(2) is not former


async def test_peer_stream_memory_for_a_peer_that_does_not_read_is_bounded(
    peer: Peer, directory: Path
) -> None:
    one = Side(1, directory / "bulk-1", {2: directory / "bulk-2"})
    async with running(one):
        stream = await one.open_to(2)
        peer.signal(signal.SIGSTOP)
        sent_bytes = 0
        while size_bytes := stream.send(What.REQUEST, BULK, 1, bytes(100_000), []):
            sent_bytes += size_bytes
            await asyncio.sleep(0)
            assert sent_bytes < UNSENT_BYTES_MAX + 4_000_000
        peer.signal(signal.SIGCONT)
        await until(lambda: bool(stream.send(What.REQUEST, BULK, 1, b"", [])))


async def test_killed_peer_fails_its_bulk_requests_immediately_and_reconnects(
    peer: Peer, transport: PeerTransport
) -> None:
    peer.gate.hold(2, inbound=True, outbound=False)
    waiting = asyncio.ensure_future(transport.request(2, BULK, b"", timeout_ms=60_000, bulk=True))
    await asyncio.sleep(0.05)
    peer.kill()
    with pytest.raises(PeerUnavailable, match="broke"):
        await asyncio.wait_for(waiting, 5)
    peer.gate.heal()
    with pytest.raises(PeerUnavailable, match="no connection"):
        await transport.request(2, BULK, b"", timeout_ms=60_000, bulk=True)
    peer.start()
    await connected(transport)
    assert (await transport.request(2, BULK, b"x", timeout_ms=5000, bulk=True))[0] == b"x"


@pytest.mark.parametrize("direction", ["inbound", "outbound"])
async def test_peer_stream_during_a_cut_drops_messages_silently(
    peer: Peer, transport: PeerTransport, direction: str
) -> None:
    peer.gate.cut(2, inbound=direction == "inbound", outbound=direction == "outbound")
    with pytest.raises(PeerTimeout):
        await transport.request(2, BULK, b"", timeout_ms=50, bulk=True)
    assert peer.gate.dropped_count == 1
    peer.gate.heal()
    assert (await transport.request(2, BULK, b"x", timeout_ms=5000, bulk=True))[0] == b"x"
    with pytest.raises(PeerUnavailable, match="does not serve kind"):
        await transport.request(2, ECHO, b"", timeout_ms=5000, bulk=True)


# -- over TCP


def contexts(authority: Any, name: str) -> StreamTls:
    certificate = authority.issue_cert(name)
    listening = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    listening.verify_mode = ssl.CERT_REQUIRED
    dialling = ssl.create_default_context()
    for context in (listening, dialling):
        authority.configure_trust(context)
        certificate.configure_cert(context)
    return StreamTls(listening, dialling)


@pytest.mark.parametrize(
    ("name_of_two", "is_good"), [("broker-2", True), ("broker-3", False), ("localhost", False)]
)
async def test_peer_certificates_over_tcp_decide_which_brokers_connect(
    unused_ports: list[int], name_of_two: str, is_good: bool
) -> None:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    first, second = (("127.0.0.1", port) for port in unused_ports)
    one = Side(1, first, {2: second}, contexts(authority, "broker-1"))
    two = Side(2, second, {1: first}, contexts(authority, name_of_two))
    async with running(one, two):
        if is_good:
            stream = await one.open_to(2)
            stream.send(What.REQUEST, 5, 1, b"head", [bytes(200_000)])
            await until(lambda: bool(one.heard))
            assert bytes(one.heard[0][1].frames[0]) == bytes(200_000)
        else:
            await until(lambda: one.dropped["stranger"] > 1)  # two dials, and is refused
            assert one.streams.to(2) is None, "one does not take another for two"
            assert one.heard == []


async def test_peer_connection_over_tcp_without_a_certificate_is_refused(
    unused_ports: list[int],
) -> None:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    address = ("127.0.0.1", unused_ports[0])
    one = Side(1, address, {2: ("127.0.0.1", unused_ports[1])}, contexts(authority, "broker-1"))
    client = ssl.create_default_context()
    authority.configure_trust(client)
    async with running(one):
        with pytest.raises((ssl.SSLError, ConnectionError)):  # with TLS 1.3 at the first read
            reader, writer = await asyncio.open_connection(
                *address, ssl=client, server_hostname="broker-1"
            )
            try:
                writer.write(HELLO.pack(16, b"oncelog1", 2, 1))
                if not await reader.read():
                    raise ConnectionError("closed")
            finally:
                writer.close()
        assert one.heard == []
