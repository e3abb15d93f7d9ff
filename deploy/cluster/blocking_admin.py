"""Creation of a blocking admin client with short request timeouts, for command-line programs."""

from collections.abc import Callable, Mapping
from typing import Any

from ...client.blocking import BlockingAdmin
from .silence import tell_silence


def blocking_admin(
    source: str | Mapping[str, Any],
    *,
    timeout_ms: int = 15_000,
    say: Callable[[str], object] | None = None,
) -> BlockingAdmin:
    """Return an admin client that retries at another broker if a broker is silent for 2 s.

    timeout_ms: the time limit of each call. say: the function that gets a line if no broker answers
    the first call within 2 s. Raises ValueError if `source` has no address.
    """
    config = {"bootstrap.servers": source} if isinstance(source, str) else source
    admin = BlockingAdmin(
        {"request.timeout.ms": min(2_000, timeout_ms), **config}, timeout_ms=timeout_ms
    )
    if say is not None:
        tell_silence(admin._client, say)  # pyright: ignore[reportPrivateUsage]
    return admin
