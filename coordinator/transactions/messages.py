"""What brokers say to one another about transactions, over the control link.

VERIFY_TRANSACTION          a partition leader asks the coordinator whether a partition belongs to
                            an ongoing transaction, or (V2) has it added (KIP-890)
WRITE_TRANSACTION_MARKERS   the coordinator has leaders of partitions end transactions there
DESCRIBE_TRANSACTION        a partition leader wonders about a transaction that has been open for
                            long; the answer is the coordinator's TransactionDescription

All are repeated until they are answered, and all may be repeated without harm.
"""

from dataclasses import dataclass

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class VerifyTransaction:
    """`adds`: the partitions are added if they are not there (Produce v12, TxnOffsetCommit v5)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    adds: bool = False


@dataclass(frozen=True, slots=True)
class VerifyTransactionReply:
    """`error` concerns all partitions; else `errors` has one ErrorCode number for each."""

    error: int = 0
    errors: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeTransaction:
    """What does the coordinator know of this transactional id?"""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class TransactionMarker:
    """The end of one producer's transaction in some partitions that one broker leads.

    `transaction_version` 2: the epoch was raised with the end (KIP-890, KIP-1228).
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int = 0


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Markers of any number of transactions for one broker."""

    markers: tuple[TransactionMarker, ...]


@dataclass(frozen=True, slots=True)
class WriteMarkersReply:
    """For each marker, in order, an ErrorCode number for each of its partitions, in order."""

    errors: tuple[tuple[int, ...], ...]
