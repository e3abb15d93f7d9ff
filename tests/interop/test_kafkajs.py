"""Test the Node.js client kafkajs, with older versions of every API and transactions V1.

The programs are in `javascript/`. npm fetches the library once for all tests of a run.
"""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.faults.protocol_proxy.proxy import ProtocolProxy
from oncelog.deploy.faults.protocol_proxy.rules import LoseAnswer, Match, Rule

from ..programs import printed_by
from .readers import fill, new_topic, read_to_end

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.cluster,
    pytest.mark.skipif(shutil.which("npm") is None, reason="no npm"),
    pytest.mark.xdist_group("kafkajs"),
]
VERSION = "2.2.4"
PROGRAM = Path(__file__).with_name("javascript") / "client.js"
LIMIT_S = 120


class Library:
    """A folder with kafkajs, in which its programs run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        install = ["npm", "install", "--no-audit", "--no-fund", f"kafkajs@{VERSION}"]
        printed_by(install, LIMIT_S, cwd=folder)
        shutil.copy(PROGRAM, folder)  # a program finds its libraries beside itself

    def start(self, bootstrap: str, action: str, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["node", PROGRAM.name, bootstrap, action, *arguments],
            cwd=self.folder, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(tmp_path_factory.mktemp("kafkajs"))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3) as running:
        yield running


def _outcome(process: subprocess.Popen[str], line: str | None = None) -> Any:
    """Send a line to the program, and return the JSON of its last line."""
    try:
        out, err = process.communicate(line, timeout=LIMIT_S)
    finally:
        process.kill()
    assert process.returncode == 0, f"{out[-2000:]}\n{err[-3000:]}"
    return json.loads(out.splitlines()[-1])


@pytest.mark.in_turn
def test_kafkajs_through_the_proxy_writes_reads_and_administers(cluster, library):
    with ProtocolProxy(cluster.bootstrap) as proxy:
        outcome = _outcome(library.start(proxy.address_for("js"), "writeAndRead"))
        assert {connection.instance for connection in proxy.connections} <= {"js"}
        assert len(proxy.brokers) == 3
    rows = outcome["rows"]
    assert len(rows) == 1000
    by_number = {int(headers["number"]): (key, value) for _, key, value, headers in rows}
    expected = {i: (f"k{i % 50}", None if i % 500 == 7 else f"{i}") for i in range(1000)}
    assert by_number == expected
    assert len({(key, partition) for partition, key, _, _ in rows}) == 50  # a key, one partition
    for partition in range(3):
        numbers = [int(headers["number"]) for p, _, _, headers in rows if p == partition]
        assert numbers == sorted(numbers)
    ends = {p["partition"]: int(p["high"]) for p in outcome["ends"]}
    assert sum(ends.values()) == 1000
    assert {p["partition"]: int(p["offset"]) for p in outcome["committed"]} == ends
    assert outcome["state"] == "Empty"
    assert sorted(outcome["partitions"]) == [[0, 3], [1, 3], [2, 3]]
    assert outcome["low"] == "3"
    assert "js-readers" not in outcome["left"]


@pytest.mark.in_turn
def test_kafkajs_transaction_after_an_abort_without_an_answer_loses_no_record(cluster, library):
    """Kafkajs reuses the sequence number of the unanswered batch until it gets a new epoch."""
    new_topic(cluster, "js-output", 1)
    with ProtocolProxy(cluster.bootstrap) as proxy:
        program = library.start(proxy.address_for("js"), "abortUnanswered")
        assert program.stdout is not None
        assert program.stdout.readline() == "lose\n"
        proxy.add(Rule(Match(apis={"Produce"}), LoseAnswer(), times=3))  # with two retries
        outcome = _outcome(program, "\n")
    assert outcome["outcomes"] == [
        "committed", "KafkaJSNumberOfRetriesExceeded", "UNKNOWN_PRODUCER_ID", "committed"
    ]  # fmt: skip
    values = [value for _, value in read_to_end(cluster.bootstrap, "js-output", 1)]
    assert values == [b"first", b"next"]


@pytest.mark.in_turn
@pytest.mark.parametrize(
    ("count", "victims"),
    [
        pytest.param(1_200, (), id="calm"),
        pytest.param(
            3_000,
            ("leader:js-output/0", "txn:js-copier", "group:js-copiers"),
            id="kills",
            marks=pytest.mark.chaos,
        ),
    ],
)
def test_kafkajs_transaction_commits_its_records_once(cluster, library, count, victims):
    for topic in ("js-input", "js-output"):
        new_topic(cluster, topic, 3)
    numbers = [(b"%d" % number, b"%d" % number, number % 3) for number in range(count)]
    fill(cluster.bootstrap, "js-input", numbers)

    copier = library.start(cluster.bootstrap, "transactions", str(count))
    assert copier.stdout is not None
    assert copier.stdout.readline() == "under way\n"
    for target in victims:
        assert copier.poll() is None, "it had ended before this kill"
        node = cluster.kill(target)
        time.sleep(0.5)  # the client continues without that node
        cluster.start(node)
        cluster.wait_for_isr("js-output", 3)
    outcome = _outcome(copier)
    assert outcome["committed"] > 0
    assert outcome["aborted"] > 0
    assert victims or not outcome["failures"]

    values = [int(value) for _, value in read_to_end(cluster.bootstrap, "js-output", 3)]
    assert sorted(values) == list(range(count)), f"{len(values)} values, {outcome}"
    assert len(read_to_end(cluster.bootstrap, "js-output", 3, committed=False)) > count
