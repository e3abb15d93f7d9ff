"""The address and the identity of a sink's clients, in the driver and in its tasks.

Settings are keywords (`sasl_password=...`) or have the names of the source
(`**{"kafka.sasl.password": ...}`), so one dictionary is enough for both. Secrets are `Secret`
objects, so the pickles for tasks do not show them.
"""

import dataclasses
import secrets
from collections.abc import Mapping
from typing import Any

from ...client import ClusterView
from ...client.security.config import SecurityConfig, security_config
from ...client.settings import ADMIN, SECURITY_NAMES, hidden_secrets, read_settings
from ...client.view_source import open_view

PREFIX = "kafka."
KEYWORDS = frozenset(name.replace(".", "_") for name in SECURITY_NAMES)


def client_keywords(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as keywords, or raise ValueError for a setting in both forms."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        keyword = name.removeprefix(PREFIX).replace(".", "_")
        if keyword in found:
            raise ValueError(f"{keyword} is given twice")
        found[keyword] = value
    return hidden_secrets(found)


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterLogin:
    """A cluster by its bootstrap line, and its security settings, which may be pickled.

    nonce: distinguishes logins with a token function, since each task sees another function object.
    """

    bootstrap: str
    settings: tuple[tuple[str, Any], ...] = ()
    nonce: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))

    @classmethod
    def of(cls, bootstrap: str, settings: Mapping[str, Any]) -> "ClusterLogin":
        """Create a login from a client's settings, as keywords.

        Raises ValueError as `security` does.
        """
        login = cls(bootstrap, tuple((n, v) for n, v in settings.items() if n in KEYWORDS))
        login.security()
        return login

    def security(self) -> SecurityConfig | None:
        """Return the checked settings, or None for plain text, or raise ValueError."""
        return security_config(read_settings(ADMIN, None, dict(self.settings)))

    @property
    def key(self) -> tuple[Any, ...]:
        """Return the key of this login's connections. Logins with equal keys may share them."""
        config = self.security()
        if config is None or config.sasl is None or config.sasl.tokens is None:
            return self.bootstrap, config
        if config.sasl.tokens.provider is None:
            return self.bootstrap, config
        return self.bootstrap, self.nonce

    def open_view(self, client_id: str) -> ClusterView:
        """Open a ClusterView (connections and metadata), which the caller closes."""
        given = {"bootstrap_servers": self.bootstrap, "client_id": client_id}
        return open_view(None, read_settings(ADMIN, None, given | dict(self.settings)))[0]
