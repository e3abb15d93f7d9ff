"""Creation of a blocking admin client with short request timeouts, for command-line programs."""

from collections.abc import Mapping
from typing import Any

from ...client.blocking import BlockingAdmin


def blocking_admin(source: str | Mapping[str, Any], *, timeout_ms: int = 15_000) -> BlockingAdmin:
    """Return an admin client that retries at another broker if a broker is silent for 2 s.

    timeout_ms: the time limit of each call. Raises ValueError if `source` has no address.
    """
    config = {"bootstrap.servers": source} if isinstance(source, str) else source
    return BlockingAdmin(
        {"request.timeout.ms": min(2_000, timeout_ms), **config}, timeout_ms=timeout_ms
    )
