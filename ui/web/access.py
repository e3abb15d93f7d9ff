"""The rules by which the page accepts requests, without I/O.

- The Host header must name this server. This refuses pages of another site with a host name that
  leads to this machine (DNS rebinding).
- The token is shown once, in the address that the command prints. It is exchanged for a cookie that
  scripts cannot read and that no other site's page can send.
- Pages of other addresses, including other ports of this machine, may only link here.
- A change is a POST whose Origin is this server.
"""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

SAFE = ("GET", "HEAD")
REFUSED_HOST = "This address is not the one that the page is served at."
REFUSED_TOKEN = "Open the address that `oncelog ui` has printed: it has the token."
REFUSED_ORIGIN = "Only this page may ask for that, no page of another address."
REFUSED_METHOD = "The page is asked with GET, and changes something by POST only."


def _secret() -> str:
    return secrets.token_urlsafe(24)


@dataclass(frozen=True, slots=True)
class PageAccess:
    """The token and cookie of one process, and the rules for requests."""

    port: int
    token: str = field(default_factory=_secret)
    cookie: str = field(default_factory=_secret)

    @property
    def cookie_name(self) -> str:
        """Return the cookie's name.

        It contains the port, since browsers store cookies by host alone.
        """
        return f"oncelog_ui_{self.port}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the values of the Host header that name this server."""
        return (f"127.0.0.1:{self.port}", f"localhost:{self.port}")

    def refused(self, method: str, headers: Mapping[str, str]) -> str | None:
        """Return why a request is refused because of its method or headers, or None.

        The token and the cookie are not checked here.
        """
        host = headers.get("host", "").lower()
        if host not in self.hosts:
            return REFUSED_HOST
        # Browsers treat all ports of a machine as one site, so other ports get the cookie, too.
        is_elsewhere = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        if is_elsewhere and headers.get("sec-fetch-mode") != "navigate":
            return REFUSED_ORIGIN
        if method in SAFE:
            return None
        if method != "POST":
            return REFUSED_METHOD
        if headers.get("origin", "").lower() != f"http://{host}":
            return REFUSED_ORIGIN
        return None

    def knows(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request has the cookie, or the token as a bearer token."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.is_token(given.strip()):
            return True
        # Other servers of this machine may have set cookies in any form, and under this name.
        pairs = [part.strip() for part in headers.get("cookie", "").split(";")]
        return any(_equal(pair, f"{self.cookie_name}={self.cookie}") for pair in pairs)

    def is_token(self, given: str) -> bool:
        """Return whether a text equals the token."""
        return _equal(given, self.token)

    def cookie_header(self) -> str:
        """Return the value of the Set-Cookie header."""
        return f"{self.cookie_name}={self.cookie}; Path=/; HttpOnly; SameSite=Strict"


def _equal(given: str, ours: str) -> bool:
    return hmac.compare_digest(given.encode(), ours.encode())
