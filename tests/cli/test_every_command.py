"""Test every command in terminals of 80 and of 40 columns, against a running cluster."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.cli.main import build
from oncelog.client.producer import Producer
from oncelog.deploy.cluster.local_cluster import Cluster

from ..programs import CLI
from .test_widths import WIDTHS, Screen, broken, commands

PROGRAMS = Path(__file__).parents[1] / "proof/prove/programs"
SHORT = """
up; ps; ps --all; env; doctor; doctor --probe --seconds 1; logs 1 --lines 5
topic list; topic describe orders; topic create a b --partitions 2
topic alter a retention.ms=1000; topic delete a nosuch
produce orders lines.txt; consume orders -n 3
log dump orders/0
group list; group describe readers; group reset readers --to earliest; group delete nosuch
top --once; acl list; acl add --allow User:a --topic orders; acl remove --topic orders
txn list; txn describe billing; txn describe open; txn explain open; txn producers orders/0
txn hanging; txn log 0
why orders/0; txn check-back --resolver sqlite:///none.db --once
inject --api EndTxn --lose-answer --seconds 1
observe --seconds 1; observe --group readers --seconds 1; txn abort open; why orders/0
kill 1; ps; doctor; start 1; pause 1; resume 1; restart 1; stop 2; topic list; start 2
partition 1/2,3; slow 2 20ms; ps; doctor; heal; clock show; clock advance 1s
profile list; profile set here --bootstrap 127.0.0.1:1; profile use here; profile list
profile delete here; conformance; certify
help; help consume; check --catalogue; nosuch; topic describe nosuch; kill nobody
"""
LONG = """
bench replication --rf 1,3 --acks all --record-size 100 --batch-size 16384 -r 1 --seconds 0.5
bench txn --records 10 --partitions 1 --repetitions 1 --seconds 0.5; bench failover --kills 1
chaos run --seconds 5 --out RUN; chaos report RUN; check RUN; chaos replay RUN
prove --in orders-in --out invoices --seconds 5 --seed 7 -- python transactional.py
certify oncelog-transactional --seeds 1 --seconds 4
demo --job transfers --seconds 10; down
"""
REWRITTEN = re.compile(r"\r(?:\x1b\[K)?")  # text after this sequence overwrites the line
NO_SCREEN = {
    "node": "its log, for a file", "completion": "a script, for a shell",
    **dict.fromkeys(("ui", "metrics", "events"), "until it is ended: tests/ui"),
    "lesson": "a reader answers it: tests/proof/lesson",
}  # fmt: skip


def listed(text: str) -> Iterator[list[str]]:
    for command in text.replace("\n", ";").split(";"):
        if command.strip():
            yield command.split()


def test_command_of_each_name_is_run_in_a_terminal_or_listed_as_exempt() -> None:
    every = set(commands(build()))
    leaves = {path for path in every if not any(p[:-1] == path for p in every if p)}
    tried = {tuple(words[:n]) for words in listed(SHORT + LONG) for n in (1, 2)}
    assert {" ".join(path) for path in leaves - tried} == set(NO_SCREEN)


@pytest.mark.chaos
@pytest.mark.cluster
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("listing", [SHORT, LONG], ids=["short", "long"])
def test_command_of_each_name_on_a_narrow_terminal_breaks_lines_only_between_words(
    tmp_path: Path, listing: str, width: int
) -> None:
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    shutil.copy(PROGRAMS / "transactional.py", tmp_path)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": path}
    for name in ("COLUMNS", "ONCELOG_BOOTSTRAP", "KAFKA_BOOTSTRAP_SERVERS", "ONCELOG_PROFILES"):
        environment.pop(name, None)
    wrong: dict[str, list[str]] = {}
    with Cluster(3, data=tmp_path / ".oncelog", clock="controlled") as cluster:
        cluster.ask(fill)
        for words in listed(listing):
            screen = Screen(width)
            with os.fdopen(screen.theirs, "wb") as terminal:
                subprocess.run(
                    [*CLI, *words], stdin=terminal, stdout=terminal, stderr=terminal,
                    cwd=tmp_path, env=environment, check=False, timeout=400,
                )  # fmt: skip
            lines = [piece for line in screen.lines() for piece in REWRITTEN.split(line)]
            if "Traceback (most recent call last):" in lines:
                wrong[" ".join(words)] = lines
            elif too_wide := broken(lines, width):
                wrong[" ".join(words)] = too_wide
    assert wrong == {}


async def fill(admin: Any) -> None:
    """Write committed records, create a consumer group, and leave a transaction open."""
    await admin.create_topic("orders", partitions=1)
    async with Producer(admin.view, transactional_id="billing") as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        for number in range(5):
            await producer.send("orders", b"%d" % number, key=b"k")
        await producer.commit_transaction()
    await admin.groups.commit("readers", {("orders", 0): 2})
    stopped = Producer(admin.view, transactional_id="open")
    await stopped.init_transactions()
    await stopped.begin_transaction()
    await (await stopped.send("orders", b"open"))
