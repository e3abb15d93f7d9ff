"""The answers of the transaction coordinator, as values."""

from dataclasses import dataclass

from ...wire.identifiers import Identity, TopicPartition

NO_IDENTITY: Identity = (-1, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdentityAnswer:
    """The answer to InitProducerId and EndTxn, with an error or the next producer id and epoch.

    The producer id and epoch are valid only without an error. ongoing: the prepared transaction
    that was kept (KIP-939).
    """

    error: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    ongoing: Identity = NO_IDENTITY


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """One transactional id for DescribeTransactions and ListTransactions.

    state: Kafka's name of the state. start_ms: wall-clock time, -1 without a transaction.
    partitions: while markers are written, those still without a marker.
    """

    transactional_id: str
    error: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    state: str = ""
    timeout_ms: int = -1
    start_ms: int = -1
    partitions: tuple[TopicPartition, ...] = ()
