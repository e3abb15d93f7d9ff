"""The settings of a proxy in front of a cluster, with a certificate for TLS."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from cyclopts import Parameter

from ...deploy.cluster import layout
from ...deploy.cluster.failure import Failure
from ..common import ClusterOptions

if TYPE_CHECKING:
    from ...deploy.faults.protocol_proxy.two_ends import ProxyTls

CaFile = Annotated[
    Path | None,
    Parameter(
        name="--ca-file",
        help="Write the proxy's CA certificate to this file for clients. It is needed if "
        "the cluster uses TLS.",
    ),
]


class Proxied(NamedTuple):
    """The settings of a proxy.

    config: the settings with which the proxy connects to the cluster. tls: the certificates of the
    proxy's listeners, or None without TLS. lines: further settings for clients, beside the address.
    """

    config: dict[str, Any]
    tls: "ProxyTls | None"
    lines: list[str]


def proxied(cluster: ClusterOptions, ca_file: Path | None) -> Proxied:
    """Return the settings of a proxy that speaks the security protocol of the cluster.

    Raises Failure if --ca-file is missing for a cluster with TLS that `oncelog up` did not start.
    """
    config = cluster.client_config()
    if not str(config.get("security.protocol", "PLAINTEXT")).upper().endswith("SSL"):
        return Proxied(config, None, [])
    from ...deploy.faults.protocol_proxy.secured_ends import ca_of, own_tls, proxy_tls

    data = cluster.data.resolve()
    known = layout.read(data)
    ours = "" if known is None or not known.is_secured else known.bootstrap
    if ours == config["bootstrap.servers"]:
        return Proxied(config, proxy_tls(data), [f"ssl.ca.location={ca_of(data)}"])
    if ca_file is None:
        raise Failure(
            "The cluster speaks TLS, so the proxy needs a certificate of its own. Say where its CA "
            "is to be written: --ca-file FILE",
            exit_code=2,
        )
    with cluster.as_failures():
        return Proxied(config, own_tls(config, ca_file), [f"ssl.ca.location={ca_file.resolve()}"])
