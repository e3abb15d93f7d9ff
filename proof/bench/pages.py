"""Turns the results of benchmarks into reports, with tables and bars of the main figures."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...deploy.cluster.terminal import cell
from ..pages.run_report import BarChart, RunReport, RunTable
from .floor import Floor
from .load import perf_line
from .replication import Repetition, ReplicationResult
from .report import rows
from .transactions import TransactionResult
from .transactions import rows as transaction_rows

Value = Callable[[Repetition], float | None]
PLOTS: dict[str, Value] = {
    "Throughput, MB/s": lambda r: r.throughput.mb_per_s,
    "Latency p99, ms, at a rate": lambda r: r.latency.percentiles_ms[99.0],
    "CPU seconds of all nodes for each GB": lambda r: r.cpu_s_per_gb,
    "MB sent between nodes for each MB acknowledged": lambda r: r.link_bytes_per_acknowledged_byte,
}


def replication_report(
    environment: Mapping[str, Any],
    results: Sequence[ReplicationResult],
    floors: Mapping[int, Floor] | None = None,
) -> RunReport:
    """Return the report of `bench replication`."""
    names = [r.cell.name for r in results]
    shares = [f"{share:g} %" for share, _ in results[0].middle.latency.curve] if results else []
    curves = [[ms for _, ms in r.middle.latency.curve] for r in results]
    return RunReport(
        command="oncelog bench replication",
        verdict="The cost of a replica",
        charts=[
            BarChart(
                title, [(r.cell.name, v) for r in results if (v := r.median(value)) is not None]
            )
            for title, value in PLOTS.items()
        ],
        tables=[
            figures(rows(results, floors)),
            RunTable(
                "Latency in ms by percentile, corrected for coordinated omission",
                ("Cell", *shares),
                [(name, *curve) for name, curve in zip(names, curves, strict=True)],
            ),
            RunTable(
                "In the words of kafka-producer-perf-test",
                ("Cell", "Line"),
                [(r.cell.name, perf_line(r.middle.throughput)) for r in results],
            ),
            described(environment),
        ],
    )


def transactions_report(
    environment: Mapping[str, Any], results: Sequence[TransactionResult]
) -> RunReport:
    """Return the report of `bench txn`."""
    return RunReport(
        command="oncelog bench txn",
        verdict="The cost of a transaction",
        words=[
            "One producer, one transaction after another. PLAIN is the time of the same records "
            "by an idempotent producer without transactions, OVERHEAD what the transaction takes "
            "beyond that."
        ],
        tables=[figures(transaction_rows(results)), described(environment)],
    )


def failover_report(environment: Mapping[str, Any], found: Mapping[str, Any]) -> RunReport:
    """Return the report of `bench failover`."""
    bars = [(f"kill {number}", ms) for number, ms in enumerate(found["all_ms"], 1)]
    names = {"p50_ms": "p50, ms", "p99_ms": "p99, ms", "max_ms": "max, ms"}
    return RunReport(
        command="oncelog bench failover",
        verdict="The cost of a leader's death",
        facts=[("kills", found["kills"]), *((words, found[n]) for n, words in names.items())],
        charts=[BarChart("ms until the next acknowledged write", bars)],
        tables=[described(environment)],
    )


def figures(found: Sequence[Mapping[str, Any]]) -> RunTable:
    """Return a table of all figures, in which the keys of the first row are the headings."""
    return RunTable("Figures", list(found[0]), [list(row.values()) for row in found])


def described(environment: Mapping[str, Any]) -> RunTable:
    """Return a table of the machine, versions and settings of the measurement."""
    return RunTable("Where", ("What", "Value"), [(k, _words(v)) for k, v in environment.items()])


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(each)}" for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return " ".join(map(_words, value))
    return cell(value)
