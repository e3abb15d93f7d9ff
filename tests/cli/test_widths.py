"""Test that output fits terminals of 80 and of 40 columns without a broken word."""

import fcntl
import io
import os
import pty
import re
import struct
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import pytest
from cyclopts import App
from rich.console import Console

from oncelog.cli import cluster as c
from oncelog.cli import groups, profile, topics, transactions
from oncelog.cli.bench import REPLICATION_OPTIONAL, TRANSACTION_OPTIONAL
from oncelog.cli.main import build
from oncelog.cli.security import acls
from oncelog.deploy.cluster.terminal import say, show, show_one, tell
from oncelog.deploy.inspect.doctor import HealthCheck
from oncelog.deploy.inspect.explain import Explanation
from oncelog.proof.judge.report import catalogue_rows

WIDTHS = (80, 40)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
NODE = {
    "node": 1, "kafka": "127.0.0.1:29709", "pid": 3820456, "state": "running",
    "role": "controller", "leads": 49, "rss_mb": 149, "cpu_s": 1234.5, "up_s": 86400.0,
    "stall_ms": 250,
}  # fmt: skip
PROBE = {
    "node": 1, "answers": 1998, "p50_ms": 0.4, "p99_ms": 3.25, "max_ms": 212.5, "silent_ms": 0.0,
    "less_wait_ms": 20.5, "lost": 0, "fences": 0, "waited_ms": 3.4, "cpu_s": 12.5, "rss_mb": 80,
}  # fmt: skip
ID = "oncelog.spark.flights-sums.g3.adefcc83fe72948a.6"
TXN = {
    "id": ID, "coordinator": 2, "producer": 4001, "epoch": 3, "state": "CompleteCommit",
    "open_s": 12.5, "timeout_s": 60.0, "partitions": 6,
}  # fmt: skip
PRODUCER = {
    "producer": 4001, "epoch": 3, "last_sequence": 1999, "last_write_s": 1.5,
    "coordinator_epoch": 7, "open_since": 200, "partition": "orders/0", "id": "billing-worker-7",
}  # fmt: skip
LOG = {
    "index": 120, "term": 3, "id": "billing-worker-7", "state": "PrepareCommit", "producer": 4001,
    "epoch": 3, "timeout_ms": 60000, "partitions": ["orders/0", "orders/1"],
    "started": "12:00:00.000", "updated": "12:00:01.000", "note": "the marker is not written yet",
}  # fmt: skip
PARTITION = {
    "topic": "enriched-flights", "partition": 5, "leader": 2, "leader_epoch": 7,
    "replicas": [1, 2, 3], "isr": [1, 2, 3], "start": 0, "end": 336776,
}  # fmt: skip
OFFSET = {
    "topic": "enriched-flights", "partition": 5, "committed": 1000, "end": 336776, "lag": 335776,
    "member": "rdkafka-8f3c5a0e-52c1-4b1e-9a51-6a0c6ff3b9a1", "host": "/127.0.0.1",
    "from": 10, "to": 20,
}  # fmt: skip
BENCH = {
    "RF": 3, "ACKS": "all", "MIN.ISR": 2, "RECORD B": 1000, "BATCH B": 1000000,
    "RECORDS/s": 156670, "MB/s": 156.67, "LOW-HIGH": "132.6-180.8", "p50 ms": 0.97,
    "p99 ms": 19.71, "p99.9 ms": 27.65, "CPU s/GB": 4.58, "RSS MB": 65, "SENT MB/MB": 2.02,
    "MSGS/MB": 3.9, "SWITCHES/MB": 4.42, "FLOOR s/GB": 1.2, "x FLOOR": 3.8,
}  # fmt: skip
BENCH_TXN = {
    "RECORDS": 1000, "PARTITIONS": 10, "TRANSACTIONS/s": 123.4, "RECORDS/s": 123400,
    "COMMIT p50 ms": 3.2, "p99 ms": 9.5, "WHOLE p50 ms": 8.1, "PLAIN p50 ms": 4.9,
    "OVERHEAD ms": 3.2, "% OF PLAIN": 165.3,
}  # fmt: skip
HEALTH = HealthCheck(
    "node 2", "bad", "it does not answer at 127.0.0.1:29709: Connection refused",
    "oncelog logs 2",
)  # fmt: skip
Columns = Mapping[str, str] | None
TABLES: dict[str, tuple[dict[str, Any], Columns, Sequence[str]]] = {
    "ps": (NODE, c.NODE_COLUMNS, c.NODE_OPTIONAL),
    "ps of a cut node": (
        NODE | {"faults": "20 ms late; cut from 3"}, c.BROKEN_COLUMNS, c.NODE_OPTIONAL,
    ),
    "ps of a full disk": (
        NODE | {"faults": "the disk is full (No space left on device)"}, c.BROKEN_COLUMNS,
        c.NODE_OPTIONAL,
    ),
    "ps --all": (
        {"nodes": 3, "running": 3, "directory": "/home/somebody/a-project/with-tests/.oncelog"},
        c.CLUSTER_COLUMNS, (),
    ),
    "up": (NODE, c.STARTED_COLUMNS, ()),
    "doctor": (asdict(HEALTH), None, ()),
    "doctor --probe": (PROBE, c.PROBE_COLUMNS, c.PROBE_OPTIONAL),
    "topic list": (
        {"topic": "enriched-flights", "partitions": 6, "replicas": 3, "out of sync": 0,
         "leaderless": 0}, topics.TOPIC_COLUMNS, (),
    ),
    "topic describe": (PARTITION, topics.PARTITION_COLUMNS, ("leader_epoch", "replicas")),
    "group list": (
        {"group": "billing", "state": "Reconciling", "type": "consumer", "protocol": "consumer",
         "coordinator": 2},
        groups.GROUP_COLUMNS, groups.GROUP_OPTIONAL,
    ),
    "group describe, members": (
        {"member": "deebf898-858a-4566-b3aa-558a8f212143", "instance": "billing-1", "epoch": 12345,
         "partitions": 1000, "target": 1000, "host": "/192.168.100.200"},
        groups.MEMBER_COLUMNS, groups.MEMBER_OPTIONAL,
    ),
    "group describe": (OFFSET, groups.OFFSET_COLUMNS, ("host", "member")),
    "group reset": (OFFSET, groups.RESET_COLUMNS, ()),
    "acl list": (
        {"principal": "User:billing-service", "permission": "Allow", "operation": "DescribeConfigs",
         "resource": "TransactionalId", "name": "billing-", "pattern": "Prefixed",
         "host": "192.168.100.200"},
        acls.ACL_COLUMNS, acls.ACL_OPTIONAL,
    ),
    "txn list": (TXN, transactions.LISTING_COLUMNS, transactions.LISTING_OPTIONAL),
    "txn producers": (PRODUCER, transactions.PRODUCER_COLUMNS, transactions.PRODUCER_OPTIONAL),
    "txn hanging": (PRODUCER, transactions.HANGING_COLUMNS, transactions.PRODUCER_OPTIONAL),
    "txn abort": (
        {"id": ID, "outcome": "aborted", "reason": "its producer is fenced by epoch 4 from now on"},
        transactions.ABORTED_COLUMNS, (),
    ),
    "txn log": (LOG, transactions.LOG_COLUMNS, transactions.LOG_OPTIONAL),
    "bench replication": (BENCH, None, REPLICATION_OPTIONAL),
    "bench txn": (BENCH_TXN, None, TRANSACTION_OPTIONAL),
    "profile list": (
        {"profile": "staging", "current": True, "bootstrap": "10.0.0.7:9092,10.0.0.8:9092",
         "command_config": "/home/me/client.properties", "registry": "http://10.0.0.9:8081"},
        profile.COLUMNS, (),
    ),
}  # fmt: skip


class Screen:
    """A pseudo-terminal of a given width that keeps its output."""

    def __init__(self, width: int) -> None:
        self._ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
        self._written = bytearray()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):  # EIO: the other end of the terminal is closed
            while some := os.read(self._ours, 65536):
                self._written += some

    def lines(self) -> list[str]:
        """Wait until the terminal is closed, and return its lines without trailing spaces."""
        self._reader.join(60)
        os.close(self._ours)
        text = COLOURS.sub("", self._written.decode().replace("\r\n", "\n"))
        return [line.rstrip() for line in text.split("\n")]


@pytest.fixture
def on_screen(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], object]], list[str]]:
    """Return a function that calls `work` and returns the lines that it printed.

    They are printed to a terminal with `width` columns.
    """
    monkeypatch.delenv("COLUMNS", raising=False)

    def lines(width: int, work: Callable[[], object]) -> list[str]:
        screen = Screen(width)
        with monkeypatch.context() as patch, os.fdopen(screen.theirs, "w") as file:
            patch.setattr(sys, "stdout", file)
            patch.setattr(sys, "stderr", file)
            work()
        return screen.lines()

    return lines


def broken(lines: Sequence[str], width: int) -> list[str]:
    """Return the lines that are longer than `width` and have more than one word."""
    return [line for line in lines if len(line) > width and len(line.split()) > 1]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", TABLES)
def test_table_on_a_narrow_terminal_fits_and_wraps_only_between_words(
    on_screen, name: str, width: int
) -> None:
    row, columns, optional = TABLES[name]
    lines = on_screen(width, lambda: show([row, row], "table", columns=columns, optional=optional))
    assert not broken(lines, width)
    words = " ".join(lines).split()
    keys = [key for key in (columns or row) if key not in optional]
    for value in (row[key] for key in keys):
        for word in str(value).split() if isinstance(value, str) else ():
            assert word in words, f"{word} is broken or left out"


@pytest.mark.parametrize("name", TABLES)
def test_table_written_to_a_pipe_has_one_line_for_each_row(name: str, capsys) -> None:
    row, columns, optional = TABLES[name]
    show([row, row], "table", columns=columns, optional=optional)
    told = capsys.readouterr()
    assert len([line for line in told.out.split("\n") if line.strip()]) == 4
    assert told.err == ""


@pytest.mark.parametrize("width", WIDTHS)
def test_check_catalogue_table_on_a_narrow_terminal_fits(on_screen, width: int) -> None:
    assert not broken(on_screen(width, lambda: show(catalogue_rows(), "table")), width)


SENTENCE = (
    "readers of committed data stop at offset 200. The high watermark is 251, and so on and on."
)


@pytest.mark.parametrize("width", WIDTHS)
def test_sentence_on_a_narrow_terminal_is_wrapped_between_words_and_indented(
    on_screen, width: int
) -> None:
    why = Explanation(f"orders/0: {SENTENCE}", (("held by", SENTENCE), ("to end it", "x" * 60)))

    def work() -> None:
        tell(*why.in_words().split("\n"))
        say(f"  12.5 s  {SENTENCE}")
        show_one({"state": "Ongoing", "why": SENTENCE}, "table")

    lines = on_screen(width, work)
    assert not broken(lines, width)
    assert " ".join(" ".join(lines).split()).count(SENTENCE) == 4
    if width == 80:
        under = next(i for i, line in enumerate(lines) if line.startswith("  held by"))
        assert lines[under].index("readers") == len(lines[under + 1]) - len(
            lines[under + 1].lstrip()
        )


def commands(app: App, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each command, and of each group of commands."""
    yield path
    for name in app:
        if not name.startswith("-"):
            yield from commands(app[name], (*path, name))


WIDEST = [
    (), ("bench", "replication"), ("consume",), ("inject",), ("prove",), ("txn", "check-back"),
]  # fmt: skip


def helps(paths: Sequence[tuple[str, ...]], width: int, room: int) -> list[str]:
    """Return the lines of the help pages of commands on a terminal with `room` columns.

    The command tree is built for a terminal with `width` columns.
    """
    app, file = build(width), io.StringIO()
    console = Console(width=room, file=file)
    for path in paths:
        app.help_print(list(path), console=console)
    return file.getvalue().split("\n")


@pytest.mark.parametrize("paths", [WIDEST, pytest.param([], marks=pytest.mark.chaos)])
def test_help_on_a_narrow_terminal_fits_and_wraps_only_between_words(
    paths: Sequence[tuple[str, ...]],
) -> None:
    pages = paths or list(commands(build()))
    for width in WIDTHS:
        lines, wide = helps(pages, width, width), set(" ".join(helps(pages, width, 500)).split())
        assert not broken(lines, width)
        words = {word for line in lines for word in line.strip("╭─╮│╰╯").split()}
        assert words - wide == set()
