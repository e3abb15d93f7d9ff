"""Test `oncelog observe` with real applications of the gallery, and without faults."""

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from oncelog.client import BlockingProducer
from oncelog.deploy.cluster.local_cluster import Cluster

from ..interop.readers import new_topic
from ..waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.chaos]
PROGRAMS = Path(__file__).with_name("gallery") / "confluent"
LIMIT_S = 60
RECORDS = 200


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Yield the address of a cluster whose topic `orders` has a committed and an aborted half."""
    with Cluster(nodes=3) as cluster:
        for topic in ("orders", "invoices"):
            new_topic(cluster, topic, 2)
        with BlockingProducer(cluster.bootstrap, transactional_id="feeder") as producer:
            producer.init_transactions()
            for is_kept in (True, False):
                producer.begin_transaction()
                for number in range(RECORDS):
                    producer.send("orders", b"{}", key=b"%s-%d" % (str(is_kept).encode(), number))
                if is_kept:
                    producer.commit_transaction()
                else:
                    producer.flush()
                    producer.abort_transaction()
        yield cluster.bootstrap


@contextmanager
def observing(bootstrap: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    command = [sys.executable, "-m", "oncelog.cli", "observe", "--bootstrap", bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines: list[str] = []
        ends = queue.SimpleQueue[None]()

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line.rstrip("\n"))
            ends.put(None)

        threading.Thread(target=read, daemon=True).start()
        try:
            until(lambda: bool(lines), "no address", LIMIT_S)
            yield process, lines
        finally:
            process.terminate()
            ends.get(timeout=LIMIT_S)


@contextmanager
def application(address: str, name: str) -> Iterator[None]:
    environment = {
        **os.environ, "KAFKA_BOOTSTRAP_SERVERS": address, "ONCELOG_IN": "orders",
        "ONCELOG_OUT": "invoices", "ONCELOG_INSTANCE": name,
    }  # fmt: skip
    command = [sys.executable, str(PROGRAMS / "in_transactions.py"), name]
    with subprocess.Popen(command, env=environment) as process:
        try:
            yield
        finally:
            process.terminate()
            process.wait(LIMIT_S)


@pytest.mark.parametrize(
    ("name", "finding"),
    [("read_uncommitted", "read-uncommitted"), ("plain_producer_beside", "plain-producer")],
)
def test_observe_of_a_running_application_reports_its_mistake(bootstrap, name, finding):
    with observing(bootstrap) as (process, lines):
        address = lines[0].removeprefix("bootstrap.servers=")
        with application(address, name):
            until(lambda: any(finding in line for line in lines), lambda: "\n".join(lines), LIMIT_S)
    assert process.returncode == 1
    assert any(line.split()[:2] == ["wrong", finding] for line in lines)


def test_observe_without_a_client_exits_with_three(bootstrap):
    with observing(bootstrap) as (process, _):
        pass
    assert process.returncode == 3
