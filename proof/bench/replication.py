"""`bench replication` runs the same load on a grid of guarantees, to compare their costs.

Each cell has its own topic. The topic is loaded at full speed (throughput, CPU, bytes between
nodes) and then at a rate (latency).
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...deploy.cluster.failure import Failure
from .grid import CellResult, Grid
from .load import LoadResult, run_load
from .target import BenchTarget, NodeUsage

PARTITIONS = 6


@dataclass(frozen=True, slots=True)
class Cell:
    replication_factor: int
    acks: str
    min_insync: int
    record_bytes: int
    batch_bytes: int

    @property
    def name(self) -> str:
        return (
            f"rf={self.replication_factor} acks={self.acks} min.isr={self.min_insync} "
            f"record={self.record_bytes} batch={self.batch_bytes}"
        )


@dataclass(frozen=True, slots=True)
class Repetition:
    """The result of measuring one cell once.

    used: the resources that each node used during the throughput run, empty without local nodes.
    """

    throughput: LoadResult
    latency: LoadResult
    rate: float
    used: Mapping[int, NodeUsage]

    @property
    def per_s(self) -> float:
        return self.throughput.records_per_s

    @property
    def words(self) -> str:
        p99 = self.latency.percentiles_ms[99.0]
        return f"{self.throughput.mb_per_s:.1f} MB/s, p99 {p99:.2f} ms"

    @property
    def acknowledged_bytes(self) -> int:
        return self.throughput.records * self.throughput.record_bytes

    @property
    def cpu_s_per_gb(self) -> float | None:
        """Return the CPU seconds of all nodes for each acknowledged GB (1e9)."""
        if not self.used or not self.acknowledged_bytes:
            return None
        return sum(u.cpu_s for u in self.used.values()) / self.acknowledged_bytes * 1e9

    @property
    def link_bytes_per_acknowledged_byte(self) -> float | None:
        """Return the bytes between nodes for each acknowledged byte of values."""
        return self._for_each_byte([u.link_bytes_sent for u in self.used.values()])

    @property
    def link_messages_per_mb(self) -> float | None:
        """Return the messages between nodes for each acknowledged MB.

        A round trip is two messages.
        """
        found = self._for_each_byte([u.link_messages_sent for u in self.used.values()])
        return None if found is None else found * 1e6

    @property
    def context_switches_per_mb(self) -> float | None:
        """Return the context switches of all nodes for each acknowledged MB."""
        found = self._for_each_byte([u.context_switches for u in self.used.values()])
        return None if found is None else found * 1e6

    def _for_each_byte(self, counts: Sequence[int | None]) -> float | None:
        known = [count for count in counts if count is not None]
        if not known or len(known) < len(counts) or not self.acknowledged_bytes:
            return None
        return sum(known) / self.acknowledged_bytes

    def as_json(self) -> dict[str, Any]:
        return {
            "records_per_s": round(self.per_s, 1),
            "mb_per_s": round(self.throughput.mb_per_s, 3),
            "failed": self.throughput.failed,
            "latency_rate": round(self.rate, 1),
            "latency_ms": {str(p): v for p, v in self.latency.percentiles_ms.items()},
            "latency_max_ms": self.latency.max_ms,
            "latency_curve_ms": self.latency.curve,
            "cpu_s_by_node": {i: round(u.cpu_s, 3) for i, u in self.used.items()} or None,
            "cpu_s_per_gb": self.cpu_s_per_gb,
            "rss_bytes_by_node": {i: u.rss_bytes for i, u in self.used.items()} or None,
            "link_bytes_per_acknowledged_byte": self.link_bytes_per_acknowledged_byte,
            "link_messages_per_mb": self.link_messages_per_mb,
            "context_switches_per_mb": self.context_switches_per_mb,
        }


ReplicationResult = CellResult[Cell, Repetition]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationGrid(Grid[Cell, Repetition]):
    """The cells of `bench replication`, which are combinations of guarantees.

    rate: records/s of the latency run, far below any cell's limit.
    """

    replication_factors: list[int]
    acks: list[str]
    min_insync: list[int]
    record_bytes: list[int]
    batch_bytes: list[int]
    rate: float = 1_000.0

    @property
    def largest_factor(self) -> int:
        return max(self.replication_factors)

    def cells(self) -> list[Cell]:
        """Return every combination. `min.insync` varies only with acks=all."""
        for value in self.acks:
            if value not in ("0", "1", "all"):
                raise Failure(f"acks={value} is not 0, 1 or all.", exit_code=2)
        found: list[Cell] = []
        for rf, acks, record, batch in itertools.product(
            self.replication_factors, self.acks, self.record_bytes, self.batch_bytes
        ):
            wanted = [m for m in self.min_insync if m <= rf] or [rf]
            for min_insync in wanted if acks == "all" else [1]:
                found.append(Cell(rf, acks, min_insync, record, batch))
        return found

    def measure(self, target: BenchTarget, cell: Cell, repetition: int) -> Repetition:
        topic = target.make_topic(PARTITIONS, cell.replication_factor, cell.min_insync)
        settings = {
            **target.client_config,
            "acks": cell.acks,
            "batch.size": max(cell.batch_bytes, cell.record_bytes + 512),
        }
        before: dict[int, NodeUsage] = {}
        throughput = run_load(
            settings,
            topic,
            record_bytes=cell.record_bytes,
            seconds=self.seconds,
            when_warm=lambda: before.update(target.usage()),
        )
        used = {node: usage.since(before[node]) for node, usage in target.usage().items()}
        latency = run_load(
            {**settings, "linger.ms": 0},
            topic,
            record_bytes=cell.record_bytes,
            seconds=self.seconds,
            rate=self.rate,
        )
        return Repetition(throughput, latency, self.rate, used)
