"""`bench replication`: identical load on a grid of guarantees, to see what each of them costs.

Each cell has a topic of its own. It is loaded as fast as it goes (throughput, CPU, bytes between
nodes) and then at a rate (latency). The repetitions go round the whole grid, not cell by cell, so
that a machine that grows warm or busy spoils no comparison.
"""

import itertools
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from ..cluster.failure import Failure
from .load import LoadResult, perf_line, run_load
from .target import BenchTarget, NodeUsage

PARTITIONS = 6
DEFAULT_RATE = 1_000.0  # records/s, the same for every cell: far below what any of them can do


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    replication_factors: list[int]
    acks: list[str]
    min_insync: list[int]
    record_bytes: list[int]
    batch_bytes: list[int]
    repetitions: int = 2
    seconds: float = 3.0
    rate: float = DEFAULT_RATE

    def cells(self) -> list[Cell]:
        """Every combination that makes sense, in order: min.insync counts only with acks=all."""
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


@dataclass(frozen=True, slots=True)
class Repetition:
    """One measurement of one cell; CPU, RSS and link bytes are None without local nodes."""

    throughput: LoadResult
    latency: LoadResult
    rate: float
    cpu_s_by_node: dict[int, float] | None
    rss_bytes_by_node: dict[int, int] | None
    link_bytes: int | None

    @property
    def cpu_s_per_gb(self) -> float | None:
        """CPU seconds of all nodes for each acknowledged GB (1e9)."""
        gigabytes = self.throughput.records * self.throughput.record_bytes / 1e9
        if self.cpu_s_by_node is None or not gigabytes:
            return None
        return sum(self.cpu_s_by_node.values()) / gigabytes

    @property
    def link_bytes_per_acknowledged_byte(self) -> float | None:
        """Bytes between nodes for each acknowledged byte of values: MB per MB."""
        acknowledged = self.throughput.records * self.throughput.record_bytes
        if self.link_bytes is None or not acknowledged:
            return None
        return self.link_bytes / acknowledged


@dataclass(slots=True)
class CellResult:
    cell: Cell
    repetitions: list[Repetition] = field(default_factory=list[Repetition])

    @property
    def best(self) -> Repetition:
        """The one with the middle throughput, from which single figures are quoted."""
        ordered = sorted(self.repetitions, key=lambda r: r.throughput.records_per_s)
        return ordered[len(ordered) // 2]

    @property
    def perf_line(self) -> str:
        """Kafka's summary line of the middle repetition."""
        return perf_line(self.best.throughput)

    def median(self, of: Callable[[Repetition], float | None]) -> float | None:
        """The median over the repetitions; None when it is unknown."""
        values = [v for r in self.repetitions if (v := of(r)) is not None]
        return statistics.median(values) if values else None

    def spread(self, of: Callable[[Repetition], float]) -> tuple[float, float]:
        values = [of(r) for r in self.repetitions]
        return min(values), max(values)

    def as_json(self) -> dict[str, Any]:
        return {
            "cell": asdict(self.cell),
            "perf_line": self.perf_line,
            "repetitions": [
                {
                    "records_per_s": round(r.throughput.records_per_s, 1),
                    "mb_per_s": round(r.throughput.mb_per_s, 3),
                    "failed": r.throughput.failed,
                    "latency_rate": round(r.rate, 1),
                    "latency_ms": {str(p): v for p, v in r.latency.percentiles_ms.items()},
                    "latency_max_ms": r.latency.max_ms,
                    "latency_curve_ms": r.latency.curve,
                    "cpu_s_by_node": r.cpu_s_by_node,
                    "cpu_s_per_gb": r.cpu_s_per_gb,
                    "rss_bytes_by_node": r.rss_bytes_by_node,
                    "link_bytes_per_acknowledged_byte": r.link_bytes_per_acknowledged_byte,
                }
                for r in self.repetitions
            ],
        }


def run_grid(target: BenchTarget, grid: Grid, say: Callable[[str], None]) -> list[CellResult]:
    """Measure every cell; Failure when the cluster is too small for the grid."""
    results = [CellResult(cell) for cell in grid.cells()]

    def measure(result: CellResult, _: int) -> str:
        measured = _measure(target, grid, result.cell)
        result.repetitions.append(measured)
        mb, p99 = measured.throughput.mb_per_s, measured.latency.percentiles_ms[99.0]
        return f"{result.cell.name}: {mb:.1f} MB/s, p99 {p99:.2f} ms"

    largest = max(grid.replication_factors)
    target.go_round(results, grid.repetitions, largest, measure, say)
    return results


def _measure(target: BenchTarget, grid: Grid, cell: Cell) -> Repetition:
    topic = target.make_topic(
        partitions=PARTITIONS,
        replication_factor=cell.replication_factor,
        min_insync_replicas=cell.min_insync,
    )
    settings = {
        **target.client_config,
        "acks": cell.acks,
        "batch.size": max(cell.batch_bytes, cell.record_bytes + 512),
    }
    before: list[NodeUsage] = []
    throughput = run_load(
        settings,
        topic,
        record_bytes=cell.record_bytes,
        seconds=grid.seconds,
        when_warm=lambda: before.extend(target.usage()),
    )
    after = target.usage()
    rate = grid.rate
    paced = {**settings, "linger.ms": 0}
    latency = run_load(
        paced, topic, record_bytes=cell.record_bytes, seconds=grid.seconds, rate=rate
    )
    return Repetition(throughput, latency, rate, *_difference(before, after))


def _difference(
    before: list[NodeUsage], after: list[NodeUsage]
) -> tuple[dict[int, float] | None, dict[int, int] | None, int | None]:
    """CPU by node, RSS by node, bytes sent between nodes, from two looks at them."""
    if not after:
        return None, None, None
    earlier = {u.node_id: u for u in before}
    cpu = {u.node_id: round(u.cpu_s - earlier[u.node_id].cpu_s, 3) for u in after}
    rss = {u.node_id: u.rss_bytes for u in after}
    link = 0
    for usage in after:
        start = earlier[usage.node_id].link_bytes_sent
        if usage.link_bytes_sent is None or start is None:
            return cpu, rss, None
        link += usage.link_bytes_sent - start
    return cpu, rss, link
