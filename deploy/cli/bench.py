"""Commands that run for a while: the demo and the benchmarks."""

import json
import random
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from cyclopts import App, Parameter

from ..cluster.failure import Failure
from ..cluster.terminal import say, show, show_one
from .common import DEFAULT_CLUSTER, DEFAULT_DATA, ClusterOptions, Data, Format, add_family, require

if TYPE_CHECKING:
    from ..bench.replication import CellResult
    from ..bench.transactions import TransactionResult

Result = TypeVar("Result", "CellResult", "TransactionResult")
Break = Literal["none", "acks=1", "acks=0", "idempotence=off", "unclean", "fence=off"]
JsonFile = Annotated[Path | None, Parameter(name="--json", help="Write all figures there.")]
HtmlFile = Annotated[Path | None, Parameter(name="--html", help="Write a page with plots.")]


def register(app: App) -> None:
    """Add this file's commands."""
    app.command(demo)
    about = "What guarantees cost, what faults cost."
    add_family(app, "bench", about, replication, txn, failover)


def demo(
    *,
    seed: Annotated[int | None, Parameter(help="Repeats the faults of another run.")] = None,
    engine: Annotated[
        Literal["spark", "workers"] | None,
        Parameter(help="What enriches: a Spark job, or two processes of one consumer group."),
    ] = None,
    broken: Annotated[
        Break, Parameter(name="--break", help="Take one guarantee away, to see what it is for.")
    ] = "none",
    format: Format = "table",
) -> int:
    """Real flights in, enriched flights and sums out, nodes and workers killed; then a judge looks.

    The engine is Spark where its extra is installed and nothing is taken away, else two workers.
    Exit code 0: exactly once. 1: violated. 3: no kill hit work in flight, so nothing is proved.
    """
    require("demo", "confluent_kafka")
    from ..cluster.local_cluster import Cluster
    from ..demo import flights
    from ..demo import report as demo_report
    from ..demo.run import CLUSTER_CONFIG, Demo

    flights.archive()
    chosen = seed if seed is not None else random.SystemRandom().randrange(1_000_000)
    worker = engine or _engine(broken)
    screen = demo_report.Screen(chosen, broken, worker)
    cluster = Cluster(3, config=CLUSTER_CONFIG)
    cluster.up()
    is_over = False
    try:
        screen.started(cluster)
        report = Demo(cluster, chosen, broken, screen.say, worker).run(screen.follow)
        screen.end()
        is_over = True
    finally:
        cluster.down(purge=is_over)  # what could not be judged stays to be looked at
    if format == "json":
        print(json.dumps(demo_report.as_json(report)))
    else:
        demo_report.print_verdict(report)
    return report.exit_code


def _engine(broken: str) -> Literal["spark", "workers"]:
    """What enriches when nobody has said it."""
    from ..demo.spark_engine import is_installed

    if broken != "none":  # what is taken away, is taken from the producer or from the workers
        return "workers"
    if is_installed():
        return "spark"
    say("two workers enrich; a Spark job would, with: pip install 'oncelog[demo,spark]'")
    return "workers"


def replication(
    *,
    rf: Annotated[str, Parameter(help="Replication factors.")] = "1,3",
    acks: Annotated[str, Parameter(help="0, 1, all.")] = "1,all",
    min_isr: Annotated[str, Parameter(help="min.insync.replicas; only with acks=all.")] = "2",
    record_size: Annotated[str, Parameter(help="Bytes of a record's value.")] = "100,1000",
    batch_size: Annotated[str, Parameter(help="batch.size in bytes.")] = "16384,1000000",
    repetitions: Annotated[int, Parameter(name=["--repetitions", "-r"])] = 2,
    seconds: Annotated[float, Parameter(help="Of load for each figure.")] = 3.0,
    rate: Annotated[float, Parameter(help="Records/s of the latency run.")] = 1_000.0,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """What a replica costs: throughput, latency, CPU, memory, bytes between nodes."""
    require("bench", "confluent_kafka", "hdrh")
    from ..bench import replication_page
    from ..bench import report as bench_report
    from ..bench.replication import Grid, run_grid
    from ..bench.target import bench_target

    grid = Grid(
        replication_factors=_numbers(rf),
        acks=acks.split(","),
        min_insync=_numbers(min_isr),
        record_bytes=_numbers(record_size),
        batch_bytes=_numbers(batch_size),
        repetitions=repetitions,
        seconds=seconds,
        rate=rate,
    )
    if rate <= 0 or seconds <= 0 or repetitions < 1:
        raise Failure("--rate, --seconds and --repetitions are above 0.", exit_code=2)
    with cluster.as_failures(), bench_target(cluster.data, cluster.named_config()) as target:
        results = run_grid(target, grid, say)
        described = bench_report.environment(target, asdict(grid))
    show(bench_report.rows(results), "table", columns=bench_report.COLUMNS)
    for result in results:
        print(f"{result.cell.name}: {result.perf_line}")
    _write(json_file, html_file, described, results, replication_page.page)


def txn(
    *,
    records: Annotated[str, Parameter(help="Records of a transaction.")] = "1,10,100,1000",
    partitions: Annotated[str, Parameter(help="Partitions that it touches.")] = "1,3,10",
    record_size: Annotated[int, Parameter(help="Bytes of a record's value.")] = 100,
    rf: Annotated[int, Parameter(help="Replication factor.")] = 3,
    min_isr: Annotated[int, Parameter(help="min.insync.replicas.")] = 2,
    repetitions: Annotated[int, Parameter(name=["--repetitions", "-r"])] = 2,
    seconds: Annotated[float, Parameter(help="Of transactions for each figure.")] = 3.0,
    seed: Annotated[int, Parameter(help="Of the bytes that are written.")] = 0,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """What a transaction costs: commit latency and rate, beside plain idempotent writes."""
    require("bench", "confluent_kafka")
    from ..bench import report as bench_report
    from ..bench import transactions_page
    from ..bench.target import bench_target
    from ..bench.transactions import TransactionGrid, run_transaction_grid

    grid = TransactionGrid(
        records=_numbers(records),
        partitions=_numbers(partitions),
        record_bytes=record_size,
        replication_factor=rf,
        min_insync=min_isr,
        repetitions=repetitions,
        seconds=seconds,
        seed=seed,
    )
    if seconds <= 0 or repetitions < 1:
        raise Failure("--seconds and --repetitions are above 0.", exit_code=2)
    with cluster.as_failures(), bench_target(cluster.data, cluster.named_config()) as target:
        results = run_transaction_grid(target, grid, say)
        described = bench_report.environment(target, asdict(grid))
    show_one(described, "table")
    show(transactions_page.rows(results), "table", columns=transactions_page.COLUMNS)
    _write(json_file, html_file, described, results, transactions_page.page)


def failover(
    *,
    kills: Annotated[int, Parameter(name=["--kills", "-n"])] = 10,
    data: Data = DEFAULT_DATA,
    json_file: JsonFile = None,
    format: Format = "table",
) -> None:
    """kill -9 of a leader until the next acknowledged write, again and again: p50, p99."""
    require("bench", "confluent_kafka")
    from ..bench import report as bench_report
    from ..bench.failover import run_failovers
    from ..bench.target import bench_target

    with bench_target(data, None) as target:
        if target.cluster is None:
            raise Failure("Fail-over needs a local cluster: it kills its nodes.")
        figures = run_failovers(target.cluster, kills, say)
        described = bench_report.environment(target, {"kills": kills})
    content: dict[str, Any] = {"environment": described, **figures}
    if json_file:
        json_file.write_text(json.dumps(content, indent=1))
    if format == "json":
        print(json.dumps(content))
        return
    print(
        f"{figures['kills']} kills: p50 {figures['p50_ms']:.0f} ms, p99 {figures['p99_ms']:.0f} ms,"
        f" max {figures['max_ms']:.0f} ms until the next acknowledged write"
    )


def _write(
    json_file: Path | None,
    html_file: Path | None,
    described: dict[str, Any],
    results: list[Result],
    page: Callable[[dict[str, Any], list[Result]], str],
) -> None:
    if json_file:
        content = {"environment": described, "results": [r.as_json() for r in results]}
        json_file.write_text(json.dumps(content, indent=1))
        say(f"figures: {json_file}")
    if html_file:
        html_file.write_text(page(described, results))
        say(f"page: {html_file}")


def _numbers(text: str) -> list[int]:
    try:
        return [int(item) for item in text.split(",")]
    except ValueError:
        raise Failure(f"{text!r} is not a list of numbers such as 1,3.", exit_code=2) from None
