"""The partitions and groups of one transaction, and the way in which it is ended.

The file does no I/O. In V1 a partition is added at the coordinator before a batch is sent to the
partition, one request at a time. In V2 (KIP-890) the first batch adds its partition itself, and
each end raises the epoch.

`is_uncertain` means that a request with an unknown outcome (a batch, an addition, an end) could
still take effect under this epoch. Under V2 the next epoch makes that request harmless. Under V1
all transactions share one epoch (KAFKA-14053, KAFKA-17754). Therefore an uncertain V1 transaction
is aborted by EndTxn, and then InitProducerId raises the epoch, as in Java's client. InitProducerId
alone would abort it, too, but Apache Kafka with transaction.version 1 then fences the producer.
After an uncertain commit under V1 the epoch is raised before the next transaction.
"""

from enum import Enum, auto

from ...wire.identifiers import TopicPartition


class Ending(Enum):
    """How a transaction is ended, such as by EndTxn."""

    NOTHING = auto()  # the coordinator does not know it
    END_TRANSACTION = auto()
    NEW_EPOCH = auto()  # EndTxn, and InitProducerId with the id and epoch fences late requests


class TransactionScope:
    """The partitions and groups of one transaction."""

    def __init__(self, *, is_v2: bool) -> None:
        self.is_v2 = is_v2
        self.is_uncertain = False
        self.has_begun = False  # the coordinator may know it
        self.prepared = False
        self.groups: set[str] = set()  # V1: the groups whose offsets were added
        self._added: set[TopicPartition] = set()
        self._unadded: set[TopicPartition] = set()
        self._asked: tuple[TopicPartition, ...] = ()

    def want(self, partition: TopicPartition) -> bool:
        """Note that a record for a partition will follow.

        Return True for the partition's first record.
        """
        if partition in self._added or partition in self._unadded or partition in self._asked:
            return False
        (self._added if self.is_v2 else self._unadded).add(partition)
        return True

    def may_leave(self, partition: TopicPartition) -> bool:
        """Return whether batches of this partition may be sent."""
        return partition in self._added

    @property
    def has_unadded(self) -> bool:
        """Whether an AddPartitionsToTxn is due."""
        return bool(self._unadded) and not self._asked

    def take_unadded(self) -> tuple[TopicPartition, ...]:
        """Return the partitions for the next AddPartitionsToTxn, and mark them as requested."""
        assert not self._asked, "one addition at a time"
        self._asked = tuple(sorted(self._unadded))
        self._unadded.clear()
        self.has_begun = True
        return self._asked

    def added(self) -> None:
        """Note that the coordinator has added the requested partitions."""
        self._added.update(self._asked)
        self._asked = ()

    def sent(self) -> None:
        """Note that a batch or offsets were sent, so the coordinator may know the transaction."""
        self.has_begun = True

    def ending(self, *, is_commit: bool, can_raise_epoch: bool = True) -> Ending:
        """Return how the transaction is ended.

        can_raise_epoch: the coordinator serves InitProducerId v3.
        """
        if not self.has_begun:
            return Ending.NOTHING
        if is_commit or self.is_v2 or not can_raise_epoch:
            return Ending.END_TRANSACTION
        return Ending.NEW_EPOCH if self.is_uncertain or self._asked else Ending.END_TRANSACTION
