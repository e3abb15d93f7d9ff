"""Access tokens for OAUTHBEARER, which are fetched when needed, and renewed in time.

One source serves all connections of a client, with one request for all waiting connections. A token
is used for the first four fifths of its lifetime (as Kafka's sasl.login.refresh.window.factor). In
the last fifth another token is requested, and the old token stays in use until the new one arrives.
Functions and HTTP run in a thread, so that the loop is not blocked. A connection waits for a token
only for a bounded time, after which the request continues, and a later attempt uses its answer.
"""

import asyncio
import base64
import contextlib
import http.client
import inspect
import json
import socket
import ssl
import threading
import time
from typing import Any, cast
from urllib.parse import quote, urlencode, urlsplit

from ...wire.errors import KafkaError, NetworkException, SaslAuthenticationFailed
from ...wire.security.secret import Secret
from ..failures import SslAuthenticationFailed
from .config import TokenConfig
from .oauthbearer import Token, expiry_of, seconds_of
from .tls import https_context

WINDOW = 0.8
ANSWER_BYTES_MAX = 1 << 20
SPARE_S = 5.0  # a token that expires sooner is not sent to a broker
RETRY_S = 1.0  # after a failure, while the token is valid
SUCCESSOR_WAIT_S = 1.0  # for callers that could use the old token
UNKNOWN_LIFE_S = 60.0  # for a token without an expiry


class TokenSource:
    """Fetches, keeps and renews the access token of one client."""

    def __init__(self, config: TokenConfig) -> None:
        self._config = config
        self._token: Token | None = None
        self._renew_s = 0.0  # wall clock, as tokens are
        self._fetching: asyncio.Task[Token] | None = None

    async def token(self, timeout_ms: int = 60_000) -> Token:
        """Return a token that stays valid for a while.

        Raises NetworkException if no token arrives in time. Raises SaslAuthenticationFailed if the
        endpoint refuses or the function fails, ValueError for an unusable file of CAs.
        """
        now_s = time.time()
        if self._token is not None and now_s < self._renew_s:
            return self._token
        known = self._token if self._is_good(now_s) else None
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.get_running_loop().create_task(self._renew())
            self._fetching.add_done_callback(mark_seen)
        limit_s = timeout_ms / 1000
        done, _ = await asyncio.wait(
            (self._fetching,), timeout=limit_s if known is None else min(limit_s, SUCCESSOR_WAIT_S)
        )
        if done and not self._fetching.cancelled():
            return self._fetching.result()
        if known is not None:
            return known
        source = "endpoint" if self._config.provider is None else "provider"
        raise NetworkException(f"the token {source} has given no token in {timeout_ms} ms")

    def _is_good(self, now_s: float) -> bool:
        ends_s = None if self._token is None else self._token.expires_s
        return ends_s is not None and now_s <= ends_s - SPARE_S

    async def _renew(self) -> Token:
        now_s = time.time()
        try:
            self._token = await self._fetch()
        except (KafkaError, ValueError):
            now_s = time.time()
            known = self._token
            if known is None or not self._is_good(now_s):
                raise
            self._renew_s = now_s + RETRY_S
            return known
        ends_s = self._token.expires_s
        life_s = UNKNOWN_LIFE_S if ends_s is None else ends_s - now_s
        self._renew_s = now_s + WINDOW * life_s
        return self._token

    def invalidate(self, token: Token) -> None:
        """Drop a token that a broker refused. The next connection requests another token."""
        if self._token is token:
            self._token = None

    async def _fetch(self) -> Token:
        provider = self._config.provider
        if provider is None:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, request_token, self._config)
        try:
            if inspect.iscoroutinefunction(provider):
                given = await provider()
            else:
                given = await asyncio.get_running_loop().run_in_executor(None, provider)
                if inspect.isawaitable(given):
                    given = await given
        except Exception as problem:  # the application's error; its message may contain secrets
            raise SaslAuthenticationFailed(
                f"sasl.oauthbearer.token.provider failed with {type(problem).__name__}"
            ) from problem
        return given_token(given)


def given_token(given: Any) -> Token:
    """Return a provider's result as a token. Raises SaslAuthenticationFailed for an invalid one."""
    expires_s: Any = None
    if isinstance(given, tuple):
        pair = cast(tuple[Any, ...], given)
        if len(pair) == 2:
            given, expires_s = pair
    if isinstance(given, Secret):
        given = given.reveal()
    is_time = expires_s is None or seconds_of(expires_s) is not None
    if not isinstance(given, str) or not given or not is_time:
        raise SaslAuthenticationFailed(
            "sasl.oauthbearer.token.provider has to return the token as text, or (token, "
            "wall-clock seconds of its end)"
        )
    return Token(Secret(given), expiry_of(given) if expires_s is None else seconds_of(expires_s))


def request_token(config: TokenConfig) -> Token:
    """Request a token with client credentials (RFC 6749, 4.4) in one POST.

    Redirects are not followed, because they would carry the secret elsewhere.
    """
    parts = urlsplit(config.url)
    assert parts.hostname is not None
    endpoint = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    connect_s, read_s = config.connect_timeout_ms / 1000, config.read_timeout_ms / 1000
    if parts.scheme == "https":
        context = https_context(config.ca_file)
        connection = http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=connect_s, context=context
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=connect_s)
    hanging_up, is_late = None, threading.Event()
    try:
        connection.connect()
        connection.sock.settimeout(read_s)  # for each part; the whole may take twice as long
        hanging_up = threading.Timer(2 * read_s, _hang_up, (connection.sock, is_late))
        hanging_up.daemon = True
        hanging_up.start()
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, token_form(config), token_headers(config))
        answer = connection.getresponse()
        body = answer.read(ANSWER_BYTES_MAX)
        if is_late.is_set():
            raise TimeoutError("it took too long")
    except ssl.SSLCertVerificationError as problem:
        said = problem.verify_message.rstrip(".")
        raise SslAuthenticationFailed(
            f"the token endpoint {endpoint} shows a certificate that we do not trust ({said}): "
            "give its CA as a PEM file with https.ca.location"
        ) from None
    except (OSError, http.client.HTTPException) as problem:
        raise NetworkException(
            f"the token endpoint {endpoint} gave no answer ({problem or type(problem).__name__})"
        ) from None
    finally:
        if hanging_up is not None:
            hanging_up.cancel()
        connection.close()
    return read_token(answer.status, body, endpoint, config.client_id, time.time())


def _hang_up(connected: socket.socket, is_late: threading.Event) -> None:
    """Shut the socket down, which ends a read in another thread.

    TLS's own close could block during a read.
    """
    is_late.set()
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connected, socket.SHUT_RDWR)


def token_form(config: TokenConfig) -> str:
    """Return the body of the request for a token."""
    form = {"grant_type": "client_credentials"}
    if config.scope:
        form["scope"] = config.scope
    return urlencode(form)


def token_headers(config: TokenConfig) -> dict[str, str]:
    name, secret = config.client_id, config.client_secret.reveal()
    if config.is_urlencoded:
        name, secret = quote(name, safe=""), quote(secret, safe="")
    basic = base64.b64encode(f"{name}:{secret}".encode()).decode()
    return {
        "Authorization": f"Basic {basic}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }


def read_token(status: int, body: bytes, endpoint: str, client_id: str, now_s: float) -> Token:
    """Return the token in an answer.

    Raises NetworkException for a failure of the server, SaslAuthenticationFailed for a refusal.
    """
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    answer = cast(dict[str, Any], said) if isinstance(said, dict) else {}
    token = answer.get("access_token")
    if status == http.HTTPStatus.OK and isinstance(token, str) and token:
        expires_s = expiry_of(token)
        life_s = seconds_of(answer.get("expires_in"))
        if expires_s is None and life_s is not None:
            expires_s = now_s + life_s
        return Token(Secret(token), expires_s)
    words = ": ".join(
        str(answer[key])[:200] for key in ("error", "error_description") if answer.get(key)
    )
    answered = f"answered {status}{f' ({words})' if words else ''}"
    if status >= 500 or status == http.HTTPStatus.TOO_MANY_REQUESTS:
        raise NetworkException(f"the token endpoint {endpoint} {answered}")
    if status == http.HTTPStatus.OK:
        raise SaslAuthenticationFailed(
            f"the token endpoint {endpoint} answered without an access_token: is it the token "
            "endpoint of the provider?"
        )
    raise SaslAuthenticationFailed(
        f"the token endpoint {endpoint} {answered} to client id {client_id}: check "
        "sasl.oauthbearer.client.credentials.client.id and .client.secret, "
        "sasl.oauthbearer.scope, and the address"
    )


def mark_seen(task: "asyncio.Task[Any]") -> None:
    """Mark a task's exception as retrieved, so that the loop does not log it."""
    if not task.cancelled():
        task.exception()  # a waiting caller has raised it, or has stopped waiting
