"""Test the flights job on Apache Kafka, with brokers killed while the job runs.

The job is configured by command-line options only.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.client import BlockingAdmin, BlockingProducer
from oncelog.pipeline.jobs.flights import FAILED
from oncelog.proof.demo import flights
from oncelog.proof.demo.output_judge import judge_outputs
from oncelog.proof.demo.reading import read_back
from oncelog.proof.demo.spark_engine import CONFS
from oncelog.proof.demo.window_sums import judge_window_sums

from ...interop.client_peers import PREPARES, SCAN
from ...interop.kafka_peer import KafkaPeer

pytestmark = [pytest.mark.spark_slow, pytest.mark.kafka, pytest.mark.xdist_group("spark")]
ROWS, OFFSETS_MAX, PARTITIONS = 30_000, 2_500, 3
SOURCE, ENRICHED, SUMS, TRANSACTION = "flights", "enriched-flights", "delays", 1
LIMIT_S, KILLS_MIN, STARTS_MAX = 900.0, 3, 10


@pytest.fixture(params=["prepared", "driver"])
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def kafka(mode: str, tmp_path: Path) -> Iterator[KafkaPeer]:
    """Run three Kafka nodes with the flights in a topic.

    Prepared transactions are enabled for the mode "prepared" only.
    """
    quick = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    prepares = PREPARES if mode == "prepared" else {}
    with KafkaPeer(tmp_path / "kafka", nodes=3, settings=SCAN | quick | prepares) as peer:
        with BlockingAdmin(peer.bootstrap) as admin:
            for topic in (SOURCE, ENRICHED, SUMS):
                admin.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
        keys, values = zip(
            *(flights.record(*row) for row in enumerate(flights.lines()[:ROWS])), strict=True
        )
        with BlockingProducer(peer.bootstrap) as producer:
            producer.send_many(SOURCE, values, keys=keys)
        yield peer


class Job:
    """A process with the flights job, restarted after a failure if its exit code permits it."""

    def __init__(self, bootstrap: str, mode: str, folder: Path) -> None:
        self.log, self.starts = folder / "job.log", 0
        self.checkpoint = folder / "checkpoint"
        airlines = flights.archive().parent / flights.AIRLINES
        self._command = [
            sys.executable, "-P", "-m", "oncelog.pipeline.jobs.flights",
            *("--bootstrap", bootstrap, "--checkpoint", self.checkpoint.as_uri(), "--mode", mode),
            *("--airlines", str(airlines), "--max-offsets", str(OFFSETS_MAX), "--available-now"),
            *("--master", "local[2,4]", *(word for conf in CONFS for word in ("--conf", conf))),
        ]  # fmt: skip
        self._process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        self.starts += 1
        assert self.starts <= STARTS_MAX, self.log.read_text()[-4000:]
        with open(self.log, "ab") as log:
            return subprocess.Popen(
                self._command, stdout=log, stderr=log, env={**os.environ, "PYTHONUNBUFFERED": "1"}
            )

    def runs(self) -> bool:
        """Return whether the job has not finished yet. A job that failed is restarted."""
        code = self._process.poll()
        if code == FAILED:
            self._process = self._start()
        assert code in (None, 0, FAILED), self.log.read_text()[-4000:]
        return code != 0

    def has_begun(self) -> bool:
        """Return whether both queries have started a second batch."""
        return all((self.checkpoint / name / "offsets/1").exists() for name in ("enriched", "sums"))

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


def struck(admin: BlockingAdmin, kill: int) -> int:
    """Return the node to kill next, in turn the output's leader, the input's, and a coordinator."""
    role = kill % 3
    if role == 2:
        return admin.run(
            lambda a: a.find_coordinator("oncelog.spark.flights-enriched.ctl", TRANSACTION)
        )
    partitions = admin.run(lambda a: a.describe_topics([(ENRICHED, SOURCE)[role]]))
    return partitions[kill % PARTITIONS].leader


def test_flight_job_on_apache_kafka_with_killed_brokers_writes_every_flight_once(
    kafka: KafkaPeer, mode: str, tmp_path: Path
) -> None:
    job, kills, deadline = Job(kafka.bootstrap, mode, tmp_path), 0, time.monotonic() + LIMIT_S
    try:
        while job.runs():
            assert time.monotonic() < deadline, job.log.read_text()[-4000:]
            if not job.has_begun():
                time.sleep(0.1)
                continue
            with BlockingAdmin(kafka.bootstrap) as admin:
                node = struck(admin, kills)
            kafka.kill(node)
            kills += 1
            time.sleep(1.0)
            kafka.start(node)
    finally:
        job.close()
    assert kills >= KILLS_MIN, f"only {kills} kills met the job at work"
    config = {"bootstrap.servers": kafka.bootstrap}
    inputs: dict[int, dict[int, bytes]] = {}
    for partition, offset, _, value in read_back(config, SOURCE, PARTITIONS):
        inputs.setdefault(partition, {})[offset] = value
    made = ((p, o, v) for p, o, _, v in read_back(config, ENRICHED, PARTITIONS))
    verdict = judge_outputs(
        inputs, made, read_back(config, SUMS, PARTITIONS), None, flights.airlines(),
        judge_sums=judge_window_sums,
    )  # fmt: skip
    assert not verdict.violations
    assert verdict.read == verdict.distinct == sum(map(len, inputs.values())) == ROWS
    with BlockingAdmin(kafka.bootstrap) as admin:
        opened = admin.run(lambda a: a.transactions.list_transactions(states=["Ongoing"]))
    assert opened == []
