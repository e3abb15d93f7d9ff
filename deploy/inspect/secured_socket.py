"""A blocking socket with TLS or SASL that is logged in before the probe begins to measure.

The steps of the login are those of the client, and only the transport differs. Sessions are not
renewed (KIP-368). When a session ends, the broker closes the connection, which the probe counts as
lost.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any

from ...client.security.session import Security
from ...client.security.tls import explain
from ...client.settings import ADMIN, read_settings
from ...wire.errors import KafkaError, NetworkException
from ...wire.framing import encode_request_header, frame_response
from ...wire.messages import control

VERSION = 1  # of SaslHandshake and SaslAuthenticate, which every broker has had since 2.2
TIMEOUT_S = 10.0
AGAIN_S = 0.1  # after a failure, for the thread that has met it
SIZE_BYTES, CORRELATION_BYTES = 4, 4
ANSWER_BYTES_MAX = 1 << 20


class LoginRefused(OSError):
    """The error of a refusal that a retry would not change. The text is a sentence."""


class SecuredConnector:
    """A connector to one address, with the security settings of a client.

    `connect` blocks, and must be called in a thread without a running event loop.
    """

    def __init__(self, config: Mapping[str, Any], host: str, port: int) -> None:
        self._security = Security.of(read_settings(ADMIN, config, {}))
        self._host, self._port = host, port

    @property
    def has_login(self) -> bool:
        """Return whether a connection begins with SASL."""
        return self._security is not None and self._security.config.sasl is not None

    def connect(self) -> socket.socket:
        """Return the socket, or raise OSError, or LoginRefused for a permanent refusal."""
        try:
            return asyncio.run(self._connect())
        except (KafkaError, ValueError) as problem:
            if not getattr(problem, "retriable", False):
                raise LoginRefused(str(problem)) from None
            time.sleep(AGAIN_S)
            raise OSError(str(problem)) from None
        except OSError:
            time.sleep(AGAIN_S)
            raise

    async def _connect(self) -> socket.socket:
        taken = socket.create_connection((self._host, self._port), TIMEOUT_S)
        try:
            taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._security is not None:
                taken = await self._wrapped(taken, self._security)
                if self._security.config.sasl is not None:
                    await self._security.authenticate(_Conversation(taken, self._host, self._port))
        except BaseException:
            taken.close()
            raise
        taken.setblocking(False)
        return taken

    async def _wrapped(self, taken: socket.socket, security: Security) -> socket.socket:
        tls = await security.tls_options(self._host)
        if not tls:
            return taken
        try:
            return tls["ssl"].wrap_socket(taken, server_hostname=tls["server_hostname"])
        except ssl.SSLError as problem:
            assert security.config.tls is not None
            raise explain(problem, self._host, self._port, security.config.tls) from None


class _Conversation:
    """A connection on which the requests of a login are sent one by one, each after an answer."""

    timeout_ms = int(TIMEOUT_S * 1000)

    def __init__(self, taken: socket.socket, host: str, port: int) -> None:
        self._socket, self.host, self.port = taken, host, port
        self._asked = 0

    async def call(self, api_key: int, values: dict[str, Any]) -> Any:
        self._asked += 1
        header = encode_request_header(api_key, VERSION, self._asked, "oncelog-probe")
        body = control.encode_request(api_key, VERSION, values)
        self._socket.sendall(b"".join(frame_response(header, [body])))
        size = int.from_bytes(self._received(SIZE_BYTES), "big")
        if not CORRELATION_BYTES <= size <= ANSWER_BYTES_MAX:
            self.fail("it sent what is not a Kafka frame")
        answer = memoryview(self._received(size))
        return control.decode_response(api_key, VERSION, answer[CORRELATION_BYTES:])

    def fail(self, reason: str, problem: KafkaError | None = None) -> None:
        raise problem or NetworkException(f"{self.host}:{self.port}: {reason}")

    def _received(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            if not (more := self._socket.recv(count - len(data))):
                self.fail("it hung up in the middle of the login")
            data += more
        return data
