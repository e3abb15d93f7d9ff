"""One batch of a Produce request on its way into its partition's log.

A request is walked once: each batch gets its header decoded, its replica looked up and its place
in the answer. What follows goes over these: whose transaction it is (`verification`), what its
records say (`record_checks`), the append, the wait for replicas (`operation`).
"""

from collections.abc import Sequence
from typing import NamedTuple

from ....wire.errors import CorruptMessage, KafkaError, NotLeaderOrFollower, error_for
from ....wire.messages.produce import ProducedPartition, ProducePartition, ProduceTopic
from ....wire.record_batch import BatchHeader, Buffer, decode_header
from ...partitions.hosted_partition import HostedPartition
from ...partitions.replica_manager import ReplicaManager


class RecordError(NamedTuple):
    """What an error said; an error that is kept would keep the frames it was raised in."""

    number: int
    message: str
    record_errors: Sequence[tuple[int, str | None]]

    @classmethod
    def of(cls, error: KafkaError) -> "RecordError":
        return cls(error.number, str(error), error.record_errors)


class LeaderAppend:
    """A batch, its replica (None: not hosted here), its answer, what its records were found to be.

    header: None where the bytes do not begin with one; the append refuses them. records: None while
    replicas are waited for: the memory of the frame serves the next one by then.
    """

    __slots__ = (
        "answer",
        "header",
        "index",
        "partition",
        "record_error",
        "records",
        "records_checked",
        "topic_id",
        "topic_name",
    )

    def __init__(self, topic: ProduceTopic, wanted: ProducePartition) -> None:
        self.topic_name, self.topic_id = topic.name, topic.topic_id
        self.index = wanted.index
        self.records: Buffer | None = wanted.records
        self.answer = ProducedPartition(wanted.index)
        self.partition: HostedPartition | None = None
        self.records_checked = False
        self.record_error: RecordError | None = None
        self.header: BatchHeader | None
        try:
            self.header = decode_header(wanted.records or b"")
        except CorruptMessage:
            self.header = None

    def look_up(self, replicas: ReplicaManager) -> None:
        """Find the replica; again after a wait, since a topic may be another of the same name."""
        if self.topic_id is None:
            self.partition = replicas.get(self.topic_name or "", self.index)
        else:
            self.partition = replicas.get_by_id((self.topic_id, self.index))

    @property
    def topic_key(self) -> str | bytes | None:
        """The topic as the client named it."""
        return self.topic_id or self.topic_name

    def raise_record_error(self) -> None:
        """Raise what is wrong with the records."""
        if not self.records_checked:
            raise NotLeaderOrFollower(
                f"{self.partition} has changed since its records were looked at"
            )
        if self.record_error is not None:
            error = error_for(self.record_error.number, self.record_error.message)
            error.record_errors = self.record_error.record_errors
            raise error
