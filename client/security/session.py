"""Secures connections with TLS when they are opened, and with SASL then and again in time.

`Security` belongs to one client and is shared by its connections. `Security` keeps the TLS context,
the token, and the salted password, so only the first connection computes them. `SaslSession`
belongs to one connection. A broker may end a session (KIP-368), and then answers only a new
authentication. Therefore the first request late in a session authenticates again before the request
is sent. No other request is sent meanwhile, because a broker would treat it as an attack.
"""

import asyncio
import random
import secrets
import time
from typing import Any, Protocol

from ...wire.errors import KafkaError
from .config import SecurityConfig, security_config
from .exchange import Ask, PlainClient, sasl_exchange
from .oauthbearer import OauthbearerClient, Token
from .scram import HASHES, Derive, ScramClient
from .tls import make_context
from .tokens import TokenSource, mark_seen

NONCE_BYTES = 24
RENEWED_FROM, RENEWED_TO = 0.85, 0.95  # of the session's lifetime, scattered as in Kafka's clients


class Asking(Protocol):
    """The interface of a connection that its SASL session uses."""

    host: str
    port: int
    timeout_ms: int

    async def call(self, api_key: int, values: dict[str, Any]) -> Any:
        """Send a request, and return its answer."""

    def fail(self, reason: str, problem: KafkaError | None = None) -> None:
        """Close the connection, and fail its waiting requests."""


class Security:
    """The TLS context, token and salted password of one client, for all its connections."""

    def __init__(self, config: SecurityConfig) -> None:
        self.config = config
        self._context: Any = None
        self._lock = asyncio.Lock()
        self._derived: tuple[Derive, bytes] | None = None
        tokens = config.sasl.tokens if config.sasl is not None else None
        self.tokens = TokenSource(tokens) if tokens is not None else None

    @classmethod
    def of(cls, settings: Any) -> "Security | None":
        """Return the `Security` of a client's settings, or None for PLAINTEXT.

        Raises ValueError for invalid security settings.
        """
        config = security_config(settings)
        return None if config is None else cls(config)

    def __repr__(self) -> str:
        return f"Security({self.config.protocol}, {self.who})"

    @property
    def who(self) -> str:
        """The name of the client's login, for messages."""
        sasl = self.config.sasl
        if sasl is None or not sasl.username:
            return "this client"
        return f"{'client id' if sasl.tokens else 'user'} {sasl.username}"

    async def tls_options(self, host: str) -> dict[str, Any]:
        """Return the TLS options of `loop.create_connection`.

        Raise ValueError for an unusable file.
        """
        if self.config.tls is None:
            return {}
        async with self._lock:
            if self._context is None:  # the CAs of a machine are megabytes, so a thread reads them
                loop = asyncio.get_running_loop()
                self._context = await loop.run_in_executor(None, make_context, self.config.tls)
        return {"ssl": self._context, "server_hostname": host}

    async def begin_session(self, connection: Asking) -> "SaslSession | None":
        """Return the authenticated session of a new connection, or None without SASL."""
        if self.config.sasl is None:
            return None
        session = SaslSession(self, connection)
        await session.begin()
        return session

    async def authenticate(self, connection: Asking) -> int:
        """Authenticate a connection with SASL.

        Return the session's lifetime in ms (0 for unlimited).
        """
        sasl = self.config.sasl
        assert sasl is not None
        token: Token | None = None
        if self.tokens is not None:
            token = await self.tokens.token(connection.timeout_ms)
            mechanism = OauthbearerClient(token, sasl.extensions)
        elif sasl.mechanism in HASHES:
            nonce = secrets.token_urlsafe(NONCE_BYTES)
            mechanism = ScramClient(sasl.mechanism, sasl.username, sasl.password, nonce)
        else:
            mechanism = PlainClient(sasl.username, sasl.password)
        exchange = sasl_exchange(mechanism, f"{connection.host}:{connection.port}", self.who)
        answer: Any = None
        try:
            while True:
                step = exchange.send(answer)
                if isinstance(step, Ask):
                    answer = await connection.call(step.api_key, step.values)
                else:
                    answer = await self._derive(step)
        except StopIteration as end:
            return end.value
        except KafkaError as problem:
            if token is not None and self.tokens is not None and not problem.retriable:
                self.tokens.invalidate(token)
            raise

    async def _derive(self, wanted: Derive) -> bytes:
        async with self._lock:  # connections that open together derive once
            if self._derived is None or self._derived[0] != wanted:
                loop = asyncio.get_running_loop()
                salted = await loop.run_in_executor(None, wanted.compute)
                self._derived = wanted, salted
            return self._derived[1]


class SaslSession:
    """The authenticated session of one connection.

    To send a request, a task takes `write_lock`, and then calls `renew_if_due`. The lock is granted
    in order.
    """

    def __init__(self, security: Security, connection: Asking) -> None:
        self._security, self._connection = security, connection
        self.write_lock = asyncio.Lock()
        self.renewals = 0
        self._renew_s: float | None = None  # monotonic
        self._renewing: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Authenticate, and set the time of the next authentication."""
        began_s = time.monotonic()
        lifetime_ms = await self._security.authenticate(self._connection)
        self._renew_s = None
        if lifetime_ms > 0:
            part = random.uniform(RENEWED_FROM, RENEWED_TO)
            self._renew_s = began_s + part * lifetime_ms / 1000

    async def renew_if_due(self) -> None:
        """Authenticate again if due. On an error close the connection and raise."""
        if self._renewing is None:
            if self._renew_s is None or time.monotonic() < self._renew_s:
                return
            self._renewing = asyncio.create_task(self._renew())
            self._renewing.add_done_callback(mark_seen)
        # A caller may be cancelled; the exchange that it has begun must run to its end.
        await asyncio.shield(self._renewing)
        self._renewing = None

    async def _renew(self) -> None:
        try:
            await self.begin()
            self.renewals += 1
        # whatever failed: no other request may be sent in the middle of it
        except Exception as problem:
            known = problem if isinstance(problem, KafkaError) else None
            self._connection.fail(f"it could not be authenticated anew ({problem})", known)
            raise
