"""A proxy to a broker that counts connections, and requests by API."""

import contextlib
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator

from oncelog.wire.messages.apis import API_NAMES

from ..interop.inner_broker import InnerBroker
from ..loopback_proxy import LoopbackProxy


class CountingProxy(LoopbackProxy):
    """A proxy that counts connections, and requests by API, used as a context manager."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections, self._requests = 0, Counter[str]()
        super().__init__()

    @property
    def bootstrap(self) -> str:
        return "{}:{}".format(*self.address)

    def take(self) -> tuple[int, dict[str, int]]:
        """Return the number of connections, and of requests by API, since the last call."""
        with self._lock:
            found = self._connections, dict(sorted(self._requests.items()))
            self._connections, self._requests = 0, Counter()
        return found

    def forward(self) -> Callable[[bytes], object]:
        with self._lock:
            self._connections += 1
        kept = bytearray()

        def count(data: bytes) -> None:
            """Count the complete requests in the data, and keep the bytes of an incomplete one."""
            kept.extend(data)
            while len(kept) >= 4:
                (size_bytes,) = struct.unpack_from(">i", kept)
                if len(kept) < 4 + size_bytes:
                    break
                (api_key,) = struct.unpack_from(">h", kept, 4)
                with self._lock:
                    self._requests[API_NAMES.get(api_key, str(api_key))] += 1
                del kept[: 4 + size_bytes]

        return count


@contextlib.contextmanager
def counted_broker() -> Iterator[CountingProxy]:
    """Run a broker that advertises the proxy's address, and yield the proxy."""
    with CountingProxy() as proxy:
        broker = InnerBroker(advertised_listeners=f"PLAINTEXT://{proxy.bootstrap}")
        proxy.target = broker.address
        with broker:
            yield proxy
