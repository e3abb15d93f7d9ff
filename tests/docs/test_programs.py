"""Test that the programs on the pages behave as the page describes."""

import ast
import asyncio
import inspect
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trustme

from oncelog.client import BlockingAdmin, BlockingConsumer, BlockingProducer, Consumer, Producer
from oncelog.deploy.cluster.local_cluster import Cluster

from ..waiting import until
from .blocks import ROOT, Block, block

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("docs")]
FOREVER_S = 120  # for a program without an end, until it has done its work
PROGRAMS = ROOT / "tests/proof/prove/programs"


async def execute(piece: Block, names: dict[str, Any]) -> None:
    """Run one block of a docs page's program with `names` as its global variables.

    The block may contain `await` outside functions.
    """
    code = compile(piece.text, piece.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)
    if inspect.iscoroutine(result):
        await result


def test_client_page_column_example_sends_and_reads_all_records(running: Cluster) -> None:
    values = [b"%d" % number for number in range(100)]
    names: dict[str, Any] = {"values": values}
    with BlockingAdmin(running.bootstrap) as admin:
        admin.create_topic("orders", partitions=1)

    async def both() -> list[bytes | None]:
        async with Producer(running.bootstrap) as names["producer"]:
            await execute(block("docs/client.md", "send_many("), names)
        found: list[bytes | None] = []
        read = block(
            "docs/client.md", "poll_columns(", {"columns.between(": "between = columns.between("}
        )
        async with Consumer(running.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([("orders", 0)])
            names.update(consumer=consumer, first_offset=2, end_offset=5)
            while len(found) < len(values):
                names.pop("columns", None)
                await execute(read, names)
                if "columns" in names:
                    found += names["columns"].values
        return found

    assert asyncio.run(both()) == values
    assert sum(each.record_count for each in names["ranges"]) == len(values)


def test_client_page_first_program_prints_the_record_that_it_wrote(running: Cluster) -> None:
    first = block("docs/client.md", "asyncio.run(", {"127.0.0.1:9092": running.bootstrap})
    done = subprocess.run(
        [sys.executable, "-c", first.text], capture_output=True, timeout=60, check=True, text=True
    )
    assert done.stdout == "b'world' b'hello'\n"


def test_client_page_login_example_creates_a_consumer(tmp_path: Path, monkeypatch) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"Consumer": Consumer, "password": "secret"}

    async def made() -> None:
        await execute(block("docs/client.md", "sasl.mechanism"), names)
        await names["consumer"].close()

    asyncio.run(made())
    assert "secret" not in repr(names["consumer"])


ACCOUNTS = """
import asyncio, sqlite3
from oncelog.client import (
    BlockingConsumer, BlockingDualWriter, BlockingOutboxWriter, OutboxRelay
)
bootstrap = {bootstrap!r}
def connect():
    return sqlite3.connect({file!r}, timeout=20)
setup = connect()
setup.execute("CREATE TABLE IF NOT EXISTS accounts (id INTEGER PRIMARY KEY, balance INTEGER)")
setup.execute("CREATE TABLE IF NOT EXISTS seen (value BLOB)")
setup.commit()
"""


def program(file: Path, cluster: Cluster, *pieces: Block) -> list[str]:
    """Write a program to `file`, and return the command that runs it.

    The program creates a database, and then runs blocks of a docs page.
    """
    bank = str(file.with_suffix(".db"))
    text = ACCOUNTS.format(bootstrap=cluster.bootstrap, file=bank)
    file.write_text(text + "\n".join(piece.text for piece in pieces), encoding="utf-8")
    return [sys.executable, str(file)]


def values_in(file: Path) -> list[bytes]:
    with closing(sqlite3.connect(file.with_suffix(".db"), timeout=20)) as bank:
        try:
            return [value for (value,) in bank.execute("SELECT value FROM seen")]
        except sqlite3.OperationalError:  # the program has not begun yet
            return []


def test_databases_page_consumer_example_writes_each_record_as_a_row(
    running: Cluster, tmp_path: Path
) -> None:
    with BlockingAdmin(running.bootstrap) as admin:
        admin.create_topic("transfers", partitions=3)
    with BlockingProducer(running.bootstrap) as producer:
        producer.send_many("transfers", [b"%d" % number for number in range(10)])
    file = tmp_path / "into_database.py"
    command = program(file, running, block("docs/databases.md", "work.consumed("))
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: len(values_in(file)) >= 10 or process.poll() is not None, "", FOREVER_S)
    finally:
        process.kill()
        _, told = process.communicate()
    assert sorted(values_in(file)) == sorted(b"%d" % number for number in range(10)), told


def test_databases_page_outbox_example_sends_each_row_as_a_record(
    running: Cluster, tmp_path: Path
) -> None:
    with BlockingAdmin(running.bootstrap) as admin:
        admin.create_topic("mails", partitions=1)
    row = {'"UPDATE ..."': '"UPDATE accounts SET balance = 0"', '"transfers"': '"mails"'}
    writes = block("docs/databases.md", "as writer:        # no Kafka here", row)
    relays = block("docs/databases.md", "OutboxRelay(", {'"127.0.0.1:9092"': "bootstrap"})
    command = program(tmp_path / "relay.py", running, writes, relays)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        with BlockingConsumer(running.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([("mails", 0)])
            found: list[Any] = []
            until(
                lambda: found.extend(consumer.poll(timeout_ms=200)) or found or process.poll(),
                "a record of the outbox", FOREVER_S,
            )  # fmt: skip
    finally:
        process.kill()
        _, told = process.communicate()
    assert [(record.key, record.value) for record in found] == [(b"1", b"10")], told


@pytest.mark.parametrize(
    ("page", "has", "file"),
    [
        ("docs/prove.md", "while not over:", "at_least_once.py"),
        ("docs/prove.md", "outsider.consumer_group_metadata", "unfenced.py"),
        ("docs/prove.md", "producer.begin_transaction()", "transactional.py"),
    ],
)
def test_page_excerpt_matches_the_lines_of_its_program_file(page: str, has: str, file: str) -> None:
    there = [line.strip() for line in (PROGRAMS / file).read_text(encoding="utf-8").splitlines()]
    at = 0
    for line in map(str.strip, block(page, has).text.splitlines()):
        assert line in there[at:], f"{file} has no line {line!r} after those before it"
        at = there.index(line, at) + 1
