"""The rate of new connections of a listener, of an address, and of the whole broker (KIP-612).

When the rate is exceeded, Kafka leaves new connections in the kernel. This broker accepts them,
counts them, and reads them later. A connection that would wait for too long is closed immediately,
so that excess connections exclude other clients only for seconds. The rates of single addresses
are client quotas. The time is an argument, for tests.
"""

from collections import OrderedDict

from ...coordinator.metadata.cluster_state import ClusterState
from ...coordinator.quotas.quota_table import CONNECTION_CREATION_RATE
from ..config.listeners import plain_address

WAIT_MAX_MS = 10_000
RATES_MAX = 10_000  # above this limit the rate of the address that was idle for longest is dropped


class CreationRate:
    """A limit of `rate` connections a second, with a short burst.

    Connections may arrive up to `burst_ms` earlier than at an even rate. Any other connection
    waits.
    """

    def __init__(self, rate: float, burst_ms: float) -> None:
        self.rate = rate
        self._interval_ms, self._burst_ms = 1000 / rate, burst_ms
        self._due_ms = 0.0  # the time of the next connection at an even rate

    def wait_ms(self, now_ms: float) -> float:
        """Return how long a connection that is accepted now must wait."""
        return max(0.0, self._due_ms - self._burst_ms - now_ms)

    def note(self, now_ms: float) -> None:
        """Count a connection that was accepted."""
        self._due_ms = max(self._due_ms, now_ms) + self._interval_ms


def wait_ms(rates: "list[CreationRate]", now_ms: float) -> float | None:
    """Return a connection's wait by all these rates, or None if the connection must be closed."""
    longest_ms = max((rate.wait_ms(now_ms) for rate in rates), default=0.0)
    return None if longest_ms > WAIT_MAX_MS else longest_ms


class AddressRates:
    """The rates of new connections by address, for addresses with a quota (KIP-612).

    Kafka closes a connection above its quota after a pause. This broker lets it wait, as a
    connection above max.connection.creation.rate.
    """

    def __init__(self, state: ClusterState, burst_ms: float) -> None:
        self._state, self._burst_ms = state, burst_ms
        self._rates: OrderedDict[str, CreationRate] = OrderedDict()

    def of(self, host: str) -> list[CreationRate]:
        """Return the rate of an address as a list, which is empty without a quota."""
        quotas = self._state.quotas
        if not quotas.has(CONNECTION_CREATION_RATE):
            self._rates.clear()
            return []
        address = plain_address(host) or host
        quota, known = quotas.connection_rate(address), self._rates.pop(address, None)
        if quota is None:
            return []
        if known is None or known.rate != quota:
            known = CreationRate(quota, self._burst_ms)
        if len(self._rates) >= RATES_MAX:
            self._rates.popitem(last=False)
        self._rates[address] = known
        return [known]
