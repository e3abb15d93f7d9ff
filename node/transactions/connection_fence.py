"""The newest connection of each producer (the partition's half of a fence; KAFKA-17754).

Transactions of a client without KIP-890 share one producer id and epoch, so a delayed request
does not show its transaction. But one connection delivers in order: a late request comes on an
older connection than the requests that overtook it. Connections have rising numbers. A
transactional produce on a connection older than the newest one that produced with the same
producer id and epoch is not executed, and its connection is closed; every client retries after
that. Clients with KIP-890 (Produce 12 and later) need no such fence, and are not checked.

The number of producers is bounded; those silent for longest are dropped first.
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
    """The newest connection of each producer of one broker. Times are monotonic ms."""

    __slots__ = ("_newest", "_producers_max", "refused_count")

    def __init__(self, *, producers_max: int = PRODUCERS_MAX) -> None:
        self._newest: OrderedDict[int, _Newest] = OrderedDict()
        self._producers_max = producers_max
        self.refused_count = 0

    def __len__(self) -> int:
        """Return the number of known producers."""
        return len(self._newest)

    def admits(self, producer_id: int, epoch: int, connection_id: int, now_ms: int) -> bool:
        """Return whether a produce may be executed; store the newest connection.

        An older epoch is admitted: the partition's own fence refuses it.
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
