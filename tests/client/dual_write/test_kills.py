"""Test services that are killed or paused at every point, and a killed database server.

Every test ends with a comparison of rows and events, and with a check that no transaction is open.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from oncelog.cli.main import run
from oncelog.client import BlockingDualWriter, DecisionInDoubt
from oncelog.deploy.cluster.local_cluster import Cluster

from ...waiting import until
from .job import POINTS, Job, begin
from .ledger import Ledger, assert_equal
from .postgresql import PostgresServer

psycopg: Any = pytest.importorskip("psycopg", reason="psycopg is missing (extra: database)")
pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("dual_write")]
RUN_S = 120


def job_of(bootstrap: str, topic: str, database: str, folder: Path, first: int, **rest: Any) -> Job:
    given: dict[str, Any] = {"count": 2} | rest
    return Job(bootstrap, topic, database, str(folder), first, **given)


def end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    try:
        output, _ = process.communicate(timeout=RUN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, output


def check_back(cluster: Cluster, database: str, *more: str) -> int:
    url = database if database.startswith("postgresql:") else f"sqlite://{database}"
    options = ["--resolver", url, "--older-than", "0", "--once", "--data", str(cluster.data)]
    return run(["txn", "check-back", *options, *more])


@pytest.mark.parametrize(
    "points",
    [
        pytest.param(("in the commit", "after Decide"), id="around the decision"),
        pytest.param(POINTS, id="all", marks=pytest.mark.chaos),
    ],
)
def test_service_killed_at_each_point_leaves_rows_and_events_equal(
    bootstrap: str,
    topic: str,
    database: str,
    ledger: Ledger,
    tmp_path: Path,
    points: tuple[str, ...],
) -> None:
    for at, point in enumerate(points):
        job = job_of(bootstrap, topic, database, tmp_path, 10 * at, point=point, at=1)
        code, output = end_of(begin(job))
        assert code == -signal.SIGKILL and job.mark.exists(), output
    last = job_of(bootstrap, topic, database, tmp_path, 100)
    code, output = end_of(begin(last))
    assert code == 0, output
    assert_equal(bootstrap, topic, ledger)
    decided = points.index("after Decide")
    rows = ledger.rows()
    assert rows.count(10 * decided + 1) == 1 and 10 * decided - 9 not in rows
    sessions = f"SELECT count(*) FROM oncelog_decisions WHERE writer = '{topic}'"
    assert ledger.rows(f"{sessions} AND outcome = 'session'") == [1]


@pytest.mark.chaos
@pytest.mark.parametrize("point", ["after Prepare", "after Decide"])
def test_check_back_ends_the_transaction_of_a_killed_service(
    cluster: Cluster, topic: str, database: str, ledger: Ledger, tmp_path: Path, point: str
) -> None:
    job = job_of(cluster.bootstrap, topic, database, tmp_path, 0, point=point, at=1)
    code, output = end_of(begin(job))
    assert code == -signal.SIGKILL, output
    assert check_back(cluster, database, "--writer", topic) == 0
    assert_equal(cluster.bootstrap, topic, ledger)
    assert ledger.rows() == ([0] if point == "after Prepare" else [0, 1])


def stopped(job: Job) -> subprocess.Popen[str]:
    """Start a service that pauses itself at its point, and return its process once it is paused."""
    process = begin(job)
    until(lambda: job.mark.exists() or process.poll() is not None, timeout_s=RUN_S)
    assert process.poll() is None, end_of(process)
    return process


@pytest.mark.chaos
def test_service_that_resumes_after_a_check_back_follows_its_outcome_and_continues(
    cluster: Cluster, topic: str, server: PostgresServer, tmp_path: Path
) -> None:
    """A service paused before its decision finds `aborted` and rolls back.

    A service paused after its decision completes the block.
    """
    database, ledger = server.url, Ledger(server.connect, "%s").create()
    for first, point in enumerate(("after Prepare", "after Decide")):
        job = job_of(
            cluster.bootstrap, topic, database, tmp_path, 10 * first, count=3,
            point=point, at=1, signal=signal.SIGSTOP,
        )  # fmt: skip
        process = stopped(job)
        try:
            for _ in range(2):
                assert check_back(cluster, database, "--writer", topic) == 0
        finally:
            os.kill(process.pid, signal.SIGCONT)
        code, output = end_of(process)
        assert code == 0, output
        assert ("CheckedBackError" in output) == (point == "after Prepare"), output
    assert_equal(cluster.bootstrap, topic, ledger)
    assert ledger.rows() == [0, 2, 10, 11, 12]


@pytest.mark.chaos
@pytest.mark.parametrize("point", ["after Prepare", "after Decide"])
def test_service_that_resumes_after_a_successor_started_is_superseded(
    bootstrap: str, topic: str, server: PostgresServer, tmp_path: Path, point: str
) -> None:
    ledger = Ledger(server.connect, "%s").create()
    job = job_of(
        bootstrap, topic, server.url, tmp_path, 0, count=3, point=point, at=1,
        signal=signal.SIGSTOP,
    )  # fmt: skip
    process = stopped(job)
    try:
        code, output = end_of(begin(job_of(bootstrap, topic, server.url, tmp_path, 10)))
        assert code == 0, output
    finally:
        os.kill(process.pid, signal.SIGCONT)
    _, output = end_of(process)
    assert "WriterSuperseded" in output
    assert_equal(bootstrap, topic, ledger)
    assert ledger.rows() == ([0, 10, 11] if point == "after Prepare" else [0, 1, 10, 11])


def test_database_server_killed_in_a_commit_leaves_rows_and_events_equal(
    bootstrap: str, topic: str, server: PostgresServer
) -> None:
    """The server is killed before or after it executes COMMIT, which the service cannot tell."""
    ledger, fate = Ledger(server.connect, "%s").create(), [""]

    class Mortal(psycopg.Connection):
        def commit(self) -> None:
            if fate[0] == "before":
                restart()
            super().commit()
            if fate[0] == "after":
                restart()
                raise psycopg.OperationalError("the answer was lost")

    def restart() -> None:
        fate[0] = ""
        server.kill()
        server.start()

    def connect() -> Any:
        return Mortal.connect(server.url, connect_timeout=5)

    with BlockingDualWriter(bootstrap, topic, connect) as writer:
        for number, kind in enumerate(("", "before", "", "after", "")):
            told: Any = pytest.raises(psycopg.OperationalError)
            may_fail = told if kind == "before" else contextlib.nullcontext()
            with may_fail, writer.transaction() as work:
                work.execute(ledger.insert, (number, 5))
                work.send(topic, b"%d" % number)
                fate[0] = kind
    assert_equal(bootstrap, topic, ledger)
    assert ledger.rows() == [0, 2, 3, 4]


def test_database_server_that_stays_down_leaves_the_outcome_to_the_next_writer_start(
    bootstrap: str, topic: str, server: PostgresServer
) -> None:
    ledger, connections = Ledger(server.connect, "%s").create(), [server.connect()]
    # the program cannot open another connection
    with BlockingDualWriter(bootstrap, topic, connections[0]) as writer:
        real = connections[0].commit

        def commit() -> None:
            real()
            server.kill()
            raise psycopg.OperationalError("the answer was lost")

        connections[0].commit = commit
        told = pytest.raises(DecisionInDoubt, match="start the writer anew")
        with told, writer.transaction() as work:
            work.execute(ledger.insert, (1, 5))
            work.send(topic, b"1")
        with pytest.raises(DecisionInDoubt), writer.transaction():
            pass
    server.start()
    with BlockingDualWriter(bootstrap, topic, server.connect):
        pass
    assert_equal(bootstrap, topic, ledger)
    assert ledger.rows() == [1]


@pytest.mark.chaos
def test_database_server_killed_under_load_leaves_rows_and_events_equal(
    bootstrap: str, topic: str, server: PostgresServer
) -> None:
    ledger, is_over, kills = Ledger(server.connect, "%s").create(), threading.Event(), [0]

    def kill() -> None:
        while not is_over.wait(0.4):
            server.kill()
            server.start()
            kills[0] += 1

    killer = threading.Thread(target=kill)
    killer.start()
    until_s, failed, number = time.monotonic() + 4, 0, 0
    try:
        with BlockingDualWriter(bootstrap, topic, server.connect) as writer:
            while time.monotonic() < until_s or number < 20:
                number += 1
                try:
                    with writer.transaction() as work:
                        work.execute(ledger.insert, (number, 5))
                        work.send(topic, b"%d" % number)
                except psycopg.OperationalError:
                    failed += 1
    finally:
        is_over.set()
        killer.join()
    assert_equal(bootstrap, topic, ledger)
    assert kills[0] > 0 and len(ledger.rows()) > 10, (kills, failed, number)
    print(f"{number} transfers, {failed} failed, {kills[0]} kills", file=sys.stderr)
