"""The client's administration with the timeouts of our programs."""

from collections.abc import Mapping
from typing import Any

from ...client.blocking import BlockingAdmin


def blocking_admin(source: str | Mapping[str, Any], *, timeout_ms: int = 15_000) -> BlockingAdmin:
    """Return an admin that soon leaves a silent broker for another broker.

    Raises ValueError without an address.
    """
    config = {"bootstrap.servers": source} if isinstance(source, str) else source
    return BlockingAdmin(
        {"request.timeout.ms": min(2_000, timeout_ms), **config}, timeout_ms=timeout_ms
    )
