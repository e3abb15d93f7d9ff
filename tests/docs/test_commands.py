"""Test that blocks of commands print the output that their pages show."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.client import BlockingAdmin, BlockingProducer
from oncelog.deploy.cluster.local_cluster import Cluster

from .blocks import Step, block
from .shell import run, wrong_in

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("docs")]
STARTED = "oncelog start $(grep -o 'killed node [0-9]' shell.log | cut -c 13)"


def test_readme_example_of_a_lost_leader_prints_the_output_shown(folder: Path) -> None:
    shown = block("README.md", "oncelog start 1", {"oncelog start 1": STARTED})
    assert wrong_in(run(shown.steps(), folder)) == {}


def test_cluster_page_client_program_prints_the_output_shown(folder: Path) -> None:
    (folder / "orders.py").write_text(block("docs/cluster.md", "import confluent_kafka").text)
    step = Step(f"{sys.executable} orders.py", ("10000 records, each once and in order",))
    assert wrong_in(run([step], folder)) == {}


@pytest.mark.chaos
def test_testing_page_clock_commands_print_the_output_shown(folder: Path) -> None:
    steps = block("docs/testing.md", "oncelog up --clock controlled").steps()
    assert wrong_in(run(steps, folder)) == {}


STOPS = """
import os, sys
from oncelog.client import BlockingProducer

producer = BlockingProducer(sys.argv[1], transactional_id="app-1")
producer.init_transactions()
producer.begin_transaction()
producer.send("orders", b"stops here").result()
os.kill(os.getpid(), 9)
"""


def test_cluster_page_stuck_reader_commands_print_the_output_shown(running: Cluster) -> None:
    with BlockingAdmin(running.bootstrap) as admin:
        admin.create_topic("orders", partitions=1)
    with BlockingProducer(running.bootstrap) as producer:
        producer.send_many("orders", [b"%d" % number for number in range(200)])
        producer.flush()
        stopped = subprocess.run([sys.executable, "-c", STOPS, running.bootstrap], check=False)
        assert stopped.returncode == -signal.SIGKILL
        producer.send_many("orders", [b"%d" % number for number in range(50)])
    steps = block("docs/cluster.md", "oncelog why orders/0").steps()
    done = run([*steps, Step("oncelog txn log 1")], running.data.parent)
    for node in running.status():
        if node.state == "down":
            running.start(node.node_id)
    assert wrong_in(done) == {}


@pytest.mark.chaos
def test_records_page_commands_print_the_output_shown(running: Cluster) -> None:
    folder = running.data.parent
    with BlockingAdmin(running.bootstrap) as admin:
        for topic in ("billed", "images", "copy", "orders-1", "orders-2", "test-1"):
            admin.create_topic(topic, partitions=1)
    with BlockingProducer(running.bootstrap) as producer:
        for _ in range(18):
            producer.send("billed", b"\xff", key=b"k", headers=[("h", b"1")])
    for file in ("lines.txt", "more.txt", "photo.jpg"):
        (folder / file).write_bytes(b"a\nb\n")
    last = "oncelog consume billed --offset 17 --format json"
    shown = block("docs/records.md", '{"topic"', {"orders": "billed"}).text
    steps = [
        *block("docs/records.md", "consume orders -f -n 10", {"orders": "billed"}).steps(),
        Step(last, (shown, "1 record")),
        *block("docs/records.md", "seq 100 | oncelog produce orders", {"orders": "billed"}).steps(),
        *block("docs/records.md", "oncelog topic create a b c").steps(),
    ]
    assert wrong_in(run(steps, folder)) == {}


def test_records_page_profile_commands_print_the_output_shown(
    running: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "client.properties").write_text("security.protocol=PLAINTEXT\n")
    first = f"oncelog profile set other --bootstrap {running.bootstrap}"
    shown = block("docs/records.md", "oncelog profile use", {"10.0.0.7:9092": running.bootstrap})
    assert wrong_in(run([Step(first), *shown.steps()], tmp_path)) == {}
