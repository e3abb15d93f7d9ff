"""One batch of a Produce request to be appended.

A request is traversed once. For each batch its header is decoded, its replica looked up and its
entry in the answer created. The next steps use these: verification of the transaction
(`verification`), checks of the records (`record_checks`), the append and the wait for replicas
(`operation`).
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
    """The code and message of an error. Unlike an exception it keeps no stack frame in memory."""

    number: int
    message: str
    record_errors: Sequence[tuple[int, str | None]]

    @classmethod
    def of(cls, error: KafkaError) -> "RecordError":
        return cls(error.number, str(error), error.record_errors)


@dataclass(slots=True, eq=False, repr=False)
class LeaderAppend:
    """A batch with its replica, its answer, and the result of its record check.

    partition: None if it is not hosted here, or for a denied batch. header: None if the bytes do
    not begin with a header, which the append refuses. records: None if the request has none, and
    during the wait for replicas, because the next request reuses the memory. record_check: the
    level of the completed check, a RecordCheck or NOT_CHECKED. is_denied: True if the client may
    not write to the topic.
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
        """Set `partition` to the hosted replica, or None.

        Call it again after each wait, since a new topic may have the same name.
        """
        if self.is_denied:
            return
        if self.topic_id is None:
            self.partition = replicas.get(self.topic_name or "", self.index)
        else:
            self.partition = replicas.get_by_id((self.topic_id, self.index))

    @property
    def topic_key(self) -> str | bytes | None:
        """The topic's name or id in the request."""
        return self.topic_id or self.topic_name

    def confirm(self, header: BatchHeader, config: LogConfig, clock: Clock) -> BatchHeader:
        """Return the header of a valid batch, after it was corrected in the batch itself.

        The maximum timestamp is taken from the records, as in Kafka, because retention and the time
        index use it later. Raises the error of the record check, TimestampOutOfRange for the
        earliest record, or NotLeaderOrFollower if the topic now requires a higher check.
        """
        if self.record_check < config.record_check:
            raise NotLeaderOrFollower(
                f"{self.partition} has changed since the records of this batch were checked"
            )
        if self.record_error is not None:
            error = error_for(self.record_error.number, self.record_error.message)
            error.record_errors = self.record_error.record_errors
            raise error
        if self.walked is None or config.uses_append_time:
            return header
        earliest, latest, _ = self.walked
        if earliest != latest:  # the log checks the latest timestamp
            check_timestamp(earliest, config, clock.wall_ms())
        if latest != header.max_timestamp or header.attributes & APPEND_TIME_BIT:
            assert isinstance(self.records, memoryview)
            restamp_max_timestamp(self.records, 0, latest)
            self.header = header = decode_header(self.records)
        return header
