"""Measure special cases, such as one core, many producers, and large records.

The target is any Kafka-compatible cluster of three brokers or more. The client is librdkafka with
acks=all, replication factor 3 and min.insync.replicas 2. Only ratios of two clusters measured in
turn on one machine are meaningful.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import confluent_kafka

from oncelog.deploy.cluster.terminal import show

from .produce_rows import fifty_producers, large_records, one_core_each, one_core_for_all, zstd
from .target import Figures, Target
from .transaction_rows import committed_readers, transactions

ROWS: dict[str, Callable[[Target], dict[str, Figures]]] = {
    "one-core": one_core_each,
    "one-core-for-all": one_core_for_all,
    "50-producers": fifty_producers,
    "10kB": large_records,
    "zstd": zstd,
    "read-committed": committed_readers,
    "transactions": transactions,
}
COLUMNS = {
    "row": "ROW",
    "mb_per_s": "MB/s",
    "records_per_s": "RECORDS/s",
    "transactions_per_s": "TRANSACTIONS/s",
    "p50_ms": "P50 ms",
    "p99_ms": "P99 ms",
    "cpu_s_per_gb": "CPU s/GB",
    "cpu_s_per_million": "CPU s/1M",
    "cpu_ms_per_transaction": "CPU ms/TRANSACTION",
}


class _Options(argparse.Namespace):
    bootstrap: str
    name: str
    pids: str
    seconds: float
    only: str
    json: Path | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the rows. Return 0 if all requested rows have their figures, else 1."""
    options = _parsed(arguments)
    pids = [int(pid) for pid in options.pids.replace(",", " ").split()]
    target = Target(options.bootstrap, pids, options.seconds)
    found: dict[str, Figures] = {}
    for name in options.only.split(","):
        print(f"{options.name}: {name} ...", file=sys.stderr, flush=True)
        found |= ROWS[name](target)
    version = f"confluent-kafka {confluent_kafka.__version__}"
    print(f"{options.name}: {options.seconds:g} s a load, {version}; CPU is that of all brokers")
    show(table(found), "table", columns=COLUMNS)
    if options.json is not None:
        report = {"name": options.name, "seconds": options.seconds, "client": version}
        options.json.write_text(json.dumps(report | {"rows": found}, indent=1))
    return 0


def table(found: dict[str, Figures]) -> list[dict[str, object]]:
    """Return the printed rows, with each number rounded to three figures."""
    return [
        {"row": row, **{key: _three_figures(value) for key, value in figures.items()}}
        for row, figures in found.items()
    ]


def _three_figures(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _parsed(arguments: Sequence[str] | None) -> _Options:
    parser = argparse.ArgumentParser(prog="python -m tests.speed.variants", description=__doc__)
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT,...")
    parser.add_argument("--name", default="cluster", help="name of the cluster in the output")
    parser.add_argument("--pids", default="", metavar="1,2,3", help="pids of the measured brokers")
    parser.add_argument("--seconds", type=float, default=5, help="seconds of each load (default 5)")
    parser.add_argument(
        "--only",
        default=",".join(ROWS),
        metavar="ROW,...",
        help=f"measure only these of {', '.join(ROWS)}",
    )
    parser.add_argument("--json", type=Path, metavar="F", help="write the figures to F as well")
    options = parser.parse_args(arguments, _Options())
    if unknown := [name for name in options.only.split(",") if name not in ROWS]:
        parser.error(f"no such row: {', '.join(unknown)}; there are {', '.join(ROWS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
