"""Reads the committed records of topics from the beginning of the run."""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ....client.blocking import BlockingConsumer
from ....client.fetch.record_columns import RecordColumns
from ....deploy.cluster.ends.flag import Flag
from ....deploy.cluster.failure import Failure
from ....wire.errors import KafkaError
from ....wire.identifiers import TopicPartition
from ..observed import wait_for
from ..relation import LogRecord

RECORDS_MAX = 3_000_000
READ_TIMEOUT_S = 60.0
POLL_MS = 200


class OutputReader(threading.Thread):
    """A thread that reads committed records until `close`. `records` has all of them so far."""

    def __init__(self, config: Mapping[str, Any], begin: Mapping[TopicPartition, int]) -> None:
        super().__init__(name="prove-reader", daemon=True)
        self._config, self._begin = config, dict(begin)
        self._over = Flag()
        self._positions = dict(begin)
        self.records: list[LogRecord] = []
        self.moved_at_s = time.monotonic()  # when the last record came
        self.failed: Exception | None = None

    def close(self) -> None:
        self._over.set()
        if self.is_alive():
            self.join(10)

    def check(self) -> None:
        if self.failed is not None:
            raise Failure(f"Topics could not be read back: {self.failed}") from self.failed
        if len(self.records) >= RECORDS_MAX:
            raise Failure(f"More than {RECORDS_MAX} records came back: too many to be judged.")

    def is_at(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Return whether the reader has read everything before these ends."""
        self.check()
        return all(self._positions[p] >= end for p, end in ends.items())

    def run(self) -> None:
        try:
            with BlockingConsumer(
                self._config, isolation_level="read_committed", client_id="oncelog-prove"
            ) as consumer:
                consumer.assign(self._begin)
                while not self._over.is_set() and len(self.records) < RECORDS_MAX:
                    found = consumer.poll_columns(timeout_ms=POLL_MS)
                    for columns in found:
                        self.records += rows(columns)
                    if found:
                        self.moved_at_s = time.monotonic()
                    self._positions = {p: consumer.position(*p) for p in self._begin}
        except (KafkaError, OSError, ValueError) as problem:
            self.failed = problem


def rows(columns: RecordColumns) -> list[LogRecord]:
    header, headers = columns.header, columns.headers
    return [
        LogRecord(
            columns.topic,
            columns.partition,
            offset,
            key,
            value,
            headers[n] if headers is not None else (),
            header.producer_id,
            header.producer_epoch,
            header.is_transactional,
        )
        for n, (offset, key, value) in enumerate(
            zip(columns.offsets, columns.keys, columns.values, strict=True)
        )
    ]


def read_all(
    config: Mapping[str, Any],
    begin: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> list[LogRecord]:
    """Return the committed records of partitions from `begin` to `ends` or beyond, in order."""
    reader = OutputReader(config, begin)
    reader.start()
    try:
        if not wait_for(lambda: reader.is_at(ends), READ_TIMEOUT_S):
            raise Failure(f"The inputs were not read back within {READ_TIMEOUT_S:.0f} s.")
    finally:
        reader.close()
    return in_order(reader.records)


def in_order(records: Sequence[LogRecord]) -> list[LogRecord]:
    return sorted(records, key=lambda r: (r.topic, r.partition, r.offset))
