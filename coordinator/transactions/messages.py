"""The messages between brokers about transactions, over the control link.

VERIFY_TRANSACTION          a partition leader asks the coordinator whether a partition belongs to
                            an ongoing transaction, or (V2) adds it (KIP-890)
WRITE_TRANSACTION_MARKERS   the coordinator makes leaders end transactions in partitions
DESCRIBE_TRANSACTION        a partition leader asks about a transaction that has been open for a
                            long time; the answer is the coordinator's TransactionDescription

All messages are repeated until they are answered. Repeated and late requests have no further
effect. A producer without KIP-890 keeps its epoch in all its transactions, so its markers do not
differ by epoch. Markers differ by their index in the Raft log of the shard. A marker has the index
at which the end was decided (`prepare_index`). The answer to a verification has an index at which
the transaction was ongoing (`ongoing_index`). A partition refuses a marker that was decided before
the partition's open transaction.

The partition's leader keeps that index in memory only. A marker also has the leader epoch for which
it is valid, and any other leadership refuses it. A late marker of transaction 1 was sent before
transaction 2 began, so the marker's leader epoch is not newer than the leader epoch in which
transaction 2 was opened in the partition. If that leadership is still current, it knows the index
at which transaction 2 was ongoing. Otherwise it has ended, together with all its requests. (If the
coordinator has changed in between, the coordinator epoch in the partition's log fences the marker.)
"""

from dataclasses import dataclass

from ...wire.identifiers import TopicPartition


@dataclass(frozen=True, slots=True)
class VerifyTransaction:
    """A partition leader's request to verify that partitions belong to a transaction.

    adds: missing partitions are added (Produce v12, TxnOffsetCommit v5).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    adds: bool = False


@dataclass(frozen=True, slots=True)
class VerifyTransactionReply:
    """The coordinator's answer. Without an `error`, `errors` has one entry for each partition.

    `ongoing_index`: an index of the shard's Raft log at which the transaction was ongoing. The
    index is 0 if partitions were added, because then the epochs of transactions differ.
    """

    error: int = 0
    errors: tuple[int, ...] = ()
    ongoing_index: int = 0


@dataclass(frozen=True, slots=True)
class DescribeTransaction:
    """A request for the coordinator's description of a transactional id."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class TransactionMarker:
    """The end of one producer's transaction in some partitions that one broker leads.

    `transaction_version` 2: the epoch was raised with the end (KIP-890, KIP-1228). `prepare_index`:
    the index in the Raft log of the coordinator's shard at which the end was decided, or 0 for a
    marker of an admin client. `leader_epochs`: the leader epochs for which the marker is valid, in
    the order of the partitions. If empty, the marker is valid for any leader epoch.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int = 0
    prepare_index: int = 0
    leader_epochs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Markers of any number of transactions for one broker."""

    markers: tuple[TransactionMarker, ...]


@dataclass(frozen=True, slots=True)
class WriteMarkersReply:
    """The answer, with an ErrorCode number for each partition of each marker, in order."""

    errors: tuple[tuple[int, ...], ...]
