"""`bench txn` measures the cost of a transaction, by its size and its number of partitions.

One producer executes one transaction after another. Each transaction begins, writes records to
several partitions, waits for the acknowledgements, and commits. The time is compared with that of a
batch of the same records from the same library, idempotent and without transactions.
"""

import itertools
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...deploy.cluster.failure import Failure
from .grid import CellResult, Grid
from .load import percentile
from .target import BenchTarget

WARM_UP_SHARE = 0.25  # of the time of a measurement, before it
WARM_UP_TIMES_MIN, TIMES_MIN = 3, 5
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class TransactionCell:
    """A cell of the grid: the number of records and the number of partitions of a transaction."""

    records: int
    partitions: int

    @property
    def name(self) -> str:
        return f"records={self.records} partitions={self.partitions}"


@dataclass(frozen=True, slots=True)
class TransactionRun:
    """The result of measuring one cell once, with times in ms.

    The times are those of each transaction. plain: the times of each batch without transactions.
    """

    commit_ms: Sequence[float]
    whole_ms: Sequence[float]
    plain_ms: Sequence[float]

    @property
    def per_s(self) -> float:
        return 1000 / statistics.fmean(self.whole_ms)

    @property
    def overhead_ms(self) -> float:
        """Return the median time of a transaction minus the median time of a plain batch."""
        return statistics.median(self.whole_ms) - statistics.median(self.plain_ms)

    @property
    def share_of_plain(self) -> float:
        """Return the record rate with transactions divided by the record rate of plain batches."""
        return statistics.fmean(self.plain_ms) / statistics.fmean(self.whole_ms)

    @property
    def words(self) -> str:
        commit_ms = percentile(self.commit_ms, 0.5)
        return f"{self.per_s:.1f} transactions/s, commit p50 {commit_ms:.2f} ms"

    def as_json(self) -> dict[str, Any]:
        return {
            "transactions": len(self.whole_ms),
            "transactions_per_s": round(self.per_s, 2),
            "commit_ms": _percentiles(self.commit_ms),
            "transaction_ms": _percentiles(self.whole_ms),
            "plain_batch_ms": _percentiles(self.plain_ms),
            "overhead_ms": round(self.overhead_ms, 3),
            "share_of_plain": round(self.share_of_plain, 4),
        }


TransactionResult = CellResult[TransactionCell, TransactionRun]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionGrid(Grid[TransactionCell, TransactionRun]):
    """The grid of transactions.

    Cells with more partitions than records are left out, except for the smallest partition count.
    """

    records: list[int]
    partitions: list[int]
    record_bytes: int = 100
    replication_factor: int = 3
    min_insync: int = 2
    seed: int = 0

    @property
    def largest_factor(self) -> int:
        return self.replication_factor

    def cells(self) -> list[TransactionCell]:
        if min(*self.records, *self.partitions, self.record_bytes) < 1:
            raise Failure("Records, partitions and bytes are above 0.", exit_code=2)
        return [
            TransactionCell(records, partitions)
            for records, partitions in itertools.product(self.records, self.partitions)
            if partitions <= max(records, min(self.partitions))
        ]

    def measure(
        self, target: BenchTarget, cell: TransactionCell, repetition: int
    ) -> TransactionRun:
        min_insync = min(self.min_insync, self.replication_factor)
        topic = target.make_topic(cell.partitions, self.replication_factor, min_insync)
        value = random.Random(self.seed + repetition).randbytes(self.record_bytes)
        return _measure(target, cell, topic, value, self.seconds)


def _measure(
    target: BenchTarget, cell: TransactionCell, topic: str, value: bytes, seconds: float
) -> TransactionRun:
    from confluent_kafka import Producer

    # The flush sends what still lingers, so both send the same batches.
    settings = {**target.client_config, "acks": "all", "linger.ms": 1000}
    commit_ms: list[float] = []

    def write(producer: Any) -> None:
        for number in range(cell.records):
            producer.produce(topic, value, partition=number % cell.partitions)
        if producer.flush(TIMEOUT_S):
            raise Failure(f"Not everything was acknowledged within {TIMEOUT_S:.0f} s.")

    transactional = Producer({**settings, "transactional.id": f"bench of {topic}"})
    transactional.init_transactions(TIMEOUT_S)

    def transaction() -> None:
        transactional.begin_transaction()
        write(transactional)
        began = time.perf_counter()
        transactional.commit_transaction(TIMEOUT_S)
        commit_ms.append((time.perf_counter() - began) * 1000)

    idempotent = Producer({**settings, "enable.idempotence": True})
    plain_ms = _timed(lambda: write(idempotent), seconds / 2)
    whole_ms = _timed(transaction, seconds)
    return TransactionRun(commit_ms[-len(whole_ms) :], whole_ms, plain_ms)


def _timed(work: Callable[[], None], seconds: float) -> list[float]:
    """Repeat `work` for some seconds after a warm-up, and return the ms of each repetition."""
    _repeat(work, seconds * WARM_UP_SHARE, WARM_UP_TIMES_MIN)
    return _repeat(work, seconds, TIMES_MIN)


def _repeat(work: Callable[[], None], seconds: float, times_min: int) -> list[float]:
    taken_ms: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(taken_ms) < times_min:
        began = time.perf_counter()
        work()
        taken_ms.append((time.perf_counter() - began) * 1000)
    return taken_ms


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    return {f"p{share:g}": round(percentile(values, share / 100), 3) for share in (50, 90, 99)}


def rows(results: Sequence[TransactionResult]) -> list[dict[str, Any]]:
    """Return one row of medians for each cell.

    The columns PLAIN are about batches of the same records without transactions.
    """
    found: list[dict[str, Any]] = []
    for result in results:
        rate = result.median(lambda run: run.per_s) or 0
        found.append(
            {
                "RECORDS": result.cell.records,
                "PARTITIONS": result.cell.partitions,
                "TRANSACTIONS/s": round(rate, 1),
                "RECORDS/s": round(rate * result.cell.records),
                "COMMIT p50 ms": result.median(lambda run: percentile(run.commit_ms, 0.5)),
                "p99 ms": result.median(lambda run: percentile(run.commit_ms, 0.99)),
                "WHOLE p50 ms": result.median(lambda run: percentile(run.whole_ms, 0.5)),
                "PLAIN p50 ms": result.median(lambda run: percentile(run.plain_ms, 0.5)),
                "OVERHEAD ms": result.median(lambda run: run.overhead_ms),
                "% OF PLAIN": round(100 * (result.median(lambda run: run.share_of_plain) or 0), 1),
            }
        )
    return found
