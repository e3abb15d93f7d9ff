"""What the Spark job tells is kept; one that ends by itself is started again; blows hit whom they
are meant for. A stand-in plays the job: it has a child named java, and that has workers."""

import json
import sys
import time

import psutil
import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.demo import spark_job
from oncelog.deploy.demo.spark_job import SparkJobProcess

STAND_IN = """
import ctypes, json, os, sys, time
folder = sys.argv[1]
def name(text):
    ctypes.CDLL(None).prctl(15, text.encode(), 0, 0, 0)
def tell(*event):
    os.write(1, json.dumps(event).encode() + b"\\n")
number = len(os.listdir(folder))
open(f"{folder}/{number}", "w").close()
if number == 0 and os.path.exists(folder + ".fails"):
    sys.exit(3)
parent, (there, here) = os.getpid(), os.pipe()
if not os.fork():
    name("java")
    if not os.fork():
        name("daemon")
        for busy in (0, 1):
            if not os.fork():
                daemon = os.getppid()
                os.write(here, b"x")
                while os.getppid() == daemon:
                    time.sleep(0.001 if busy else 0.05)
                    if busy: sum(range(2000))
                os._exit(0)
        java = os.getppid()
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


@pytest.fixture
def job(tmp_path, monkeypatch):
    stand_in = tmp_path / "stand_in.py"
    stand_in.write_text(STAND_IN)
    (tmp_path / "starts").mkdir()
    popen = spark_job.subprocess.Popen

    def start(command, **options):
        arguments = [str(tmp_path / "starts"), spark_job.WORKER_MODULE]
        return popen([sys.executable, str(stand_in), *arguments], **options)

    monkeypatch.setattr(spark_job.subprocess, "Popen", start)
    made = SparkJobProcess([], tmp_path / "job.log", ("enriched", "sums"))
    yield made
    made.close()


def at_work(job, batches=2):
    assert job.wait(lambda: len(job.batches) >= batches, 30)


def test_reported_micro_batches_are_kept_in_order(job):
    before = time.time()
    job.start()
    at_work(job)
    assert [(b.query, b.number, b.ends) for b in job.batches] == [
        ("enriched", 0, {0: 5, 1: 5}), ("sums", 0, {0: 4}),
    ]  # fmt: skip
    assert job.committed_after(before - 1)["sums"] == job.last["sums"].heard_at
    assert job.committed_after(time.time() + 1) == {"enriched": None, "sums": None}


@pytest.mark.parametrize("blow", ["kill_java", "kill_python"])
def test_a_driver_that_was_killed_leaves_nothing_and_is_started_again(job, blow):
    job.start()
    at_work(job)
    java = job._java(job._driver())
    pid = getattr(job, blow)()
    assert (pid == java.pid) == (blow == "kill_java")
    at_work(job, 4)
    assert (job.starts, job.restarts) == (2, 0)
    assert not java.is_running() or java.status() == psutil.STATUS_ZOMBIE


def test_only_the_busiest_worker_is_killed(job):
    job.start()
    at_work(job)
    java = job._java(job._driver())
    workers = job._workers()
    assert len(workers) == 2
    pid = job.kill_a_worker()
    assert pid in {worker.pid for worker in workers}
    assert java.is_running()
    assert job.starts == 1


def test_a_job_that_ends_by_itself_is_started_again_but_not_for_ever(job, tmp_path, monkeypatch):
    (tmp_path / "starts.fails").touch()
    job.start()
    at_work(job)
    assert job.restarts == 1
    job.close()
    monkeypatch.setattr(spark_job, "RESTARTS_MAX", 0)
    for file in (tmp_path / "starts").iterdir():
        file.unlink()
    job.start()
    with pytest.raises(Failure, match="has ended 0 times"):
        job.wait(lambda: False, 30)


def test_other_output_lines_are_skipped(job):
    job.start()
    at_work(job)
    assert json.dumps([b.query for b in job.batches]) == '["enriched", "sums"]'
