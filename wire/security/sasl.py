"""The common parts of the server's SASL mechanisms, and PLAIN (RFC 4616)."""

import hmac
from collections.abc import Mapping
from typing import Protocol

from .secret import Secret

NO_USER = Secret("")


class FailedLogin(Exception):
    """The error of a refused login. Its text is for the client, or empty for a default text."""


class SaslServer(Protocol):
    """The server side of a mechanism, for one login."""

    @property
    def is_done(self) -> bool:
        """Return whether the client has proved that it is the user `username`."""
        ...

    username: str
    lifetime_ms: int  # of the client's credentials, or 0 if they do not expire

    def respond(self, message: bytes) -> bytes:
        """Return the server's next message, or raise FailedLogin."""
        ...


class PlainServer:
    """The mechanism PLAIN, with name and password in one message, for listeners with TLS."""

    def __init__(self, users: Mapping[str, Secret]) -> None:
        self.username, self.is_done, self.lifetime_ms = "", False, 0
        self._users = users

    def respond(self, message: bytes) -> bytes:
        """Return an empty message for the right password, or raise FailedLogin."""
        try:
            parts = message.decode().split("\0")
        except UnicodeDecodeError:
            raise FailedLogin from None
        if len(parts) != 3:
            raise FailedLogin
        asked, self.username, password = parts
        if not self.username:
            raise FailedLogin("Authentication failed: username not specified")
        if not password:
            raise FailedLogin("Authentication failed: password not specified")
        expected = self._users.get(self.username, NO_USER).reveal()
        is_right = hmac.compare_digest(password.encode(), expected.encode())
        if not is_right or self.username not in self._users:
            raise FailedLogin("Authentication failed: Invalid username or password")
        if asked not in ("", self.username):
            raise FailedLogin(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        self.is_done = True
        return b""
