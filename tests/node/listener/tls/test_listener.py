"""Test requests and answers of a TLS listener, its refusals and its memory."""

import asyncio
import contextlib
import gc
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from oncelog.node.config.listeners import Listener, parse_listeners
from oncelog.node.listener import server
from oncelog.node.listener.protection import Protection
from oncelog.node.listener.tls.channel import SLICE_BYTES, TlsChannel

from ....awaiting import until
from ..toy_server import ECHO, WAIT, Bench, Client, toy_server
from .certificates import Certificates

pytestmark = pytest.mark.uvloop  # as brokers do
MIB = 1024 * 1024


def listeners() -> tuple[Listener, ...]:
    return parse_listeners(
        ["SSL://127.0.0.1:0", "PLAINTEXT://127.0.0.1:0"], [], ["SSL:SSL", "PLAINTEXT:PLAINTEXT"]
    )


@asynccontextmanager
async def serving(certificates: Certificates, **limits: int | str) -> AsyncIterator[Bench]:
    auth = str(limits.pop("auth", "none"))
    credentials = certificates.credentials(
        ssl_client_auth=auth, ssl_principal_mapping_rules="RULE:^CN=(.*?),.*$/$1/"
    )
    async with toy_server(listeners(), Protection({"SSL": credentials}), **limits) as bench:
        yield bench


@pytest.fixture
def quick_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SWEEP_INTERVAL_S", 0.02)


@pytest.mark.parametrize("size", [1, 15_000, 17_000, SLICE_BYTES, 5 * MIB])
async def test_tls_requests_and_answers_of_any_size_are_received_unchanged(
    certificates: Certificates, size: int
) -> None:
    async with serving(certificates) as bench:
        client = await bench.connect("SSL", ssl=certificates.client())
        for letter in (b"x", b"y"):
            assert await client.ask(ECHO, letter * size) == letter * size
        plain = await bench.connect()
        assert await plain.ask(ECHO, b"beside it") == b"beside it"


async def test_tls_requests_sent_together_are_answered_in_order(
    certificates: Certificates,
) -> None:
    async with serving(certificates) as bench:
        client = await bench.connect("SSL", ssl=certificates.client())
        for number in range(500):
            client.send(ECHO, b"%d" % number)
        for number in range(500):
            assert await client.receive() == (number + 1, b"%d" % number)


async def test_tls_answer_that_is_not_read_is_counted_and_sent_later(
    certificates: Certificates,
) -> None:
    async with serving(certificates) as bench:
        client = await bench.connect("SSL", ssl=certificates.client())
        assert await client.ask(ECHO, b"a") == b"a"
        client.transport.pause_reading()
        client.send(ECHO, b"big %d" % (50 * MIB))
        await until(lambda: bench.server.budget.held_bytes > 50 * MIB)
        other = await bench.connect("SSL", ssl=certificates.client())
        assert await other.ask(ECHO, b"b") == b"b"
        client.transport.resume_reading()
        assert len((await client.receive(60))[1]) == 50 * MIB
        await until(lambda: bench.server.budget.held_bytes == 0)


async def test_tls_answer_that_is_large_is_encrypted_in_slices(certificates: Certificates) -> None:
    """Other callbacks of the event loop run between two slices."""
    async with serving(certificates) as bench:
        client = await bench.connect("SSL", ssl=certificates.client())
        turns, is_running = 0, True

        async def count() -> None:
            nonlocal turns
            while is_running:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        assert len(await client.ask(ECHO, b"big %d" % (20 * MIB))) == 20 * MIB
        is_running = False
        await counting
        assert turns > 20 * MIB / SLICE_BYTES / 8


async def test_tls_requests_of_a_client_that_half_closes_are_handled(
    certificates: Certificates,
) -> None:
    """A half-close ends only the client's direction, so requests that were read are handled."""
    async with serving(certificates) as bench:
        client = await bench.connect("SSL", ssl=certificates.client())
        client.send(WAIT, b"later")
        client.send(WAIT, b"more")
        await until(lambda: b"later" in bench.toys.pending)
        number = client.transport.get_extra_info("socket").fileno()
        with socket.fromfd(number, socket.AF_INET, socket.SOCK_STREAM) as same:
            same.shutdown(socket.SHUT_WR)
        bench.toys.pending[b"later"].complete([b"later"])
        await until(lambda: b"more" in bench.toys.pending)


async def test_tls_client_with_a_certificate_has_its_principal(certificates: Certificates) -> None:
    async with serving(certificates, auth="required") as bench:
        client = await bench.connect("SSL", ssl=certificates.client(certificate=True))
        assert await client.ask(ECHO, b"a") == b"a"
        (connection,) = bench.server._connections
        assert connection.context is not None
        assert str(connection.context.principal) == "User:alice"
        assert connection.context.listener == "SSL"


@pytest.mark.parametrize(
    ("auth", "sent", "says"),
    [
        ("none", b"\0\0\0\x10\0\x12\0\0\0\0\0\1\0\x04test\0\0", "does not speak TLS"),
        ("none", b"GET / HTTP/1.1\r\n\r\n", "does not speak TLS"),
        ("none", b"\x16\x03\x01\0\x05abcde", "TLS failed"),
    ],
)
async def test_tls_listener_given_other_bytes_closes_with_a_reason(
    certificates: Certificates, caplog: pytest.LogCaptureFixture, auth: str, sent: bytes, says: str
) -> None:
    caplog.set_level(logging.INFO, "oncelog.test")

    async with serving(certificates, auth=auth) as bench:
        port = bench.server.ports["SSL"]
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        bench.clients.append(client)
        client.writer.write(sent)
        with contextlib.suppress(ConnectionError, TimeoutError):
            await asyncio.wait_for(client.reader.read(), 10)
        await until(lambda: not bench.server.connection_count)

    assert [says in message for message in caplog.messages] == [True]


async def test_tls_client_without_a_required_certificate_is_refused_with_a_reason(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oncelog.test")

    async with serving(certificates, auth="required") as bench:
        client = await bench.connect("SSL", ssl=certificates.client())
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            await client.reader.read()  # TLS 1.3 reports the refusal with the first read
        await until(lambda: not bench.server.connection_count)

    assert [message.partition(": ")[2] for message in caplog.messages] == [
        "TLS failed: the client gave no certificate, which ssl.client.auth=required asks for"
    ]


async def test_tls_client_on_a_plaintext_listener_is_reported_as_tls(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "oncelog.test")

    async with serving(certificates) as bench:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await bench.connect(ssl=certificates.client())

    assert ["it speaks TLS" in message for message in caplog.messages] == [True]


@pytest.mark.usefixtures("quick_sweep")
async def test_tls_handshakes_are_limited_and_end_at_their_deadline(
    certificates: Certificates,
) -> None:
    limits = {"max_connections": 3, "first_request_timeout_ms": 1000}
    async with serving(certificates, **limits) as bench:
        port = bench.server.ports["SSL"]
        half_open = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        for _, writer in half_open:
            with contextlib.suppress(ConnectionError):
                writer.write(b"\x16\x03\x01\x02\0")  # a hello that does not end
        client = await bench.connect("SSL", ssl=certificates.client())
        assert await client.ask(ECHO, b"a") == b"a"
        assert bench.server.connection_count <= 3
        await until(lambda: bench.server.connection_count == 1, timeout_s=10)
        assert await client.ask(ECHO, b"b") == b"b"
        for _, writer in half_open:
            writer.transport.abort()


async def test_tls_connection_that_closed_is_freed_without_garbage_collection(
    certificates: Certificates,
) -> None:
    """A handshake leaves 50 kB, and brokers seldom collect garbage."""
    gc.collect()
    gc.disable()
    try:
        async with serving(certificates) as bench:
            for _ in range(3):
                client = await bench.connect("SSL", ssl=certificates.client())
                assert await client.ask(ECHO, b"a") == b"a"
                client.writer.transport.abort()
            await until(lambda: not bench.server.connection_count)
            await until(lambda: not channels(), timeout_s=5)
    finally:
        gc.enable()


def channels() -> int:
    return sum(type(each) is TlsChannel for each in gc.get_objects())


async def test_tls_connections_that_closed_hold_no_bytes_of_the_memory_budget(
    certificates: Certificates,
) -> None:
    async with serving(certificates) as bench:
        for _ in range(3):
            client = await bench.connect("SSL", ssl=certificates.client())
            assert await client.ask(ECHO, b"a") == b"a"
            client.writer.transport.abort()
        await until(lambda: not bench.server.connection_count)
        assert bench.server.budget.held_bytes == 0

    gc.collect()
