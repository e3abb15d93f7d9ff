"""The demo's engine on Spark, one job with two queries, and its faults.

Immediately before each fault, the open transactions of the sinks are listed by their transactional
ids.
"""

import shutil
import time
from importlib.util import find_spec

from ...deploy.cluster.failure import Failure
from ...deploy.cluster.local_cluster import Cluster
from ...deploy.cluster.secured.connection import connection_options
from ...deploy.faults.schedule import Fault
from . import fault_plan, flights
from .engine import Account, Effect, EngineProcesses
from .output_judge import Inputs, OutputVerdict, Records, judge_outputs
from .reading import open_transactions, wait_for
from .spark_job import JOB, SparkJobProcess
from .window_sums import judge_window_sums, sums_of_csv

PREFIX, SINK_ID = "oncelog.spark.", "flights"
QUERIES = ("enriched", "sums")
START_TIMEOUT_S = 300.0
AIM_TIMEOUT_S = 20.0
MASTER = "local[2,4]"  # two tasks at a time; one may fail three times
OFFSETS_MAX = 40_000  # of a micro-batch
# Compilation that pays off after minutes is too late for a job that is started three times.
CONFS = (
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage=false",
    "spark.hadoop.fs.permissions.umask-mode=077",  # checkpoints are for their owner alone
)
MISSING = (
    "The engine spark needs pyspark. In a checkout: pip install '.[demo,spark]'; or take "
    "--engine workers"
)


def is_installed() -> bool:
    return find_spec("pyspark") is not None


class SparkEngine(EngineProcesses[SparkJobProcess]):
    name = "a Spark job, which takes half a minute"
    kinds = fault_plan.OF_SPARK
    topics = ("oncelog.spark.decisions",)
    sums_by = "origin, carrier and month"
    expected_sums = staticmethod(sums_of_csv)
    horizon_s = 60.0
    drain_timeout_s = failover_timeout_s = 300.0

    def __init__(self, cluster: Cluster, *, source: str, enriched: str, sums: str) -> None:
        if not is_installed():
            raise Failure(MISSING, exit_code=2)
        self._checkpoint = cluster.data / "spark-checkpoint"
        self._scratch = cluster.data / "spark-local"  # goes with the cluster, also after a kill -9
        confs = (*CONFS, f"spark.local.dir={self._scratch}")
        processes = SparkJobProcess(
            [
                *connection_options(cluster.connection),
                *("--checkpoint", self._checkpoint.as_uri()),
                *("--master", MASTER),
                *("--source", source, "--enriched", enriched, "--sums", sums),
                *("--airlines", str(flights.archive().parent / flights.AIRLINES)),
                *("--sink-id", SINK_ID),
                *("--max-offsets", str(OFFSETS_MAX)),
                *[word for conf in confs for word in ("--conf", conf)],
            ],
            cluster.data,
            QUERIES,
        )
        super().__init__(cluster, processes)

    def start(self) -> None:
        """Start the job, and wait until its queries run."""
        self.processes.start(JOB)
        if not self.processes.wait(lambda: self.processes.is_ready, START_TIMEOUT_S):
            raise Failure(f"The Spark job did not start. Its log: {self.processes.log(JOB)}")

    def wait_until_at_work(self) -> str | None:
        """Wait until each query has committed a batch.

        Return None, or a sentence if one has not.
        """
        if self.processes.wait(lambda: len(self.processes.last) == len(QUERIES), START_TIMEOUT_S):
            return None
        return f"{sorted(self.processes.last) or 'no query'} of Spark committed a batch"

    def open_transactions(self) -> int:
        """Return the number of open transactions of the job's sinks, as the cluster lists them."""
        return len(self._open())

    def done(self) -> dict[int, int]:
        """Return the input offset of each partition up to which both queries have committed."""
        if len(self.processes.last) < len(QUERIES):
            return {}
        one, other = (self.processes.last[query].ends for query in QUERIES)
        return {p: min(one[p], other[p]) for p in one.keys() & other.keys()}

    def outputs(self) -> int:
        """Return the number of rows in committed batches of the query `enriched`.

        Each batch is counted once, although a skipped batch is reported twice.
        """
        seen = {t.number: t.rows for t in list(self.processes.batches) if t.query == QUERIES[0]}
        return sum(seen.values())

    def remove_files(self) -> None:
        super().remove_files()
        for folder in (self._checkpoint, self._scratch):
            shutil.rmtree(folder, ignore_errors=True)

    def judge(self, inputs: Inputs, enriched: Records, sums: Records) -> OutputVerdict:
        """Compare the outputs with the inputs.

        Transactions are not judged, as Spark reports none.
        """
        made = ((p, offset, value) for p, offset, _, value in enriched)
        return judge_outputs(
            inputs, made, sums, None, flights.airlines(), judge_sums=judge_window_sums
        )

    def account(self) -> Account:
        batches = len({(t.query, t.number) for t in self.processes.batches})
        words = (
            f"micro-batches of two queries, whose driver was started {self.processes.starts} times"
        )
        return Account(batches, words, {"micro-batches": batches, "starts": self.processes.starts})

    # --- faults

    def inflict(self, fault: Fault) -> Effect:
        driver = "of the Spark driver, which was started again"
        processes = {
            "driver-jvm": (self.processes.kill_java, f"killed Java ({{}}) {driver}"),
            "driver-python": (self.processes.kill_python, f"killed Python ({{}}) {driver}"),
            "python-worker": (
                self.processes.kill_a_worker,
                "killed a Python worker ({}) of Spark's within its task",
            ),
        }
        if fault.kind not in processes:
            return self._sink(fault)
        kill, what = processes[fault.kind]
        hit, pid = len(self._aim(fault)), kill()
        failover_ms = self._await_batches(time.time(), time.monotonic())
        return Effect(what.format(pid), hit, failover_ms)

    def _sink(self, fault: Fault) -> Effect:
        opened = self._aim(fault)
        name = opened[0] if opened else f"{PREFIX}{SINK_ID}-{fault.pick(0, QUERIES)}.ctl"
        node = self.cluster.coordinator("txn", name)
        hit = self.open_transactions()
        self.cluster.kill(node)
        failover_ms = self._await_batches(time.time(), time.monotonic())
        time.sleep(fault_plan.outage_s(fault))
        self.cluster.start(node)
        return Effect(f"killed node {node}, coordinator of {name}", hit, failover_ms)

    def _aim(self, fault: Fault) -> list[str]:
        """Wait for open transactions of a task, and return their ids, or [] at the timeout."""
        prefix = f"{PREFIX}{SINK_ID}-{fault.pick(0, QUERIES)}.g"
        found: list[str] = []

        def is_open() -> bool:
            self.processes.check()
            found[:] = [name for name in self._open() if name.startswith(prefix)]
            return bool(found)

        wait_for(is_open, AIM_TIMEOUT_S)
        return found

    def _open(self) -> list[str]:
        return sorted(n for n in open_transactions(self.cluster) if n.startswith(PREFIX))

    def _await_batches(self, struck_at: float, from_s: float) -> float:
        """Wait until each query has committed a batch that it began after the fault.

        Returns the ms from `from_s` to the last of them.
        """
        committed = self.processes.committed_after
        return self.failover_ms(lambda: committed(struck_at).values(), from_s, "Not both queries")
