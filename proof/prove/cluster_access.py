"""The settings with which a run, its proxy and the application connect to the cluster."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ...client.security.client_file import read_client_file
from ...deploy.cluster.failure import Failure
from ...deploy.cluster.local_cluster import Cluster
from ...deploy.faults.protocol_proxy.secured_ends import (
    ca_of,
    own_tls,
    proxy_tls,
    write_files_like,
)
from ...deploy.faults.protocol_proxy.two_ends import ProxyTls
from ...deploy.faults.secured_user import SecuredUser
from .plan import named
from .strikes.security import USER

CA_FILE = "proxy-ca.pem"  # in the run's directory, for applications with settings of their own
ClientFiles = Callable[[Path, str, str], dict[str, Path]]


class ClusterAccess(NamedTuple):
    """The settings with which clients connect to the cluster and to the proxy.

    config: the settings of a client of the cluster. client_files: a function that writes files with
    the settings for a client of the proxy into a folder, given the client's name and the proxy's
    address, and returns their paths by kind. user: the application's, in a cluster of ours.
    """

    config: Mapping[str, Any]
    tls: ProxyTls | None = None
    client_files: ClientFiles | None = None
    user: SecuredUser | None = None


def to_ours(cluster: Cluster) -> ClusterAccess:
    """Return the access to the run's own cluster, where the application gets its own user."""
    config = cluster.client_config()
    if not cluster.file.is_secured:
        return ClusterAccess(config)
    user = SecuredUser.admit(cluster, USER)
    client_files = partial(write_files_like, user.client_values(cluster), ca_of(cluster.data))
    return ClusterAccess(config, proxy_tls(cluster.data), client_files, user)


def to_other(bootstrap: str, command_config: str | None, folder: Path) -> ClusterAccess:
    """Return the access to an existing cluster, with the settings of a client file."""
    if command_config is None:
        return ClusterAccess({"bootstrap.servers": bootstrap})
    ca_file = folder / CA_FILE
    try:
        found, _ = read_client_file(Path(command_config))
        config = {**found, "bootstrap.servers": bootstrap}
        has_tls = str(config.get("security.protocol", "")).upper().endswith("SSL")
        tls = own_tls(config, ca_file) if has_tls else None
    except ValueError as problem:
        raise Failure(str(problem), exit_code=2) from None
    return ClusterAccess(config, tls, partial(write_files_like, config, ca_file))


def require_tls(faults: str | None, access: ClusterAccess) -> None:
    """Raise Failure if one of the named faults needs TLS, and the cluster has none."""
    if access.tls is None and any(fault.needs_tls for fault in named(faults or "")):
        raise Failure("An expired certificate needs a cluster with TLS.", exit_code=2)
