"""The transaction coordinator's shell: all shards of one node, led or not."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from .messages import VerifyTransaction, VerifyTransactionReply


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdentity:
    """What InitProducerId and EndTxn answer: an ErrorCode number, and on NONE who to be next."""

    error: int = 0
    producer_id: int = -1
    producer_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """One transactional id for DescribeTransactions and ListTransactions.

    state: Kafka's name of it. start_ms: wall clock, -1 without a transaction.
    """

    transactional_id: str
    error: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    state: str = ""
    timeout_ms: int = -1
    start_ms: int = -1
    partitions: tuple[tuple[str, int], ...] = ()


class TransactionCoordinators:
    """Asked by handlers; each call is about a shard that this node should lead.

    A shard led elsewhere answers NOT_COORDINATOR, one that is not ready
    COORDINATOR_LOAD_IN_PROGRESS. connection_id: see RequestContext; None for internal callers.
    Raises StaleConnection where the connection must be closed instead of answered (KAFKA-17754).
    """

    def leader_of(self, transactional_id: str) -> int | None:
        """The node that coordinates this id now, for FindCoordinator; None while nobody does."""
        raise NotImplementedError

    async def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        *,
        expected: tuple[int, int] | None = None,
        enables_two_phase_commit: bool = False,
        keeps_prepared: bool = False,
        connection_id: int | None = None,
    ) -> ProducerIdentity:
        """KIP-98, 360, 588, 890, 939. expected: the producer's (producer id, epoch)."""
        raise NotImplementedError

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[tuple[str, int]],
        *,
        connection_id: int | None = None,
    ) -> int:
        """An ErrorCode number; NONE when all of them are in the transaction, durably."""
        raise NotImplementedError

    async def verify(self, request: VerifyTransaction) -> VerifyTransactionReply:
        """Whether partitions are in the transaction; with `adds` they are added (KIP-890)."""
        raise NotImplementedError

    async def end_transaction(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        raises_epoch: bool,
        connection_id: int | None = None,
        waited_ms: int = 0,
    ) -> ProducerIdentity:
        """The decision, durable when this returns NONE; markers follow.

        raises_epoch: EndTxn v5 (transaction.version 2); the answer carries the next identity.
        waited_ms: how long the request's bytes lay in the kernel.
        """
        raise NotImplementedError

    def describe(self, transactional_id: str) -> TransactionDescription:
        """TRANSACTIONAL_ID_NOT_FOUND, or a coordinator error, in `error`."""
        raise NotImplementedError

    def descriptions(self) -> Sequence[TransactionDescription]:
        """All transactional ids of the shards that this node leads."""
        raise NotImplementedError
