"""What does a listener speak that closes the connection before it has answered anything?

A broker does not say that it expects TLS, or SASL: it hangs up, as a dying broker does. A client
that takes the one for the other tries for a minute and then says that nobody answers. So where a
cluster has never answered this client, it is asked once in another way; only what is certain then
is raised, and it is not retriable.
"""

from typing import TYPE_CHECKING

from ...wire.errors import ErrorCode, KafkaError
from ..connection import Connection
from ..failures import SecurityProtocolMismatch
from .exchange import SASL_HANDSHAKE

if TYPE_CHECKING:
    from .session import Security

PROBE_MS = 2_000
NO_MECHANISM = "-"  # a name that no mechanism has: the answer lists those that there are


async def refuse_without_tls(host: str, port: int, security: "Security") -> None:
    """Raise when the listener that would not speak TLS answers in plain text."""
    if security.config.tls is None:
        return
    try:
        connection = await Connection.open(host, port, timeout_ms=PROBE_MS)
    except KafkaError:
        return
    connection.close()
    from .tls import speaks_plain

    raise speaks_plain(f"{host}:{port}")


async def refuse_without_sasl(lost: Connection, security: "Security | None") -> None:
    """Raise when the listener that hung up at the first request asks for SASL."""
    if security is not None and security.config.sasl is not None:
        return
    if SASL_HANDSHAKE not in lost.versions:
        return
    connection = None
    try:
        connection = await Connection.open(
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
