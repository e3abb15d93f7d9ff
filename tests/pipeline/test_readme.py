"""The README's program: as it stands there, killed, and on a Spark cluster by options alone."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.client import BlockingAdmin, BlockingProducer
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.wire.errors import KafkaError

from ..interop.client_peers import read_to_end
from ..waiting import until
from .standalone import ENVIRONMENT, LIMIT_S, standalone

pytestmark = [pytest.mark.spark_slow, pytest.mark.xdist_group("spark")]
README = Path(__file__).resolve().parents[2] / "README.md"
COUNT = 100_000


@pytest.fixture
def program(tmp_path: Path, cluster: Cluster, admin: BlockingAdmin) -> Iterator[Path]:
    """The file, in a folder of its own; its topics are there, and the orders are in."""
    text = README.read_text(encoding="utf-8")
    (found,) = re.findall(r"```python\n(import os\nfrom oncelog\.pipeline.*?)```", text, re.DOTALL)
    file = tmp_path / "invoices.py"
    file.write_text(found, encoding="utf-8")
    for topic in ("orders", "invoices"):
        admin.create_topic(topic, partitions=3)
    with BlockingProducer(cluster.bootstrap) as producer:
        producer.send_many("orders", [b"%d" % number for number in range(COUNT)])
    yield file
    for topic in ("orders", "invoices", "oncelog.spark.decisions"):
        with contextlib.suppress(KafkaError):  # the program may have failed before it made it
            admin.delete_topics([topic])


def environment(cluster: Cluster) -> dict[str, str]:
    return {**os.environ, **ENVIRONMENT, "KAFKA_BOOTSTRAP_SERVERS": cluster.bootstrap}


def run(command: list[str], cluster: Cluster, folder: Path) -> subprocess.Popen[bytes]:
    with open(folder / "program.log", "ab") as log:
        return subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log, env=environment(cluster)
        )


def invoices(cluster: Cluster) -> list[int]:
    found = asyncio.run(read_to_end(cluster.bootstrap, "invoices"))
    return sorted(int((row.value or b"").removeprefix(b"invoice ")) for row in found)


def test_a_killed_program_goes_on_exactly_once(program: Path, cluster: Cluster) -> None:
    folder = program.parent
    first = run([sys.executable, program.name], cluster, folder)
    commit = folder / "invoices-checkpoint/commits/3"
    until(lambda: commit.exists() or first.poll() is not None, "the fourth batch", LIMIT_S)
    assert commit.exists(), (folder / "program.log").read_text()[-3000:]
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert 0 < len(invoices(cluster)) < COUNT
    second = run([sys.executable, program.name], cluster, folder)
    assert second.wait(LIMIT_S) == 0, (folder / "program.log").read_text()[-3000:]
    assert invoices(cluster) == list(range(COUNT))


def test_the_same_file_on_a_spark_cluster(program: Path, cluster: Cluster) -> None:
    folder = program.parent
    with standalone(folder, environment(cluster)) as spark:
        submit = [str(spark.home / "bin" / "spark-submit"), "--master", spark.url]
        submit += ["--conf", "spark.executor.memory=512m", "--conf", "spark.driver.host=127.0.0.1"]
        done = run([*submit, program.name], cluster, folder)
        assert done.wait(LIMIT_S) == 0, (folder / "program.log").read_text()[-3000:]
        assert spark.worked()
    assert invoices(cluster) == list(range(COUNT))
