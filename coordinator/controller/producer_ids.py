"""Producer ids for one broker, out of the blocks that the metadata group gives it.

A block is used by one process only and never twice, so an id is unique in the cluster for ever;
what is left of a block when the process ends is lost, as in Kafka (KIP-730).
"""

from collections import deque

PREFETCH_BELOW = 100  # of 1000: Kafka, too, asks for the next block when a tenth is left
BLOCKS_MAX = 4


class ProducerIdBlock:
    def __init__(self) -> None:
        self._blocks: deque[range] = deque()

    @property
    def remaining(self) -> int:
        """How many ids are in hand."""
        return sum(map(len, self._blocks))

    @property
    def wants_more(self) -> bool:
        """Time to ask for the next block, before the last id is gone."""
        return self.remaining < PREFETCH_BELOW

    def add(self, first_producer_id: int, count: int) -> None:
        """Take over a block. Beyond BLOCKS_MAX blocks it is dropped: ids are plenty."""
        if count > 0 and len(self._blocks) < BLOCKS_MAX:
            self._blocks.append(range(first_producer_id, first_producer_id + count))

    def take(self) -> int | None:
        """An id that nobody has had; None when a block must come first."""
        if not self._blocks:
            return None
        block = self._blocks.popleft()
        if len(block) > 1:
            self._blocks.appendleft(block[1:])
        return block[0]
