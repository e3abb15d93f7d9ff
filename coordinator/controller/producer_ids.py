"""Producer ids for one broker, from the blocks that the controller allocates to it.

A block is used by one process only, so an id is unique in the cluster forever. The rest of a block
is lost when the process ends, as in Kafka (KIP-730).
"""

from collections import deque

PREFETCH_BELOW = 100  # of 1000 ids; Kafka, too, requests the next block when a tenth is left
BLOCKS_MAX = 4


class ProducerIdBlock:
    def __init__(self) -> None:
        self._blocks: deque[range] = deque()

    @property
    def remaining(self) -> int:
        """Return the number of unused ids."""
        return sum(map(len, self._blocks))

    @property
    def wants_more(self) -> bool:
        """Return whether so few ids are left that the next block should be requested now."""
        return self.remaining < PREFETCH_BELOW

    def add(self, first_producer_id: int, count: int) -> None:
        """Add a block of ids. Drop the block if BLOCKS_MAX blocks are stored already."""
        if count > 0 and len(self._blocks) < BLOCKS_MAX:
            self._blocks.append(range(first_producer_id, first_producer_id + count))

    def take(self) -> int | None:
        """Return an unused id, or None if another block is needed."""
        if not self._blocks:
            return None
        block = self._blocks.popleft()
        if len(block) > 1:
            self._blocks.appendleft(block[1:])
        return block[0]
