"""The demo's engine on Spark: one job with two queries, and its faults.

What is open is asked of the cluster, by the transactional ids of the sinks, right before the blow.
"""

import shutil
import time
from importlib.util import find_spec

from ..cluster.failure import Failure
from ..cluster.local_cluster import Cluster
from . import fault_plan, flights
from .engine import Account, Effect, failover_ms
from .fault_plan import Fault
from .output_judge import Inputs, OutputVerdict, Records, Totals, judge_outputs
from .reading import open_transactions
from .spark_job import SparkJobProcess
from .window_sums import judge_window_sums, sums_of_csv

PREFIX, SINK_ID = "oncelog.spark.", "flights"
QUERIES = ("enriched", "sums")
START_TIMEOUT_S, FAILOVER_TIMEOUT_S = 300.0, 300.0
AIM_TIMEOUT_S = 20.0
MASTER = "local[2,4]"  # two tasks at a time; one may fail three times
OFFSETS_MAX = 40_000  # of a micro-batch
# A job of a minute that is started three times: what Java compiles well pays off too late.
CONFS = (
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage=false",
)
MISSING = (
    "The engine spark needs pyspark. Install it with: pip install 'oncelog[demo,spark]', or take "
    "--engine workers"
)


def is_installed() -> bool:
    return find_spec("pyspark") is not None


class SparkEngine:
    kinds = fault_plan.OF_SPARK
    topics = ("oncelog.spark.decisions",)
    sums_by = "origin, carrier and month"
    horizon_s = 60.0
    drain_timeout_s = 300.0

    def __init__(self, cluster: Cluster, *, source: str, enriched: str, sums: str) -> None:
        if not is_installed():
            raise Failure(MISSING, exit_code=2)
        self.cluster = cluster
        self._checkpoint = cluster.data / "spark-checkpoint"
        self.job = SparkJobProcess(
            [
                *("--bootstrap", cluster.bootstrap),
                *("--checkpoint", self._checkpoint.as_uri()),
                *("--master", MASTER),
                *("--source", source, "--enriched", enriched, "--sums", sums),
                *("--airlines", str(flights.archive().parent / flights.AIRLINES)),
                *("--sink-id", SINK_ID),
                *("--max-offsets", str(OFFSETS_MAX)),
                *[word for conf in CONFS for word in ("--conf", conf)],
            ],
            cluster.data / "spark-job.log",
            QUERIES,
        )

    @property
    def restarts(self) -> int:
        """How often the job ended without having been struck."""
        return self.job.restarts

    def start(self) -> None:
        """Start the job, and wait until its queries run."""
        self.job.start()
        if not self.job.wait(lambda: self.job.is_ready, START_TIMEOUT_S):
            raise Failure(f"The Spark job did not start. Its log: {self.job.log}")

    def wait_until_at_work(self) -> str | None:
        """Until each query has committed a batch."""
        if self.job.wait(lambda: len(self.job.last) == len(QUERIES), START_TIMEOUT_S):
            return None
        return f"{sorted(self.job.last) or 'no query'} of Spark committed a batch"

    def check(self) -> None:
        """Raise what stopped the job."""
        if self.job.failed is not None:
            raise self.job.failed

    def open_transactions(self) -> int:
        """Those of the sinks, as their coordinators know them."""
        return len(self._open())

    def done(self) -> dict[int, int]:
        """Up to where both queries have committed."""
        ends = [self.job.last[query].ends if query in self.job.last else {} for query in QUERIES]
        shared = set.intersection(*map(set, ends))
        return {p: min(end[p] for end in ends) for p in shared}

    def outputs(self) -> int:
        """Rows of committed batches; one that was skipped as done already is told twice."""
        seen = {t.number: t.rows for t in list(self.job.batches) if t.query == QUERIES[0]}
        return sum(seen.values())

    def stop(self) -> None:
        self.job.stop()

    def close(self) -> None:
        self.job.close()

    def remove_logs(self) -> None:
        self.job.log.unlink(missing_ok=True)
        shutil.rmtree(self._checkpoint, ignore_errors=True)

    def judge(self, inputs: Inputs, enriched: Records, sums: Records) -> OutputVerdict:
        """By inputs and outputs alone: Spark does not tell of transactions."""
        made = ((p, offset, value) for p, offset, _, value in enriched)
        return judge_outputs(
            inputs, made, sums, None, flights.airlines(), judge_sums=judge_window_sums
        )

    def expected_sums(self, rows: int) -> Totals:
        """By origin, carrier and month."""
        return sums_of_csv(rows)

    def account(self) -> Account:
        batches = len({(t.query, t.number) for t in self.job.batches})
        words = f"micro-batches of two queries, whose driver was started {self.job.starts} times"
        return Account(batches, words, {"micro-batches": batches, "starts": self.job.starts})

    # --- faults

    def inflict(self, fault: Fault) -> Effect:
        driver = "of the Spark driver, which was started again"
        processes = {
            "driver-jvm": (self.job.kill_java, f"killed Java ({{}}) {driver}"),
            "driver-python": (self.job.kill_python, f"killed Python ({{}}) {driver}"),
            "python-worker": (
                self.job.kill_a_worker, "killed a Python worker ({}) of Spark's within its task",
            ),
        }  # fmt: skip
        if fault.kind not in processes:
            return self._sink(fault)
        kill, what = processes[fault.kind]
        hit, pid = len(self._aim(fault)), kill()
        failover_ms = self._await_batches(time.time(), time.monotonic())
        return Effect(what.format(pid), hit, failover_ms)

    def _sink(self, fault: Fault) -> Effect:
        opened = self._aim(fault)
        name = opened[0] if opened else f"{PREFIX}{SINK_ID}-{QUERIES[fault.worker]}.ctl"
        node = self.cluster.coordinator("txn", name)
        hit = self.open_transactions()
        self.cluster.kill(node)
        failover_ms = self._await_batches(time.time(), time.monotonic())
        time.sleep(fault.outage_s)
        self.cluster.start(node)
        return Effect(f"killed node {node}, coordinator of {name}", hit, failover_ms)

    def _aim(self, fault: Fault) -> list[str]:
        """Open transactions of a task, as soon as there are any; [] when none was seen in time."""
        prefix = f"{PREFIX}{SINK_ID}-{QUERIES[fault.worker]}.g"
        deadline = time.monotonic() + AIM_TIMEOUT_S
        while time.monotonic() < deadline:
            self.check()
            if found := [name for name in self._open() if name.startswith(prefix)]:
                return found
            time.sleep(0.03)
        return []

    def _open(self) -> list[str]:
        return sorted(n for n in open_transactions(self.cluster) if n.startswith(PREFIX))

    def _await_batches(self, struck_at: float, from_s: float) -> float:
        """Milliseconds until each query told of a batch that it began after the blow."""

        return failover_ms(
            self.job,
            lambda: self.job.committed_after(struck_at).values(),
            from_s,
            FAILOVER_TIMEOUT_S,
            f"Not both queries committed anything for {FAILOVER_TIMEOUT_S:.0f} s after the "
            f"blow. The job's log: {self.job.log}",
        )
