"""Opens the view of a cluster from a bootstrap list or a configuration."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from .cluster_view import ClusterView
from .security.config import security_config
from .settings import ADMIN, read_settings

Source = ClusterView | str | Iterable[str] | Mapping[str, Any]


def split_source(source: Source | None, keywords: dict[str, Any]) -> dict[str, Any]:
    """Return the settings in `source` by dotted name. A bootstrap list is put among `keywords`."""
    if isinstance(source, Mapping):
        return dict(cast(Mapping[str, Any], source))
    if source is not None and not isinstance(source, ClusterView):
        keywords["bootstrap_servers"] = source
    return {}


def open_view(source: Source | None, settings: Any) -> tuple[ClusterView, bool]:
    """Return a view, and whether this client must close it. Raises ValueError without addresses."""
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
    """Return the view of a source. The caller closes it unless the source was a view.

    Raises ValueError for an unknown name or an invalid value.
    """
    keywords: dict[str, Any] = {}
    return open_view(source, read_settings(ADMIN, split_source(source, keywords), keywords))[0]
