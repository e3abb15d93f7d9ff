"""From what a caller gives (a view, a bootstrap line, a configuration) to a view of the cluster."""

from collections.abc import Iterable, Mapping
from typing import Any

from .cluster_view import ClusterView

Source = ClusterView | str | Iterable[str] | Mapping[str, Any]


def split_source(source: Source | None, keywords: dict[str, Any]) -> dict[str, Any]:
    """The dotted configuration in `source`; a bootstrap line goes to the keywords."""
    if isinstance(source, Mapping):
        return dict(source)
    if source is not None and not isinstance(source, ClusterView):
        keywords["bootstrap_servers"] = source
    return {}


def open_view(source: Source | None, settings: Any) -> tuple[ClusterView, bool]:
    """The view, and whether it is ours to close. Raises ValueError without any address."""
    if isinstance(source, ClusterView):
        return source, False
    if not settings.bootstrap_servers:
        raise ValueError("bootstrap.servers is missing; it looks like host:port,host:port")
    view = ClusterView(
        settings.bootstrap_servers,
        client_id=settings.client_id,
        timeout_ms=min(settings.request_timeout_ms, 10_000),
    )
    return view, True
