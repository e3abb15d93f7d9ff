"""The client's side of OAUTHBEARER (RFC 7628), and the claims of a token.

The file does no I/O. A server that accepts the token answers without data. A server that refuses
the token gives a reason in JSON, waits for a single %x01, and then fails. The reason explains more
than the failure, so the reason is kept.
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, cast

from ...wire.errors import IllegalSaslState, SaslAuthenticationFailed
from ...wire.security.secret import Secret

NAME = "OAUTHBEARER"
SEPARATOR = "\x01"
TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750: the text after "Bearer"
EXTENSION_NAME, EXTENSION_VALUE = re.compile(r"[A-Za-z]+"), re.compile(r"[\x21-\x7e \t\r\n]+")


class OAuthState(Enum):
    INITIAL = auto()
    TOKEN_SENT = auto()
    REFUSED = auto()
    DONE = auto()
    FAILED = auto()


_S = OAuthState
ALLOWED: Mapping[OAuthState, frozenset[OAuthState]] = {
    _S.INITIAL: frozenset({_S.TOKEN_SENT, _S.FAILED}),
    _S.TOKEN_SENT: frozenset({_S.DONE, _S.REFUSED}),
    _S.REFUSED: frozenset({_S.FAILED}),
    _S.DONE: frozenset(),
    _S.FAILED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Token:
    """An access token. `expires_s` is in wall-clock seconds, None if unknown."""

    value: Secret
    expires_s: float | None = None


class OauthbearerClient:
    """The client's side of one authentication. Extensions are sent with the token."""

    def __init__(self, token: Token, extensions: tuple[tuple[str, str], ...] = ()) -> None:
        self.name, self.state = NAME, OAuthState.INITIAL
        self._token, self._extensions = token, extensions
        self.refusal = ""  # the server's reason

    def start(self) -> bytes:
        """Return the message with the token.

        Raises SaslAuthenticationFailed for an invalid token.
        """
        value = self._token.value.reveal()
        if not TOKEN.fullmatch(value):
            self._move(OAuthState.FAILED)
            raise SaslAuthenticationFailed(
                f"{NAME}: what the token provider gave is not a bearer token (RFC 6750)"
            )
        self._move(OAuthState.TOKEN_SENT)
        pairs = (("auth", f"Bearer {value}"), *self._extensions)
        parts = "".join(f"{name}={value}{SEPARATOR}" for name, value in pairs)
        return f"n,,{SEPARATOR}{parts}{SEPARATOR}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Return None at the end. Return %x01 after a refusal, and keep the reason in `refusal`."""
        if self.state is OAuthState.REFUSED:
            self._move(OAuthState.FAILED)
            raise SaslAuthenticationFailed(f"{NAME}: {self.refusal}")
        if not challenge:
            self._move(OAuthState.DONE)
            return None
        self._move(OAuthState.REFUSED)
        self.refusal = _refusal(challenge)
        return SEPARATOR.encode()

    def _move(self, state: OAuthState) -> None:
        if state not in ALLOWED[self.state]:
            raise IllegalSaslState(f"{NAME}: {self.state.name} does not lead to {state.name}")
        self.state = state


def _refusal(challenge: bytes) -> str:
    try:
        said = json.loads(challenge)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        return "the broker refused the token"
    answer = cast(dict[str, Any], said)
    known = [
        f"{key}={answer[key]}"
        for key in ("status", "scope", "openid-configuration")
        if answer.get(key)
    ]
    return f"the broker refused the token ({', '.join(known) or 'it gives no reason'})"


def check_extensions(extensions: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return extensions as pairs, or raise ValueError for an invalid one (RFC 7628, 3.1)."""
    for name, value in extensions.items():
        if name == "auth" or not EXTENSION_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a SASL extension: letters only, not auth")
        if not EXTENSION_VALUE.fullmatch(value):
            raise ValueError(f"the SASL extension {name} holds characters that may not be sent")
    return tuple(extensions.items())


def expiry_of(token: str) -> float | None:
    """Return the expiry of a JWT in wall-clock seconds, or None for other tokens or no expiry.

    No signature is verified, because the brokers verify it. The client only needs a new token in
    time.
    """
    return seconds_of(claims_of(token).get("exp"))


def seconds_of(value: Any) -> float | None:
    """Return a received value as a number of seconds, or None if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        seconds = float(value)
    except OverflowError:  # an int of hundreds of digits
        return None
    return seconds if math.isfinite(seconds) else None


def claims_of(token: str) -> dict[str, Any]:
    """Return the claims of a JWT, unverified, or an empty dict for other tokens."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        claims = json.loads(base64.urlsafe_b64decode(padded))
    except (binascii.Error, ValueError, RecursionError):
        return {}
    return cast(dict[str, Any], claims) if isinstance(claims, dict) else {}
