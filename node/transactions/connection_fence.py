"""The newest connection of each producer, which fences late requests (KAFKA-17754).

This is the partition's side of the fence. Without KIP-890 all transactions of a client have the
same producer id and epoch, so a delayed request does not show its transaction. But one connection
delivers its requests in order. A late request therefore comes on an older connection than the
requests that overtook it. Connections have increasing numbers. A transactional produce or offset
commit is not executed if its connection is older than the newest one of the same producer id and
epoch that has sent a request of the same kind. Its
connection is closed, after which every client retries. Clients with KIP-890 (Produce 12 and later)
are not checked, since their epochs show late requests.

The number of producers is limited. Those that were silent for longest are dropped first.
"""

from collections import OrderedDict
from typing import NamedTuple

from ...runtime.steps import Steps

PRODUCERS_MAX = 100_000


class _Newest(NamedTuple):
    epoch: int
    connection_id: int
    seen_ms: int


class ProducerConnectionFence:
    """The newest connection of each producer of one broker, with times in monotonic ms."""

    __slots__ = ("_newest", "_producers_max", "refused_count")

    def __init__(self, *, producers_max: int = PRODUCERS_MAX) -> None:
        self._newest: OrderedDict[int, _Newest] = OrderedDict()
        self._producers_max = producers_max
        self.refused_count = 0

    def __len__(self) -> int:
        """Return the number of known producers."""
        return len(self._newest)

    def admits(self, producer_id: int, epoch: int, connection_id: int, now_ms: int) -> bool:
        """Return whether a request may be executed, and record the newest connection.

        An older epoch is admitted here, because the partition itself fences it.
        """
        known = self._newest.get(producer_id)
        if known is not None:
            if epoch < known.epoch:
                return True
            if epoch == known.epoch and connection_id < known.connection_id:
                self.refused_count += 1
                return False
        elif len(self._newest) >= self._producers_max:
            self._newest.popitem(last=False)
        self._newest[producer_id] = _Newest(epoch, connection_id, now_ms)
        self._newest.move_to_end(producer_id)
        return True

    def expiring(self, now_ms: int, expiration_ms: int) -> Steps[None]:
        """Drop the producers that have been silent for `expiration_ms`."""
        count = 0
        while self._newest:
            producer_id, newest = next(iter(self._newest.items()))
            if now_ms - newest.seen_ms < expiration_ms:
                return
            del self._newest[producer_id]
            count += 1
            if count % 512 == 0:
                yield
