"""The proxy's listener that remembers logins, and the requests that brokers refused.

The proxy's loop calls it, and other threads read it.
"""

import threading
from collections import defaultdict, deque

from ....deploy.faults.protocol_proxy.events import Answer, ConnectionClosed, Event, Request
from ....wire.error_codes import ErrorCode
from ....wire.errors import KafkaError

APIS = frozenset(("SaslAuthenticate", "Produce", "AddPartitionsToTxn"))
KEPT = 1_000  # times, of each instance and error


class Refusals:
    """Remembers which connections have logged in, and when brokers refused requests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logged_in = set[int]()  # numbers of connections
        self._times = defaultdict[tuple[str, int], deque[float]](lambda: deque(maxlen=KEPT))

    def __call__(self, event: Event) -> None:
        if isinstance(event, ConnectionClosed):
            with self._lock:
                self._logged_in.discard(event.connection.id)
        elif isinstance(event, Answer) and event.is_from_broker and event.request.api in APIS:
            try:
                error = event.error_code
            except (KafkaError, ValueError):  # malformed, so nothing is known
                return
            with self._lock:
                if error:
                    self._times[event.request.instance, error].append(event.at_s)
                elif event.request.api == "SaslAuthenticate":
                    self._logged_in.add(event.request.connection.id)

    def is_reauthentication(self, request: Request) -> bool:
        """Return whether a SaslHandshake was sent on a connection that has logged in before."""
        with self._lock:
            return request.connection.id in self._logged_in

    def since(self, instance: str, error: ErrorCode, at_s: float) -> int:
        """Return how many requests of an instance were refused with this error since a time."""
        with self._lock:
            times_s = self._times.get((instance, int(error)), ())
            return sum(refused_s > at_s for refused_s in times_s)

    def refused_since(self, at_s: float) -> set[str]:
        """Return the instances with refused requests since a time."""
        with self._lock:
            times = self._times.items()
            return {name for (name, _), times_s in times if times_s[-1] > at_s}
