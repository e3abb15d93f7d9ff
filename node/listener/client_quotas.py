"""Client quotas of one broker (KIP-13, KIP-124, KIP-219).

The broker records the bytes that a client sends or receives, and the time of its requests. Above a
quota the answer has a throttle time, and the connection is muted for that time. Each broker counts
independently. While no quota of a kind is set, nothing of that kind is recorded.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from ...coordinator.metadata.cluster_model import Changes
from ...coordinator.metadata.cluster_state import ClusterState
from ...coordinator.quotas.quota_table import (
    CONSUMER_BYTE_RATE,
    NAME_BYTES_MAX,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientLimit,
    QuotaEntity,
)
from ...coordinator.quotas.rate import THROTTLE_MS_MAX, QuotaRate
from ...coordinator.security.principal import Principal
from .muting import Mute, MutedConnection

CLIENT_ID_MAX = NAME_BYTES_MAX + 1  # longer client ids are cut, since no quota has such a name
RATES_MAX = 10_000  # above this limit the rate of the client that was idle for longest is dropped
FETCH_BYTES_MAX = 2**31 - 1


class ThrottledClient(MutedConnection, Protocol):
    """A connection with its user, its client id, and its mute."""

    principal: Principal
    client_id: str | None
    is_closed: bool
    mute: Mute | None


class ClientQuotas:
    """The client quotas of one broker.

    `counts_produced`, `counts_fetched` and `counts_requests` show whether a quota for produced
    bytes, fetched bytes or request time is set. `clock_s` is the clock that measures requests.
    """

    def __init__(
        self,
        state: ClusterState,
        *,
        samples: int,
        window_ms: int,
        now_ms: Callable[[], int],
        clock_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._state, self._now_ms, self.clock_s = state, now_ms, clock_s
        self._samples, self._window_ms = samples, window_ms
        self._rates: OrderedDict[tuple[str, QuotaEntity], QuotaRate] = OrderedDict()
        self.counts_produced = self.counts_fetched = self.counts_requests = False
        self._look(Changes())
        state.on_change(self._look)

    def produced(self, connection: ThrottledClient, client_id: str | None, size_bytes: int) -> int:
        """Record produced bytes, and return the throttle time in milliseconds."""
        return self._record(PRODUCER_BYTE_RATE, connection, client_id, size_bytes)

    def fetched(self, connection: ThrottledClient, client_id: str | None, size_bytes: int) -> int:
        """Record fetched bytes, and return the throttle time in milliseconds."""
        return self._record(CONSUMER_BYTE_RATE, connection, client_id, size_bytes)

    def requested(self, connection: ThrottledClient, client_id: str | None, seconds: float) -> int:
        """Record the time of a request.

        Returns the throttle time, which is at most one window.
        """
        percent = seconds * 100
        return self._record(REQUEST_PERCENTAGE, connection, client_id, percent, self._window_ms)

    def fetch_bytes_max(self, connection: ThrottledClient) -> int:
        """Return the largest Fetch answer for a client, by its consumer_byte_rate quota.

        The limit is the number of bytes that the quota allows in all quota windows but one, as in
        Kafka.
        """
        limit = self._limit(CONSUMER_BYTE_RATE, connection, connection.client_id)
        if limit is None:
            return FETCH_BYTES_MAX
        return int(limit.rate * (self._samples - 1) * self._window_ms / 1000)

    def _record(
        self,
        key: str,
        connection: ThrottledClient,
        client_id: str | None,
        value: float,
        throttle_ms_max: int = THROTTLE_MS_MAX,
    ) -> int:
        limit = self._limit(key, connection, client_id)
        if limit is None:
            return 0
        now_ms = self._now_ms()
        rate = self._rate(key, limit.shared_by)
        throttle_ms = min(throttle_ms_max, rate.record(value, limit.rate, now_ms))
        if throttle_ms > 0 and not connection.is_closed:
            if connection.mute is None:
                connection.mute = Mute(connection)
            connection.mute.begin(throttle_ms)
        return throttle_ms

    def _limit(
        self, key: str, connection: ThrottledClient, client_id: str | None
    ) -> ClientLimit | None:
        name = (client_id or "")[:CLIENT_ID_MAX]
        return self._state.quotas.limit(key, connection.principal.name, name)

    def _rate(self, key: str, shared_by: QuotaEntity) -> QuotaRate:
        """Return the measured rate of the user, client id or both that share a quota.

        A missing rate is created. Above RATES_MAX rates, it replaces the least recently used one.
        """
        name = (key, shared_by)
        rate = self._rates.get(name)
        if rate is not None:
            self._rates.move_to_end(name)
            return rate
        if len(self._rates) >= RATES_MAX:
            self._rates.popitem(last=False)
        rate = self._rates[name] = QuotaRate(samples=self._samples, window_ms=self._window_ms)
        return rate

    def _look(self, _: Changes) -> None:
        quotas = self._state.quotas
        self.counts_produced = quotas.has(PRODUCER_BYTE_RATE)
        self.counts_fetched = quotas.has(CONSUMER_BYTE_RATE)
        self.counts_requests = quotas.has(REQUEST_PERCENTAGE)
