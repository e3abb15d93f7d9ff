"""Test clients before their login that try to use many resources or to get an early answer."""

import logging
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from oncelog.node.config.listeners import parse_listeners
from oncelog.node.handlers.security import logins
from oncelog.node.listener import server
from oncelog.node.listener.dispatch import Dispatcher
from oncelog.node.listener.protection import Protection
from oncelog.node.listener.sasl.login import TOKEN_BYTES_MAX, Login
from oncelog.wire.errors import ErrorCode, SaslAuthenticationFailed
from oncelog.wire.messages import api_keys, control
from oncelog.wire.security.sasl import PlainServer
from oncelog.wire.security.scram_server import ScramServer
from oncelog.wire.security.secret import Secret

from ....awaiting import until
from ..toy_server import ECHO, PRODUCE, Bench, toy_server

DELAY_MS = 300
HANDSHAKE, AUTHENTICATE = (17, 1), (36, 0)
HELLO = (18, 0)


@asynccontextmanager
async def serving(**limits: int) -> AsyncIterator[Bench]:
    listeners = parse_listeners(["L://127.0.0.1:0"], [], ["L:SASL_PLAINTEXT"])
    protection = Protection(
        mechanisms={"L": {"PLAIN": lambda: PlainServer({"alice": Secret("a")})}}
    )
    async with toy_server(
        listeners, protection, connection_failed_authentication_delay_ms=DELAY_MS, **limits
    ) as bench:
        log = logging.getLogger("oncelog.test")
        bench.server.dispatcher = Dispatcher((*bench.toys.apis(), *logins.apis()), log)
        yield bench


def chosen() -> bytes:
    return control.encode_request(api_keys.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})


def token(password: bytes) -> bytes:
    values = {"auth_bytes": b"\0alice\0" + password}
    return control.encode_request(api_keys.SASL_AUTHENTICATE, 0, values)


async def test_request_sent_after_a_wrong_password_does_not_shorten_the_delay() -> None:
    async with serving() as bench:
        client = await bench.connect("L")
        await client.ask(HANDSHAKE, chosen())
        begun_s = time.monotonic()
        client.send(AUTHENTICATE, token(b"wrong"))
        client.send(ECHO, b"behind it")
        _, answer = await client.receive()
        assert time.monotonic() - begun_s >= DELAY_MS / 1000
        assert int.from_bytes(answer[:2], "big") == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await client.is_closed()
        assert bench.toys.started == []


async def test_request_sent_with_the_right_password_is_answered() -> None:
    async with serving() as bench:
        client = await bench.connect("L")
        client.send(HANDSHAKE, chosen())
        client.send(AUTHENTICATE, token(b"a"))
        client.send(ECHO, b"behind it")
        await client.receive()
        await client.receive()
        assert (await client.receive())[1] == b"behind it"


async def test_request_after_the_end_of_a_sasl_session_closes_after_the_earlier_answers() -> None:
    async with serving(connections_max_reauth_ms=100) as bench:
        client, toys = await bench.connect("L"), bench.toys
        await client.ask(HANDSHAKE, chosen())
        await client.ask(AUTHENTICATE, token(b"a"))
        client.send(PRODUCE, b"first")
        await until(lambda: b"first" in toys.pending)
        (connection,) = bench.server._connections
        context = connection.context
        assert context is not None
        login = context.login
        assert login is not None
        await until(lambda: login.is_over(context.broker.clock.monotonic_ms()))
        client.send(PRODUCE, b"second")
        assert await client.is_silent()
        toys.pending[b"first"].complete([b"1"])
        assert (await client.receive())[1] == b"1"
        assert await client.is_closed()
        assert toys.started == [b"first"]


async def test_connection_that_reads_no_answers_before_its_sasl_login_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "SWEEP_INTERVAL_S", 0.02)
    async with serving(first_request_timeout_ms=2_000) as bench:
        client = await bench.connect("L")
        client.transport.pause_reading()
        await until(lambda: bench.server.connection_count)
        (connection,) = bench.server._connections
        assert connection._transport is not None
        for transport in (client.transport, connection._transport):
            end = transport.get_extra_info("socket")
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.writer.write(client.frame(HELLO, b"") * 20_000)
        await until(lambda: connection.stalled_since_s is not None)
        await until(lambda: not bench.server.connection_count, timeout_s=10)


@pytest.mark.parametrize("beyond", [0, 1])
def test_sasl_token_that_is_too_long_is_refused_without_a_check(beyond: int) -> None:
    seen: list[str] = []

    def scram() -> ScramServer:
        return ScramServer("SCRAM-SHA-512", "nonce", lambda name: seen.append(name), b"s" * 32)

    login = Login({"SCRAM-SHA-512": scram}, 0)
    login.choose("SCRAM-SHA-512", 0)
    first, last = b"n,,n=", b",r=abc"
    name = b"a" * (TOKEN_BYTES_MAX + beyond - len(first) - len(last))
    if not beyond:
        login.take(first + name + last, 0)
        assert len(seen) == 1
        return
    with pytest.raises(SaslAuthenticationFailed):
        login.take(first + name + last, 0)
    assert seen == []
