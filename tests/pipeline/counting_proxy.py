"""A way to a broker that counts what goes through it: connections, and requests by API."""

import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator

from oncelog.wire.messages.apis import API_NAMES

from ..interop.inner_broker import InnerBroker


class CountingProxy:
    """Listens on loopback; use as a context manager. `target` may be told later."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.target: tuple[str, int] = ("127.0.0.1", 0)
        self._lock = threading.Lock()
        self._connections, self._requests = 0, Counter[str]()
        self._sockets: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> "CountingProxy":
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def take(self) -> tuple[int, dict[str, int]]:
        """Connections and requests since the last time."""
        with self._lock:
            found = self._connections, dict(sorted(self._requests.items()))
            self._connections, self._requests = 0, Counter()
        return found

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._connections += 1
            broker = socket.create_connection(self.target)
            for each in (client, broker):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets += [client, broker]
            for source, sink, is_counted in ((client, broker, True), (broker, client, False)):
                pump = threading.Thread(
                    target=self._pump, args=(source, sink, is_counted), daemon=True
                )
                self._threads.append(pump)
                pump.start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_counted: bool) -> None:
        kept = b""
        try:
            while data := source.recv(65536):
                if is_counted:
                    kept = self._count(kept + data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def _count(self, data: bytes) -> bytes:
        """Count whole requests; what is left of the last."""
        while len(data) >= 4:
            (size_bytes,) = struct.unpack_from(">i", data)
            if len(data) < 4 + size_bytes:
                break
            (api_key,) = struct.unpack_from(">h", data, 4)
            with self._lock:
                self._requests[API_NAMES.get(api_key, str(api_key))] += 1
            data = data[4 + size_bytes :]
        return data


@contextlib.contextmanager
def counted_broker() -> Iterator[CountingProxy]:
    """A broker whose clients are all told to go through the proxy."""
    with CountingProxy() as proxy:
        broker = InnerBroker(advertised_listeners=f"PLAINTEXT://{proxy.address}")
        proxy.target = broker.address
        with broker:
            yield proxy
