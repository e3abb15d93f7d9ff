"""One batch of a Produce request on its way into its partition's log.

A request is walked once: each batch gets its header decoded, its replica looked up and its place
in the answer. What follows goes over these: whose transaction it is (`verification`), what its
records say (`record_checks`), the append, the wait for replicas (`operation`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ....wire.errors import KafkaError, NotLeaderOrFollower, error_for
from ....wire.messages.produce import ProducedPartition
from ....wire.record_batch import BatchHeader, Buffer
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


@dataclass(slots=True, eq=False, repr=False)
class LeaderAppend:
    """A batch, its replica (None: not hosted here), its answer, what its records were found to be.

    header: None where the bytes do not begin with one; the append refuses them. records: None while
    replicas are waited for: the memory of the frame serves the next one by then.
    """

    topic_name: str | None
    topic_id: bytes | None
    index: int
    records: Buffer | None
    header: BatchHeader | None
    answer: ProducedPartition
    partition: HostedPartition | None = None
    records_checked: bool = False
    record_error: RecordError | None = None

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
