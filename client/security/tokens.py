"""Access tokens for OAUTHBEARER: fetched when needed, kept, and renewed before they end.

One source serves all connections of a client, and asks once for all that wait. A token is used for
the first four fifths of its life (as Kafka's sasl.login.refresh.window.factor); the last fifth is
for a session to be renewed in. Functions and HTTP run in a thread, so that the loop goes on.
"""

import asyncio
import base64
import http.client
import inspect
import json
import ssl
import time
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from ...wire.errors import NetworkException, SaslAuthenticationFailed
from ..failures import SslAuthenticationFailed
from .config import TokenConfig
from .oauthbearer import Token, expiry_of
from .secret import Secret
from .tls import https_context

WINDOW = 0.8
ANSWER_BYTES_MAX = 1 << 20
SPARE_S = 5.0  # a token that ends so soon is not shown to a broker any more
RETRY_S = 1.0  # after an endpoint that gave no answer, while the token is good
UNKNOWN_LIFE_S = 60.0  # of a token that does not say when it ends


class TokenSource:
    """See the top of the file."""

    def __init__(self, config: TokenConfig) -> None:
        self._config = config
        self._lock = asyncio.Lock()
        self._token: Token | None = None
        self._renew_s = 0.0  # wall clock, as tokens are

    async def token(self) -> Token:
        """A token that will do for a while.

        Raises NetworkException when the endpoint does not answer, SaslAuthenticationFailed when it
        refuses or when the function fails.
        """
        async with self._lock:
            now_s = time.time()
            if self._token is not None and now_s < self._renew_s:
                return self._token
            try:
                self._token = await self._fetch()
            except NetworkException:
                known = self._token
                if known is None or known.expires_s is None or now_s > known.expires_s - SPARE_S:
                    raise
                self._renew_s = now_s + RETRY_S  # it is good for a while yet
                return known
            ends_s = self._token.expires_s
            life_s = UNKNOWN_LIFE_S if ends_s is None else ends_s - now_s
            self._renew_s = now_s + WINDOW * life_s
            return self._token

    def invalidate(self, token: Token) -> None:
        """A broker refused it: the next connection asks for another one."""
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
        except Exception as problem:  # a program's own; its words may hold what it asked with
            raise SaslAuthenticationFailed(
                f"sasl.oauthbearer.token.provider failed with {type(problem).__name__}"
            ) from problem
        return given_token(given)


def given_token(given: Any) -> Token:
    """What a provider returned, as a token. Raises SaslAuthenticationFailed."""
    expires_s = None
    if isinstance(given, tuple) and len(given) == 2:
        given, expires_s = given
    if isinstance(given, Secret):
        given = given.reveal()
    is_time = expires_s is None or (
        isinstance(expires_s, int | float) and not isinstance(expires_s, bool)
    )
    if not isinstance(given, str) or not given or not is_time:
        raise SaslAuthenticationFailed(
            "sasl.oauthbearer.token.provider has to return the token as text, or (token, "
            "wall-clock seconds of its end)"
        )
    return Token(Secret(given), expiry_of(given) if expires_s is None else float(expires_s))


def request_token(config: TokenConfig) -> Token:
    """Client credentials (RFC 6749, 4.4): one POST. Redirects are not followed: they would carry
    the secret elsewhere."""
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
    try:
        connection.connect()
        connection.sock.settimeout(read_s)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, token_form(config), token_headers(config))
        answer = connection.getresponse()
        body = answer.read(ANSWER_BYTES_MAX)
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
        connection.close()
    return read_token(answer.status, body, endpoint, config.client_id, time.time())


def token_form(config: TokenConfig) -> str:
    """The body of the request."""
    form = {"grant_type": "client_credentials"}
    if config.scope:
        form["scope"] = config.scope
    return urlencode(form)


def token_headers(config: TokenConfig) -> dict[str, str]:
    """Who asks."""
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
    """The token in an answer.

    Raises NetworkException for a server that is not well, SaslAuthenticationFailed for a refusal.
    """
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    answer: dict[str, Any] = said if isinstance(said, dict) else {}
    token = answer.get("access_token")
    if status == http.HTTPStatus.OK and isinstance(token, str) and token:
        expires_s = expiry_of(token)
        life_s = answer.get("expires_in")
        if expires_s is None and isinstance(life_s, int | float):
            expires_s = now_s + life_s
        return Token(Secret(token), expires_s)
    words = ": ".join(str(answer[key])[:200] for key in ("error", "error_description")
                      if answer.get(key))  # fmt: skip
    said_so = f"answered {status}{f' ({words})' if words else ''}"
    if status >= 500 or status == http.HTTPStatus.TOO_MANY_REQUESTS:
        raise NetworkException(f"the token endpoint {endpoint} {said_so}")
    if status == http.HTTPStatus.OK:
        raise SaslAuthenticationFailed(
            f"the token endpoint {endpoint} answered without an access_token: is it the token "
            "endpoint of the provider?"
        )
    raise SaslAuthenticationFailed(
        f"the token endpoint {endpoint} {said_so} to client id {client_id}: check "
        "sasl.oauthbearer.client.credentials.client.id and .client.secret, "
        "sasl.oauthbearer.scope, and the address"
    )
