"""`oncelog metrics` serves metrics of any Kafka for Prometheus."""

import asyncio
from importlib.util import find_spec
from typing import Annotated

from cyclopts import App, Parameter

from ...deploy.cluster.failure import Failure
from ...deploy.cluster.terminal import say, tell
from ..common import DEFAULT_CLUSTER, ClusterOptions
from .page import PORT_MAX, watched_cluster
from .until_signal import run_until_signal


def register(app: App) -> None:
    """Add the command of this file to `app`."""
    app.command(metrics)


def metrics(
    *,
    port: Annotated[
        int | None, Parameter(help="The port of the page. The default is a free port.")
    ] = None,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Serve metrics of a cluster, read by the Kafka protocol, in OpenMetrics format on this machine
    only.

    Metrics of Kafka itself have the names of its JMX exporter (docs/metrics.md). The first line of
    stdout is the address. Ctrl-C ends the command. A scrape sends no request to the brokers.
    """
    if port is not None and not 0 < port <= PORT_MAX:
        raise Failure(f"--port is 1 to {PORT_MAX}.", exit_code=2)
    if find_spec("prometheus_client") is None:
        raise Failure(
            "The figures need the extra metrics: pip install '.[metrics]' in a checkout.",
            exit_code=2,
        )
    run_until_signal(_serve(port, cluster))
    return 0


async def _serve(port: int | None, cluster: ClusterOptions) -> None:
    from ...ui.metrics_server import MetricsServer
    from ...ui.running import observing

    observer = observing(watched_cluster(cluster), has_doctor=False)
    observer.admin.view.on_silence = say
    try:
        server = MetricsServer(lambda: observer.facts, port)
        server.start()
        try:
            tell(server.url)
            say("Ctrl-C ends it")
            await asyncio.Event().wait()  # until a signal comes
        finally:
            server.close()
    finally:
        await observer.close()
