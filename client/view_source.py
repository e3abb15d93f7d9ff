"""From what a caller gives (a view, a bootstrap line, a configuration) to a view of the cluster."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from .cluster_view import ClusterView
from .security.config import security_config
from .settings import ADMIN, read_settings

Source = ClusterView | str | Iterable[str] | Mapping[str, Any]


def split_source(source: Source | None, keywords: dict[str, Any]) -> dict[str, Any]:
    """The dotted configuration in `source`; a bootstrap line goes to the keywords."""
    if isinstance(source, Mapping):
        return dict(cast(Mapping[str, Any], source))
    if source is not None and not isinstance(source, ClusterView):
        keywords["bootstrap_servers"] = source
    return {}


def open_view(source: Source | None, settings: Any) -> tuple[ClusterView, bool]:
    """The view, and whether it is ours to close. Raises ValueError without any address."""
    if isinstance(source, ClusterView):
        return source, False
    if not settings.bootstrap_servers:
        raise ValueError("bootstrap.servers is missing; it looks like host:port,host:port")
    security = None
    if (config := security_config(settings)) is not None:
        from .security.session import Security  # with its HTTP and TLS, only where they are used

        security = Security(config)
    view = ClusterView(
        settings.bootstrap_servers,
        client_id=settings.client_id,
        timeout_ms=min(settings.request_timeout_ms, 10_000),
        security=security,
    )
    return view, True


def view_of(source: Source) -> ClusterView:
    """A view by a configuration or a bootstrap line, which the caller closes; a view as it is.

    Raises ValueError for a name or a value that would not be honoured.
    """
    keywords: dict[str, Any] = {}
    return open_view(source, read_settings(ADMIN, split_source(source, keywords), keywords))[0]
