"""How a partition leader asks whether a producer's transaction includes its partition (KIP-890).

One for each broker. Questions to the same coordinator travel together; of one transactional id
only one question is under way: a newer epoch ends an older one's question with
INVALID_PRODUCER_EPOCH, the same epoch supersedes its own with NETWORK_EXCEPTION, which the asker
may repeat. Where this node is the coordinator nothing travels.
"""

from collections.abc import Sequence


class TransactionVerifier:
    """Asks the transaction coordinator, wherever that is."""

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[tuple[str, int]],
        *,
        adds: bool,
    ) -> list[int]:
        """An ErrorCode number for each partition, in order; never raises for the network.

        adds: the partitions are added if they are not there (Produce v12, TxnOffsetCommit v5).
        NONE: it is in the ongoing transaction. TRANSACTION_ABORTABLE: it is not (`adds` False).
        PRODUCER_FENCED, INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS: as the coordinator
        says. NETWORK_EXCEPTION, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
        COORDINATOR_LOAD_IN_PROGRESS: ask again. What a client is told is the caller's concern.
        """
        raise NotImplementedError
