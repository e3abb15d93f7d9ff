"""The commands of the demo and of the benchmarks."""

import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from cyclopts import App, Parameter

from ..deploy.cluster.advice import shell_command
from ..deploy.cluster.failure import Failure
from ..deploy.cluster.terminal import closable, never_silent, say, show, show_one, tell
from .common import (
    DEFAULT_CLUSTER,
    DEFAULT_DATA,
    ClusterOptions,
    Data,
    Format,
    add_family,
    judging,
    print_report,
    require,
)

if TYPE_CHECKING:
    from ..deploy.cluster.local_cluster import Cluster
    from ..proof.bench.grid import CellResult, CellT, Grid, MeasurementT
    from ..proof.demo.report import Screen
    from ..proof.pages.run_report import RunReport

T = TypeVar("T")

Break = Literal[
    "none", "acks=1", "acks=0", "idempotence=off", "unclean", "fence=off",
    "decision-before-prepare", "complete-before-commit", "no-nonce", "two-owners", "no-tombstone",
]  # fmt: skip
SECONDS_MAX = 3_600
REPLICATION_OPTIONAL = (
    "SWITCHES/MB",
    "MSGS/MB",
    "SENT MB/MB",
    "RSS MB",
    "MIN.ISR",
    "p99.9 ms",
    "p50 ms",
    "RECORD B",
    "FLOOR s/GB",
    "MB/s",
)
TRANSACTION_OPTIONAL = ("% OF PLAIN", "PLAIN p50 ms", "p99 ms")
Secure = Annotated[
    bool,
    Parameter(
        name="--secure",
        help="Use a new cluster with TLS and logins, as `up --secure`.",
        negative=(),
    ),
]
JsonFile = Annotated[Path | None, Parameter(name="--json", help="Write all figures to this file.")]
Keep = Annotated[Path | None, Parameter(help="Keep report.json and report.html in this folder.")]
HtmlFile = Annotated[Path | None, Parameter(name="--html", help="Write a page with plots.")]


def register(app: App) -> None:
    """Add the commands of this file to `app`."""
    app.command(demo)
    about = "Measure the cost of guarantees and of faults."
    add_family(app, "bench", about, replication, txn, failover)


@judging()
def demo(
    *,
    job: Annotated[
        Literal["flights", "transfers"],
        Parameter(
            help="The job. flights enriches and sums flights. transfers writes rows to a "
            "database and events to Kafka."
        ),
    ] = "flights",
    seed: Annotated[
        int | None, Parameter(help="Repeat the faults of the run with this seed.")
    ] = None,
    database: Annotated[
        str | None,
        Parameter(
            help=(
                "The database of --job transfers, as "
                "postgresql://USER@HOST/DATABASE. With postgresql:// the demo starts "
                "a server, and kills it like the nodes. The default is SQLite."
            )
        ),
    ] = None,
    seconds: Annotated[float, Parameter(help="The duration of --job transfers in seconds.")] = 60.0,
    engine: Annotated[
        Literal["spark", "workers"] | None,
        Parameter(help="The engine: a Spark job, or two processes of one consumer group."),
    ] = None,
    broken: Annotated[
        Break, Parameter(name="--break", help="Remove one guarantee, to see its purpose.")
    ] = "none",
    secure: Secure = False,
    keep: Keep = None,
    format: Format = "table",
) -> int:
    """Run the main job on a cluster while nodes and workers are killed, and judge the results.

    The job reads real flights and writes enriched flights and sums. With --job transfers, it writes
    rows to a database and events to Kafka, and compares both.

    The engine is Spark if its extra is installed and no --break is given. Otherwise it is two
    worker processes. The exit code is 0 if the results are exactly once, and 1 if they are not. It
    is 2 if the run itself failed, and 3 if no kill hit work in progress, which proves nothing.
    """
    require("demo", "confluent_kafka")
    from ..deploy.cluster.local_cluster import Cluster
    from ..proof.demo import flights
    from ..proof.demo import report as demo_report
    from ..proof.demo.run import BREAKS, CLUSTER_CONFIG, Demo, DemoReport
    from ..proof.demo.verdict import demo_run_report

    chosen = seed if seed is not None else random.SystemRandom().randrange(1_000_000)
    if job == "transfers":
        return _transfers(chosen, broken, database, seconds, secure, keep, format)
    if broken not in BREAKS or database is not None:
        raise Failure("--database, and this --break, belong to --job transfers.", exit_code=2)
    flights.archive()
    worker = engine or _engine(broken)
    what_is_broken = demo_report.WHAT_IS_BROKEN.get(broken, "")
    options = f" --engine {worker}" + " --secure" * secure
    screen = demo_report.Screen(chosen, broken, options, what_is_broken)

    def run(cluster: Cluster) -> DemoReport:
        return Demo(cluster, chosen, broken, screen.say, worker, doing=screen.doing).run(
            screen.follow
        )

    report = _judged(Cluster(3, config=CLUSTER_CONFIG, secure=secure), screen, run)
    if keep is not None:
        sentence, fields = demo_report.sentence(report), demo_report.as_json(report)
        _keep(keep, demo_run_report(report, sentence, fields, report.when))
    with closable(sys.stdout):
        if format == "json":
            print(json.dumps(demo_report.as_json(report)))
        else:
            demo_report.print_verdict(report)
    return report.exit_code


def _transfers(
    seed: int,
    broken: str,
    url: str | None,
    seconds: float,
    is_secured: bool,
    keep: Path | None,
    output: str,
) -> int:
    from ..deploy.cluster.local_cluster import Cluster
    from ..proof.demo.report import Screen
    from ..proof.demo.transfers import report as transfers_report
    from ..proof.demo.transfers.broken import WRITERS
    from ..proof.demo.transfers.run import (
        TransfersDemo,
        TransfersReport,
        database_of,
        refuse_database,
    )
    from ..proof.demo.verdict import demo_run_report

    if broken not in WRITERS or not 1 <= seconds <= SECONDS_MAX:
        raise Failure(
            f"With --job transfers: --break {', '.join(WRITERS)}; --seconds 1 to {SECONDS_MAX}.",
            exit_code=2,
        )
    refuse_database(url)
    what_is_broken = transfers_report.WHAT_IS_BROKEN.get(broken, "")
    options = f" --job transfers --seconds {seconds:g}" + (" --database ..." if url else "")
    options += " --secure" * is_secured
    screen = Screen(seed, broken, options, what_is_broken)

    def run(cluster: Cluster) -> TransfersReport:
        with database_of(url, cluster) as (found, server):
            demo = TransfersDemo(
                cluster,
                seed,
                broken,
                screen.say,
                doing=screen.doing,
                database=found,
                server=server,
            )
            return demo.run(seconds)

    report = _judged(Cluster(3, secure=is_secured), screen, run)
    if keep is not None:
        sentence, fields = transfers_report.sentence(report), transfers_report.as_json(report)
        _keep(keep, demo_run_report(report, sentence, fields, report.when))
    with closable(sys.stdout):
        if output == "json":
            print(json.dumps(transfers_report.as_json(report)))
        else:
            transfers_report.print_verdict(report)
    return report.exit_code


def _judged(cluster: "Cluster", screen: "Screen", run: "Callable[[Cluster], T]") -> T:
    """Start `cluster` for the demo, call `run` with it, and stop it. Return the result of `run`.

    The cluster's data is kept after an error, and otherwise removed, also after Ctrl-C.
    """
    is_kept = False
    try:
        cluster.up()
        screen.started(cluster)
        report = run(cluster)
        screen.end()
        return report
    except Exception:
        is_kept = True
        raise
    finally:
        screen.close()
        if cluster.data.exists():  # else `up` has failed, and has left nothing
            cluster.down(purge=not is_kept)
        if is_kept and cluster.data.exists():
            remove = shell_command("down", data=cluster.data)
            say(f"logs and data stay in {cluster.data}; remove them with: {remove} --purge")


def _engine(broken: str) -> Literal["spark", "workers"]:
    """Return "spark" if Spark is installed and `broken` names no bug, otherwise "workers"."""
    from ..proof.demo.spark_engine import is_installed

    if broken != "none":  # a bug is planted in the producer or in the workers
        return "workers"
    if is_installed():
        return "spark"
    say("Spark is not installed, so two worker processes run the job: pip install '.[demo,spark]'")
    return "workers"


def replication(
    *,
    rf: Annotated[
        str,
        Parameter(
            name=["--rf", "--replication-factor"], help="The replication factors to measure."
        ),
    ] = "1,3",
    acks: Annotated[
        str, Parameter(help="The acks settings of the producer to measure: 0, 1, all.")
    ] = "1,all",
    min_isr: Annotated[
        str, Parameter(help="The min.insync.replicas of the topics. It is used only with acks=all.")
    ] = "2",
    record_size: Annotated[
        str, Parameter(help="The size of a record's value in bytes.")
    ] = "100,1000",
    batch_size: Annotated[
        str, Parameter(help="The batch.size of the producer in bytes.")
    ] = "16384,1000000",
    repetitions: Annotated[
        int,
        Parameter(
            name=["--repetitions", "-r"], help="The number of repetitions of each measurement."
        ),
    ] = 2,
    seconds: Annotated[
        float, Parameter(help="The duration of the load for each figure in seconds.")
    ] = 3.0,
    rate: Annotated[float, Parameter(help="The records per second in the latency run.")] = 1_000.0,
    against_floor: Annotated[
        bool,
        Parameter(
            help="Also print the CPU time as a multiple of the minimum on this machine. "
            "The minimum is receiving, a checksum, a write for each replica, and a "
            "transfer to each follower."
        ),
    ] = False,
    secure: Secure = False,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
    json_file: JsonFile = None,
    keep: Keep = None,
    html_file: HtmlFile = None,
) -> None:
    """Measure throughput, latency, CPU, memory and traffic of replication."""
    require("bench", "confluent_kafka", "hdrh")
    from ..proof.bench.floor import measure_floor
    from ..proof.bench.load import perf_line
    from ..proof.bench.pages import replication_report
    from ..proof.bench.replication import ReplicationGrid
    from ..proof.bench.report import rows

    if rate <= 0:
        raise Failure("--rate is above 0.", exit_code=2)
    grid = ReplicationGrid(
        replication_factors=_numbers(rf),
        acks=acks.split(","),
        min_insync=_numbers(min_isr),
        record_bytes=_numbers(record_size),
        batch_bytes=_numbers(batch_size),
        repetitions=repetitions,
        seconds=seconds,
        rate=rate,
    )
    described, results = _measured(grid, cluster, secure)
    floors = {b: measure_floor(b) for b in grid.batch_bytes} if against_floor else None
    show(rows(results, floors), "table", optional=REPLICATION_OPTIONAL)
    for result in results:
        tell(f"{result.cell.name}: {perf_line(result.middle.throughput)}")
    figures = [r.as_json() | {"perf_line": perf_line(r.middle.throughput)} for r in results]
    floor_figures = {str(b): asdict(floor) for b, floor in (floors or {}).items()}
    _write(json_file, described, results=figures, floors=floor_figures)
    _write_pages(replication_report(described, results, floors), keep, html_file)


def txn(
    *,
    records: Annotated[
        str, Parameter(help="The numbers of records in a transaction.")
    ] = "1,10,100,1000",
    partitions: Annotated[
        str, Parameter(help="The numbers of partitions in a transaction.")
    ] = "1,3,10",
    record_size: Annotated[int, Parameter(help="The size of a record's value in bytes.")] = 100,
    rf: Annotated[
        int,
        Parameter(
            name=["--rf", "--replication-factor"], help="The replication factor of the topics."
        ),
    ] = 3,
    min_isr: Annotated[int, Parameter(help="The min.insync.replicas of the topics.")] = 2,
    repetitions: Annotated[
        int,
        Parameter(
            name=["--repetitions", "-r"], help="The number of repetitions of each measurement."
        ),
    ] = 2,
    seconds: Annotated[
        float, Parameter(help="The duration of the transactions for each figure in seconds.")
    ] = 3.0,
    seed: Annotated[int, Parameter(help="The seed of the written bytes.")] = 0,
    secure: Secure = False,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
    json_file: JsonFile = None,
    keep: Keep = None,
    html_file: HtmlFile = None,
) -> None:
    """Measure commit latency and rate of transactions, and compare with idempotent writes."""
    require("bench", "confluent_kafka")
    from ..proof.bench.pages import transactions_report
    from ..proof.bench.transactions import TransactionGrid, rows

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
    described, results = _measured(grid, cluster, secure)
    show_one(described, "table")
    show(rows(results), "table", optional=TRANSACTION_OPTIONAL)
    _write(json_file, described, results=[result.as_json() for result in results])
    _write_pages(transactions_report(described, results), keep, html_file)


def failover(
    *,
    kills: Annotated[int, Parameter(name=["--kills", "-n"], help="The number of kills.")] = 10,
    secure: Secure = False,
    data: Data = DEFAULT_DATA,
    json_file: JsonFile = None,
    keep: Keep = None,
    format: Format = "table",
) -> None:
    """Kill leaders, and measure p50 and p99 of the time to the next acknowledged write."""
    require("bench", "confluent_kafka")
    from ..proof.bench.failover import run_failovers
    from ..proof.bench.pages import failover_report
    from ..proof.bench.report import environment
    from ..proof.bench.target import bench_target

    with never_silent() as told, bench_target(data, None, is_secured=secure) as target:
        figures = run_failovers(target, kills, told)
        described = environment(target, {"kills": kills})
    _write(json_file, described, **figures)
    _write_pages(failover_report(described, figures), keep, None)
    words = (
        f"{figures['kills']} kills: p50 {figures['p50_ms']:.0f} ms, p99 {figures['p99_ms']:.0f} ms,"
        f" max {figures['max_ms']:.0f} ms until the next acknowledged write"
    )
    print_report({"environment": described, **figures}, [words], format)


def _measured(
    grid: "Grid[CellT, MeasurementT]", cluster: ClusterOptions, is_secured: bool
) -> "tuple[dict[str, Any], Sequence[CellResult[CellT, MeasurementT]]]":
    """Measure each cell of `grid` on a cluster, which is started if no option names one.

    Return the description of the machine and the cluster, and the result of each cell.
    """
    from ..proof.bench.report import environment
    from ..proof.bench.target import bench_target

    with (
        never_silent() as told,
        cluster.as_failures(),
        bench_target(cluster.data, cluster.named_config(), is_secured=is_secured) as target,
    ):
        return environment(target, asdict(grid)), grid.run(target, told)


def _write(json_file: Path | None, described: dict[str, Any], **figures: Any) -> None:
    if json_file:
        json_file.write_text(json.dumps({"environment": described, **figures}, indent=1))
        say(f"figures: {json_file}")


def _write_pages(report: "RunReport", keep: Path | None, html_file: Path | None) -> None:
    from ..proof.pages.run_page import run_file

    if html_file:
        html_file.write_text(run_file(report), encoding="utf-8")
        say(f"page: {html_file}")
    if keep:
        _keep(keep, report)


def _keep(folder: Path, report: "RunReport") -> None:
    from ..proof.pages.run_folder import keep_report

    say(f"page: {keep_report(report, folder)}")


def _numbers(text: str) -> list[int]:
    try:
        return [int(item) for item in text.split(",")]
    except ValueError:
        raise Failure(f"{text!r} is not a list of numbers such as 1,3.", exit_code=2) from None
