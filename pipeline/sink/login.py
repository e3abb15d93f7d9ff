"""Where a sink's clients connect, and as whom: in the driver and in its tasks.

Settings come as keywords (`sasl_password=...`) or by the names that the source takes
(`**{"kafka.sasl.password": ...}`), so that one dictionary does for both. Secrets are kept as
`Secret`: what is pickled for tasks shows none.
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
    """Settings as keywords. Raises ValueError for one that is given in both forms."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        keyword = name.removeprefix(PREFIX).replace(".", "_")
        if keyword in found:
            raise ValueError(f"{keyword} is given twice")
        found[keyword] = value
    return hidden_secrets(found)


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterLogin:
    """A cluster by its bootstrap line, and the settings of security; may be pickled.

    nonce: tells logins apart whose tokens come from a function, which no two tasks see as the same.
    """

    bootstrap: str
    settings: tuple[tuple[str, Any], ...] = ()
    nonce: str = dataclasses.field(default_factory=lambda: secrets.token_hex(8))

    @classmethod
    def of(cls, bootstrap: str, settings: Mapping[str, Any]) -> "ClusterLogin":
        """By all settings of a client, as keywords. Raises ValueError, as `security`."""
        login = cls(bootstrap, tuple((n, v) for n, v in settings.items() if n in KEYWORDS))
        login.security()
        return login

    def security(self) -> SecurityConfig | None:
        """Checked; None in plain text. Raises ValueError with a sentence."""
        return security_config(read_settings(ADMIN, None, dict(self.settings)))

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for logins that may share connections."""
        config = self.security()
        if config is None or config.sasl is None or config.sasl.tokens is None:
            return self.bootstrap, config
        if config.sasl.tokens.provider is None:
            return self.bootstrap, config
        return self.bootstrap, self.nonce

    def open_view(self, client_id: str) -> ClusterView:
        """The caller closes it."""
        given = {"bootstrap_servers": self.bootstrap, "client_id": client_id}
        return open_view(None, read_settings(ADMIN, None, given | dict(self.settings)))[0]
