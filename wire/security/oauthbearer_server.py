"""The server side of OAUTHBEARER (RFC 7628).

This file is pure, and the caller passes the function that verifies tokens. A refused token is
answered with a reason in JSON. The client confirms the reason with a single %x01, and then the
login fails.
"""

import re
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import NamedTuple

from ..errors import IllegalSaslState
from .sasl import FailedLogin

REFUSAL = '{"status":"invalid_token"}'
CONFIRMATION = b"\x01"
_MESSAGE = re.compile(
    "n,(?:a=([^,\x01]*))?,\x01auth=[Bb]earer ([A-Za-z0-9\\-._~+/]+=*)\x01"
    "(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*\x01"
)


class TokenIdentity(NamedTuple):
    """The principal of a token, and the time until the token expires."""

    name: str
    lifetime_ms: int


class OauthState(Enum):
    AWAITS_TOKEN = auto()
    REFUSED = auto()
    DONE = auto()
    FAILED = auto()


_S = OauthState
ALLOWED: Mapping[OauthState, frozenset[OauthState]] = {
    _S.AWAITS_TOKEN: frozenset({_S.REFUSED, _S.DONE, _S.FAILED}),
    _S.REFUSED: frozenset({_S.FAILED}),
    _S.DONE: frozenset(),
    _S.FAILED: frozenset(),
}


class OauthbearerServer:
    """The server side of one OAUTHBEARER login.

    `verify` raises FailedLogin for a token that is not accepted.
    """

    def __init__(self, verify: Callable[[str], TokenIdentity]) -> None:
        self.state, self.username, self.lifetime_ms = OauthState.AWAITS_TOKEN, "", 0
        self._verify = verify

    @property
    def is_done(self) -> bool:
        """Return whether the token was accepted."""
        return self.state is OauthState.DONE

    def respond(self, message: bytes) -> bytes:
        """Return the server's answer to a client's message.

        The answer is empty for a valid token, and has the reason for an invalid token. Raises
        FailedLogin for a malformed message, for an authorization id that differs from the token's
        principal, and for the client's next message after a refusal.
        """
        if self.state is OauthState.REFUSED:
            self._move(OauthState.FAILED)
            raise FailedLogin(REFUSAL if message == CONFIRMATION else "")
        try:
            found = _MESSAGE.fullmatch(message.decode())
        except UnicodeDecodeError:
            found = None
        if found is None:
            self._move(OauthState.FAILED)
            raise FailedLogin
        asked, token = found.groups()
        try:
            name, lifetime_ms = self._verify(token)
        except FailedLogin:
            self._move(OauthState.REFUSED)
            return REFUSAL.encode()
        if asked and asked != name:
            self._move(OauthState.FAILED)
            raise FailedLogin(
                f"Authentication failed: Client requested an authorization id ({asked}) that is "
                f"different from the token's principal name ({name})"
            )
        self._move(OauthState.DONE)
        self.username, self.lifetime_ms = name, lifetime_ms
        return b""

    def _move(self, state: OauthState) -> None:
        if state not in ALLOWED[self.state]:
            raise IllegalSaslState(f"{self.state.name} does not lead to {state.name}")
        self.state = state
