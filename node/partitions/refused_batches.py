"""Batches that were refused with a retriable error, and batches after them on their connection.

A producer sends several batches without waiting for answers. The first may be refused with a
retriable error, such as too few replicas in sync, or no leader yet. If the cause ends before the
second batch is handled, that batch follows a gap. Apache Kafka answers
OUT_OF_ORDER_SEQUENCE_NUMBER. If it does not know the producer it appends the second batch, after
which the first can never be appended. After such a gap librdkafka (2.16, "skipped sequence
numbers") uses a new producer epoch for all partitions. It then sends batches twice that a dead
broker had appended but not answered. So a batch after a refused one is refused with the same
error, until the first batch is sent again. The client then sends all of them again, in order.
"""

from typing import NamedTuple

from ...coordinator.metadata.topic_names import NAME_CHARS_MAX
from ...storage.producers.entry import SEQUENCE_MAX
from ...storage.producers.state import ProducerStateTable
from ...wire.errors import ErrorCode, KafkaError, error_for
from ...wire.record_batch import BatchHeader

HELD_MS = 30_000  # longer than batches are in flight; later a client may skip the refused batch
BATCHES_MAX = 10_000  # the limit for all connections, about 5 MB; the oldest is dropped
# The connection, the topic as in the request, the partition, and the producer id.
_Key = tuple[int, str | bytes | None, int, int]


class _Refused(NamedTuple):
    producer_epoch: int
    base_sequence: int
    error_code: int
    at_ms: int


class RefusedBatches:
    """The first refused batch of each connection, producer and partition."""

    def __init__(self) -> None:
        self._refused: dict[_Key, _Refused] = {}  # in the order of insertion

    def __len__(self) -> int:
        return len(self._refused)

    def note(
        self,
        connection_id: int,
        topic: str | bytes | None,
        index: int,
        batch: BatchHeader | None,
        error: KafkaError,
        now_ms: int,
    ) -> None:
        """Remember a batch that was refused with a retriable error.

        topic: the name or id in the request.
        """
        if error.code == ErrorCode.CORRUPT_MESSAGE or batch is None or batch.producer_id < 0:
            return
        if topic is None or len(topic) > NAME_CHARS_MAX:
            return  # the topic name is invalid
        self._expire(now_ms)
        key = connection_id, topic, index, batch.producer_id
        before = self._refused.get(key)
        if before is not None and _is_behind(before, batch):
            return
        self._refused.pop(key, None)
        self._refused[key] = _Refused(
            batch.producer_epoch, batch.base_sequence, error.number, now_ms
        )
        if len(self._refused) > BATCHES_MAX:
            del self._refused[next(iter(self._refused))]

    def check(
        self,
        connection_id: int,
        topic: str | bytes | None,
        index: int,
        batch: BatchHeader,
        producers: ProducerStateTable,
        now_ms: int,
    ) -> None:
        """Raise the error of an earlier refused batch of the connection that the log still lacks.

        The refused batch is forgotten once the log has it, or once `batch` does not come after it,
        for example if it is sent again.
        """
        self._expire(now_ms)
        key = connection_id, topic, index, batch.producer_id
        refused = self._refused.get(key)
        if refused is None:
            return
        if not _is_missing(refused, batch, producers):
            del self._refused[key]
            return
        raise error_for(
            refused.error_code,
            f"Producer {batch.producer_id} sent sequence {batch.base_sequence} after "
            f"{refused.base_sequence}, which was refused and is to come again first",
        )

    def _expire(self, now_ms: int) -> None:
        while self._refused:
            oldest = next(iter(self._refused))
            if now_ms - self._refused[oldest].at_ms <= HELD_MS:
                return
            del self._refused[oldest]


def _is_missing(refused: _Refused, batch: BatchHeader, producers: ProducerStateTable) -> bool:
    """Return whether the log still lacks the refused batch, which was sent before this batch."""
    if not _is_behind(refused, batch):
        return False
    entry = producers.entry(batch.producer_id)
    if entry is None or entry.epoch < refused.producer_epoch:
        return True
    return entry.epoch == refused.producer_epoch and entry.next_sequence == refused.base_sequence


def _is_behind(refused: _Refused, batch: BatchHeader) -> bool:
    distance = (batch.base_sequence - refused.base_sequence) & SEQUENCE_MAX
    return batch.producer_epoch == refused.producer_epoch and 0 < distance <= SEQUENCE_MAX // 2
