"""One batch of a Produce request on its way into its partition's log.

A request is walked once: each batch gets its header decoded, its replica looked up and its place
in the answer. What follows goes over these: whose transaction it is (`verification`), what its
records say (`record_checks`), the append, the wait for replicas (`operation`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ....storage.batch_checks import check_timestamp
from ....storage.log_config import LogConfig
from ....wire.errors import KafkaError, NotLeaderOrFollower, error_for
from ....wire.messages.produce import ProducedPartition
from ....wire.record_batch import (
    APPEND_TIME_BIT,
    BatchHeader,
    Buffer,
    decode_header,
    restamp_max_timestamp,
)
from ....wire.record_walk import WalkedRecords
from ...clock import Clock
from ...partitions.hosted_partition import HostedPartition
from ...partitions.replica_manager import ReplicaManager

NOT_CHECKED = -1


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
    replicas are waited for: the memory of the frame serves the next one by then. record_check: how
    far the records were looked into, a RecordCheck or NOT_CHECKED; with what came out of it.
    is_denied: the client may not write to the topic.
    """

    topic_name: str | None
    topic_id: bytes | None
    index: int
    records: Buffer | None
    header: BatchHeader | None
    answer: ProducedPartition
    partition: HostedPartition | None = None
    record_check: int = NOT_CHECKED
    record_error: RecordError | None = None
    walked: WalkedRecords | None = None
    is_denied: bool = False

    def look_up(self, replicas: ReplicaManager) -> None:
        """Find the replica; again after a wait, since a topic may be another of the same name."""
        if self.is_denied:
            return
        if self.topic_id is None:
            self.partition = replicas.get(self.topic_name or "", self.index)
        else:
            self.partition = replicas.get_by_id((self.topic_id, self.index))

    @property
    def topic_key(self) -> str | bytes | None:
        """The topic as the client named it."""
        return self.topic_id or self.topic_name

    def confirm(self, header: BatchHeader, config: LogConfig, clock: Clock) -> BatchHeader:
        """Return the header of a sound batch, mended where its records say something else.

        The maximum timestamp is the records', as in Kafka; who reads it (retention, the time index)
        comes later. Raises what is wrong with the records.
        """
        if self.record_check < config.record_check:
            raise NotLeaderOrFollower(
                f"{self.partition} has changed since its records were looked at"
            )
        if self.record_error is not None:
            error = error_for(self.record_error.number, self.record_error.message)
            error.record_errors = self.record_error.record_errors
            raise error
        if self.walked is None or config.uses_append_time:
            return header
        earliest, latest, _ = self.walked
        if earliest != latest:  # the latest is checked by the log
            check_timestamp(earliest, config, clock.wall_ms())
        if latest != header.max_timestamp or header.attributes & APPEND_TIME_BIT:
            assert isinstance(self.records, memoryview)
            restamp_max_timestamp(self.records, 0, latest)
            self.header = header = decode_header(self.records)
        return header
