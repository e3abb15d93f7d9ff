"""Finds the security protocol of a listener that closes connections without an answer.

A broker that expects TLS or SASL does not report its expectation. The broker closes the connection,
as a dying broker does, and a client that retries would fail after a minute without a reason.
Therefore a client sends a first request of another security protocol once, to a cluster that has
never answered. Only a certain result is raised, as an error that is not retriable.
"""

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING

from ...wire.errors import ErrorCode, KafkaError
from ..connection import BrokerConnection
from ..failures import SecurityProtocolMismatch
from .exchange import SASL_HANDSHAKE

if TYPE_CHECKING:
    from .session import Security

PROBE_MS = 2_000
NO_MECHANISM = "-"  # no mechanism has this name: the answer lists the existing ones


async def refuse_other_protocol(host: str, port: int, security: "Security | None") -> None:
    """Raise SecurityProtocolMismatch if exactly one of listener and client uses TLS.

    Call this function only for a listener that did not answer.
    """
    if security is None or security.config.tls is None:
        await _refuse_with_tls(host, port)
    else:
        await _refuse_without_tls(host, port)


async def _refuse_without_tls(host: str, port: int) -> None:
    try:
        connection = await BrokerConnection.open(host, port, timeout_ms=PROBE_MS)
    except KafkaError:
        return
    connection.close()
    from .tls import speaks_plain

    raise speaks_plain(f"{host}:{port}")


async def _refuse_with_tls(host: str, port: int) -> None:
    from .tls import is_tls, speaks_tls

    try:
        async with asyncio.timeout(PROBE_MS / 1000):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(_client_hello())
                start = await reader.readexactly(2)
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError, EOFError):
        return
    if is_tls(start):
        raise speaks_tls(f"{host}:{port}")


def _client_hello() -> bytes:
    """Return the bytes of the first message of a TLS handshake."""
    came, goes = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(came, goes, server_hostname="localhost").do_handshake()
    return goes.read()


async def refuse_without_sasl(lost: BrokerConnection, security: "Security | None") -> None:
    """Raise SecurityProtocolMismatch if a listener requires SASL, and the client does not use it.

    lost: the connection that the listener closed at the first request.
    """
    if security is not None and security.config.sasl is not None:
        return
    if SASL_HANDSHAKE not in lost.versions:
        return
    connection = None
    try:
        connection = await BrokerConnection.open(
            lost.host, lost.port, timeout_ms=PROBE_MS, security=security
        )
        answer = await connection.call(SASL_HANDSHAKE, {"mechanism": NO_MECHANISM})
    except KafkaError:
        return
    finally:
        if connection is not None:
            connection.close()
    if answer.error_code != ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        return
    has_tls = security is not None
    raise SecurityProtocolMismatch(
        f"{lost.host}:{lost.port} asks for SASL: set security.protocol to "
        f"{'SASL_SSL' if has_tls else 'SASL_PLAINTEXT'}, and sasl.mechanism to one of "
        f"{', '.join(answer.mechanisms)}, with sasl.username and sasl.password (or a token)"
    )
