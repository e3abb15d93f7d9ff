"""Test that the Spark job's reports are stored, and that its processes can be killed.

A stand-in replaces the job. It has a child process named java, which has workers.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from oncelog.proof.demo.spark_job import JOB, WORKER_MODULE, SparkJobProcess

STAND_IN = """
import ctypes, json, os, sys, time
folder = sys.argv[1]
def name(text):
    ctypes.CDLL(None).prctl(15, text.encode(), 0, 0, 0)
def tell(*event):
    os.write(1, json.dumps(event).encode() + b"\\n")
number = len(os.listdir(folder))
open(f"{folder}/{number}", "w").close()
parent, (there, here) = os.getpid(), os.pipe()
if not os.fork():
    name("java")
    java = os.getpid()
    if not os.fork():
        name("daemon")
        daemon = os.getpid()
        for busy in (0, 1):
            if not os.fork():
                os.write(here, b"x")
                while os.getppid() == daemon:
                    time.sleep(0.001 if busy else 0.05)
                    if busy: sum(range(2000))
                os._exit(0)
        while os.getppid() == java:
            time.sleep(0.05)
        os._exit(0)
    while os.getppid() == parent:
        time.sleep(0.01)
    os.killpg(0, 9)
os.read(there, 1) + os.read(there, 1)
os.write(1, b"not for us\\n")
tell("ready")
tell("batch", "enriched", number, int(time.time() * 1000), 10, {"0": 5, "1": 5})
tell("batch", "sums", number, int(time.time() * 1000), 10, {"0": 4})
time.sleep(60)
"""


class StandIn(SparkJobProcess):
    def command(self, name: str, incarnation: int) -> list[str]:
        super().command(name, incarnation)
        return ["-c", STAND_IN, *self.arguments, WORKER_MODULE]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[StandIn]:
    (tmp_path / "starts").mkdir()
    made = StandIn([str(tmp_path / "starts")], tmp_path, ("enriched", "sums"))
    yield made
    made.close()


def at_work(job: StandIn, batches: int = 2) -> None:
    assert job.wait(lambda: len(job.batches) >= batches, 30)


def test_demo_spark_job_reports_micro_batches_in_order(job: StandIn) -> None:
    before = time.time()
    job.start(JOB)
    at_work(job)
    assert [(b.query, b.number, b.ends) for b in job.batches] == [
        ("enriched", 0, {0: 5, 1: 5}), ("sums", 0, {0: 4}),
    ]  # fmt: skip
    assert job.committed_after(before - 1)["sums"] == job.last["sums"].reported_at
    assert job.committed_after(time.time() + 1) == {"enriched": None, "sums": None}


@pytest.mark.in_turn
@pytest.mark.parametrize("blow", ["kill_java", "kill_python"])
def test_demo_spark_driver_that_was_killed_leaves_no_process_and_is_restarted(
    job: StandIn, blow: str
) -> None:
    job.start(JOB)
    at_work(job)
    java = job.java
    pid = getattr(job, blow)()
    assert (pid == java.pid) == (blow == "kill_java")
    at_work(job, 4)
    assert (job.starts, job.restarts) == (2, 0)
    assert not java.is_running() or java.status() == psutil.STATUS_ZOMBIE


def test_demo_spark_fault_kills_one_task_worker_and_not_the_driver(job: StandIn) -> None:
    job.start(JOB)
    at_work(job)
    java = job.java
    workers = job.task_workers()
    assert len(workers) == 2
    pid = job.kill_a_worker()
    assert pid in {worker.pid for worker in workers}
    assert java.is_running()
    assert job.starts == 1
