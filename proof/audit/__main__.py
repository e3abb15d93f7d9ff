"""`python -m oncelog.proof.audit` checks topics of a cluster, or the log directories of its nodes.

    python -m oncelog.proof.audit --bootstrap HOST:PORT --topic orders
    python -m oncelog.proof.audit --command-config client.properties --topic orders
    python -m oncelog.proof.audit --logs 1=DIR,2=DIR,3=DIR
    python -m oncelog.proof.audit --cluster .oncelog

The exit code is 0 without violations, 1 with violations, and 2 when the data cannot be read, with a
sentence that gives the reason. With `--out`, every violation is a line of JSON in that directory.
The screen shows the first few of each kind.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from ...pipeline import spark_session
from ...pipeline.command_line import (
    add_login_options,
    add_pairs,
    add_spark_options,
    login_of,
    spark_confs,
)
from ...pipeline.failure_words import sentence_of
from ...pipeline.java import NoJava
from ...pipeline.session import hadoop_path
from ...wire.errors import KafkaError
from .audit import CHUNK_SIZE, AuditResult, Summary, audit, summary
from .reading import CannotRead, live, log_directories
from .violations import VIOLATION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = 5
UNREADABLE = (  # ValueError: a wrong option; OSError: files, and missing answers
    CannotRead,
    KafkaError,
    PySparkException,
    Py4JError,
    NoJava,
    ValueError,
    OSError,
)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m oncelog.proof.audit", description=(__doc__ or "").partition("\n\n")[0]
    )
    add = parser.add_argument
    add_login_options(parser, is_required=False)
    add("--logs", help="The data directories of nodes, as NODE=DIR,NODE=DIR.")
    add(
        "--cluster",
        type=Path,
        help="The directory of a cluster by `oncelog up`. All its logs are read.",
    )
    add(
        "--topic",
        action="append",
        default=[],
        help="Audit only this topic. The option may be repeated. It is required with --bootstrap "
        "and --command-config. Otherwise all topics except internal ones are audited.",
    )
    add(
        "--compacted",
        action="append",
        default=[],
        metavar="TOPIC",
        help="This topic is compacted, so it may lack offsets. The option may be repeated. It is "
        "used with --logs and --cluster.",
    )
    add_pairs(parser, "--client", "A setting of the client. The option may be repeated.")
    add(
        "--open-seconds",
        type=float,
        help="A transaction that is open for more seconds is a violation.",
    )
    add("--out", help="Write the violations as JSON lines to this new directory or URL.")
    add("--format", choices=("table", "json"), default="table")
    add_spark_options(parser)
    add(
        "--chunk-size",
        type=int,
        default=CHUNK_SIZE,
        help="The number of offsets that one task reads.",
    )
    chosen = parser.parse_args(given)
    is_live = bool(chosen.bootstrap or chosen.command_config)
    if sum(bool(place) for place in (is_live, chosen.logs, chosen.cluster)) != 1:
        parser.error("Give exactly one of --bootstrap (or --command-config), --logs and --cluster.")
    if is_live and not chosen.topic:
        parser.error("--bootstrap needs --topic")
    chosen.needs_login = is_live
    return chosen


def main(given: Sequence[str] | None = None) -> int:
    """Run the audit, print the violations, and return the exit code."""
    options = arguments(given)
    started = time.monotonic()
    try:
        folders = _folders(options)
        spark = spark_session("audit", **spark_confs(options))
        if options.out:
            _require_new(spark, options.out)
        if folders:
            audit_input = log_directories(
                spark,
                folders,
                options.topic,
                compacted=options.compacted,
                open_s_max=options.open_seconds,
            )
        else:
            client = login_of(options) | dict(options.client)
            audit_input = live(spark, client, options.topic, open_s_max=options.open_seconds)
        result = audit(audit_input, chunk_size=options.chunk_size)
        counts = summary(result)
        examples = _examples(result, counts.violations)
        if options.out:
            result.violations.write.json(options.out)
    except UNREADABLE as problem:
        print(sentence_of(problem), file=sys.stderr)
        return 2
    seconds = round(time.monotonic() - started, 1)
    if options.format == "json":
        print(json.dumps({**asdict(counts), "seconds": seconds, "examples": examples}))
    else:
        print("\n".join([*words(counts, examples), f"{verdict(counts)} ({seconds} s)"]))
    return 1 if counts.violations else 0


def words(counts: Summary, examples: list[dict[str, Any]]) -> list[str]:
    """Return the lines of the report: the counts, and then the violations with examples."""
    lines = [
        f"{counts.records:,} records and {counts.markers:,} markers in {counts.copies:,} copies "
        f"of {counts.partitions:,} partitions",
        f"{counts.committed:,} parts of transactions committed, {counts.aborted:,} aborted, "
        f"{counts.open:,} open",
    ]
    for anomaly, count in counts.violations.items():
        lines.append(f"{count:>9,}  {anomaly}")
        for one in examples:
            if one["anomaly"] == anomaly:
                copy = f" (node {one['replica']})" if one["replica"] >= 0 else ""
                where = f"{one['topic']}/{one['partition']}@{one['offset']}"
                lines.append(f"{'':11}{where}{copy}: {one['sentence']}")
    return lines


def verdict(counts: Summary) -> str:
    total = sum(counts.violations.values())
    return f"{total:,} violations" if total else "no promise was broken"


def _examples(result: AuditResult, anomalies: Iterable[str]) -> list[dict[str, Any]]:
    """Return the first few violations of each kind."""
    found: list[dict[str, Any]] = []
    for anomaly in anomalies:
        rows = result.violations.where(result.violations["anomaly"] == anomaly)
        for row in rows.orderBy("topic", "partition", "offset", "replica").take(EXAMPLES):
            found.append({name: row[name] for name in VIOLATION})
    return found


def _folders(options: argparse.Namespace) -> dict[int, Path]:
    if options.cluster:
        nodes = sorted(options.cluster.glob("node-*"))
        if not nodes:
            raise CannotRead(
                f"{options.cluster} has no node-* folder, so it is not the directory of a cluster."
            )
        return {int(node.name.removeprefix("node-")): node for node in nodes}
    found: dict[int, Path] = {}
    for item in filter(None, (options.logs or "").split(",")):
        node, separator, folder = item.partition("=")
        if not separator:
            raise CannotRead(f"{item!r} is not NAME=VALUE.")
        if not node.strip().isdecimal():
            raise CannotRead(f"--logs begins with the number of a node, 1=DIR,2=DIR, not {node!r}.")
        found[int(node)] = Path(folder)
    return found


def _require_new(spark: "SparkSession", out: str) -> None:
    """Raise CannotRead if `out` exists, because Spark itself would fail only when it writes."""
    files, path = hadoop_path(spark, out)
    if files.exists(path):
        raise CannotRead(f"{out} exists already. Give --out a directory that does not exist yet.")


if __name__ == "__main__":
    sys.exit(main())
