"""Rows of valid logs for the audit.

A ModelLog is one topic of two partitions. A seed draws the order in which its producers write. They
are plain, idempotent, or transactional of both versions, with fences, repeated markers and changes
of leader. `edge` names a special log. Its beginning is deleted, the log is compacted, or sequence
numbers are about to wrap.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..judge.edit import NoPlace

SEQUENCE_MAX = 2**31 - 1
EDGES = ("whole", "cut", "compacted", "wrap", "empty")
TIME_MS = 1_700_000_000_000


@dataclass(slots=True)
class Row:
    """A row of the Spark source's raw mode, without the columns that the audit ignores."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    is_transactional: bool = False
    is_control: bool = False
    control_type: str | None = None
    coordinator_epoch: int | None = None
    batch_crc: int = 0
    key: bytes | None = None
    value: bytes | None = None
    replica: int | None = None
    outcome: str = "plain"  # or committed, aborted


@dataclass(slots=True)
class _Producer:
    kind: str  # plain, idempotent, v1, v2
    producer_id: int
    epoch: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    open_in: set[int] = field(default_factory=set)
    coordinator_epoch: int = 0


class ModelLog:
    """A valid log. `rows` has all copies, and `shown` has the records of read_committed."""

    def __init__(self, seed: int, topic: str, edge: str = "whole", *, batches: int = 60,
                 replicas: int = 0) -> None:  # fmt: skip
        self.rng, self.topic, self.edge = random.Random(f"{seed} {edge}"), topic, edge
        self.logs: dict[int, list[Row]] = {0: [], 1: []}
        self._pending: dict[tuple[int, int], list[Row]] = {}
        self._leader_epoch = {0: 0, 1: 0}
        first_id = 1_000_000 + seed * 100
        self.producers = [
            _Producer(kind, first_id + number)
            for number, kind in enumerate(("plain", "idempotent", "v1", "v1", "v2", "v2"))
        ]
        if edge == "wrap":
            for producer in self.producers:
                producer.sequences = {p: SEQUENCE_MAX - self.rng.randrange(20) for p in self.logs}
        if edge != "empty":
            for _ in range(batches):
                self._turn(self.rng.choice(self.producers))
            for producer in self.producers:
                self._end(producer)
        self._happened()
        self.replicas = replicas
        self.ends = {p: (log[0].offset, log[-1].offset + 1) for p, log in self.logs.items() if log}
        self.rows = [row for log in self.logs.values() for row in log]
        for replica in range(1, replicas + 1):
            for log in self.logs.values():
                self.rows += [replace(row, replica=replica) for row in log]
        self.shown = [
            (topic, row.partition, row.offset)
            for log in self.logs.values()
            for row in log
            if not row.is_control and row.outcome != "aborted"
        ]

    def _turn(self, producer: _Producer) -> None:
        rng = self.rng
        if rng.random() < 0.04:
            self._leader_epoch[rng.randrange(2)] += 1
        if producer.open_in and rng.random() < 0.3:
            self._end(producer)
            return
        if not producer.open_in and producer.kind != "plain" and rng.random() < 0.04:
            producer.epoch += 1  # a new session
            producer.sequences = {}
        self._batch(producer, rng.randrange(2), rng.choice((1, 1, 2, 5, 90)))

    def _batch(self, producer: _Producer, partition: int, records: int) -> None:
        log, crc = self.logs[partition], self.rng.getrandbits(32)
        is_transactional = producer.kind in ("v1", "v2")
        for number in range(records):
            row = Row(self.topic, partition, len(log), self._leader_epoch[partition],
                      batch_crc=crc, key=b"key %d" % self.rng.randrange(12),
                      value=b"%d" % number)  # fmt: skip
            if producer.kind != "plain":
                row.producer_id, row.producer_epoch = producer.producer_id, producer.epoch
                row.sequence = producer.sequences.get(partition, 0)
                producer.sequences[partition] = (row.sequence + 1) & SEQUENCE_MAX
                row.is_transactional = is_transactional
            log.append(row)
            if is_transactional:
                producer.open_in.add(partition)
                self._pending.setdefault((producer.producer_id, partition), []).append(row)

    def _end(self, producer: _Producer) -> None:
        if not producer.open_in:
            return
        kind = self.rng.choice(("commit", "abort"))
        if self.rng.random() < 0.3:
            producer.coordinator_epoch += 1
        if producer.kind == "v2" or self.rng.random() < 0.2:  # V2, or fenced by a successor
            producer.epoch += 1
            producer.sequences = {}
        for partition in sorted(producer.open_in):
            for _ in range(2 if self.rng.random() < 0.1 else 1):  # sent again
                log = self.logs[partition]
                log.append(Row(self.topic, partition, len(log), self._leader_epoch[partition],
                               producer.producer_id, producer.epoch, -1, True, True, kind,
                               producer.coordinator_epoch, self.rng.getrandbits(32)))  # fmt: skip
            for row in self._pending.pop((producer.producer_id, partition)):
                row.outcome = "committed" if kind == "commit" else "aborted"
        producer.open_in = set()

    def _happened(self) -> None:
        for partition, log in self.logs.items():
            if self.edge == "wrap":
                for row in log:
                    row.offset += 100
            if self.edge == "cut" and log:
                at = self.rng.randrange(len(log) // 2)
                while at < len(log) - 1 and log[at].batch_crc == log[0].batch_crc:
                    at += 1
                while log[at].batch_crc == log[at - 1].batch_crc:
                    at -= 1
                self.logs[partition] = log[at:]
            if self.edge == "compacted":
                newest = {r.key: r.offset for r in log if r.outcome != "aborted"}
                self.logs[partition] = [
                    r for r in log
                    if r.is_control or newest.get(r.key) == r.offset or self.rng.random() < 0.3
                ]  # fmt: skip

    # --- for plants

    def pick(self, fits: Callable[["Place"], bool], copy: int | None = None) -> "Place":
        """Return a random row that fits, from one copy of the log.

        Without `copy` it is the copy that the leader returns.
        """
        found: list[Place] = []
        for partition in self.logs:
            log = [r for r in self.rows if (r.replica, r.partition) == (copy, partition)]
            own: dict[int, list[Row]] = {}
            batches: dict[int, list[Row]] = {}
            for row in log:
                mine = own.setdefault(row.producer_id, [])
                batch = batches.setdefault(row.batch_crc, [])
                found.append(Place(row, log, mine, len(mine), batch))
                mine.append(row)
                batch.append(row)
        fitting = [place for place in found if fits(place)]
        if not fitting:
            raise NoPlace
        return self.rng.choice(fitting)


@dataclass(frozen=True, slots=True)
class Place:
    """A row with the rows of its log, of its producer in this log, and of its batch."""

    row: Row
    log: list[Row]
    own: list[Row]
    at: int  # index of `row` in `own`
    batch: list[Row]

    @property
    def before(self) -> Row | None:
        """Return the producer's previous row in this log, or None."""
        return self.own[self.at - 1] if self.at and self.row.producer_id >= 0 else None

    @property
    def after(self) -> Row | None:
        """Return the producer's next row in this log, or None."""
        return self.own[self.at + 1] if self.at + 1 < len(self.own) else None

    @property
    def follows_in_epoch(self) -> bool:
        """Return whether the row begins a batch that is not the first of its producer epoch."""
        is_first = self.batch[0] is self.row
        before = (r for r in self.own[: self.at] if r.sequence >= 0)
        return is_first and any(r.producer_epoch == self.row.producer_epoch for r in before)
