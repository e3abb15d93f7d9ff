"""The rates of new connections from single addresses (KIP-612), which are client quotas.

Kafka closes a connection above its quota after a pause. This broker lets it wait, as a connection
above max.connection.creation.rate.
"""

from collections import OrderedDict

from ...coordinator.metadata.cluster_state import ClusterState
from ...coordinator.quotas.quota_table import CONNECTION_CREATION_RATE
from ..config.listeners import plain_address
from .creation_rate import CreationRate

RATES_MAX = 10_000  # above this limit the rate of the address that was idle for longest is dropped


class AddressRates:
    """The rates of new connections by address, for addresses with a quota (KIP-612)."""

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
