"""The server of the metrics page `/metrics` of a cluster, on loopback.

A scrape reads the facts of the observer, in threads of the server, and sends no request to the
brokers.
"""

import time
from collections.abc import Callable, Iterable
from socket import SO_REUSEADDR, SOL_SOCKET
from socketserver import ThreadingMixIn
from threading import Thread
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from ..deploy.cluster.failure import Failure
from .facts import ClusterFacts
from .metrics import families

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

HOST, PATH = "127.0.0.1", "/metrics"


class _FactsCollector(Collector):
    """The Prometheus collector that creates the metric families at each scrape."""

    def __init__(self, known: Callable[[], ClusterFacts]) -> None:
        self._known = known

    def collect(self) -> Iterable[Metric]:
        return families(self._known(), time.time_ns() // 1_000_000)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Bind the socket without looking up the name of this host."""
        self.socket.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = HOST, self.server_address[1]
        self.setup_environ()


class _Quiet(WSGIRequestHandler):
    timeout = 10  # of a client that says nothing

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing about a scrape."""


class MetricsServer:
    """The HTTP server of the metrics page. It runs from `start` to `close`, in its own thread."""

    def __init__(self, known: Callable[[], ClusterFacts], port: int | None) -> None:
        """Listen on `port`, or on a free port if it is None. Raises Failure if it is in use.

        known: a function that returns the facts of the cluster.
        """
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_FactsCollector(known))
        self._app = make_wsgi_app(registry)
        try:
            self._server = make_server(HOST, port or 0, self._guarded, _Server, _Quiet)
        except (OSError, OverflowError) as problem:
            raise Failure(
                f"Port {port} of {HOST} cannot be used ({problem}): choose another --port.",
                exit_code=2,
            ) from None
        self.port: int = self._server.server_port
        self._thread = Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    @property
    def url(self) -> str:
        """Return the address of the metrics page."""
        return f"http://{HOST}:{self.port}{PATH}"

    def start(self) -> None:
        """Begin to answer requests, in a thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the server, and close its socket, without waiting for requests in progress."""
        self._server.shutdown()
        self._server.server_close()

    def _guarded(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        """Answer a GET or HEAD request for the metrics page with the metrics.

        A Host header that does not name this server gets status 403, and any other request 404.
        """
        hosts = (f"{HOST}:{self.port}", f"localhost:{self.port}")
        if environ.get("HTTP_HOST", "").lower() not in hosts:
            return _refusal(start_response, "403 Forbidden")
        if environ.get("PATH_INFO") != PATH or environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            return _refusal(start_response, "404 Not Found")
        return self._app(environ, start_response)


def _refusal(start_response: Callable[..., Any], status: str) -> list[bytes]:
    start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [f"{status}: the page is at {PATH}\n".encode()]
