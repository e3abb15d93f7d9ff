"""Test the README's Spark program, unchanged, killed, and on a Spark cluster.

One of the clusters has executors without oncelog and its dependencies.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from oncelog.client import BlockingAdmin, BlockingProducer
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.wire.errors import KafkaError

from ..interop.client_peers import read_to_end
from ..waiting import until
from .standalone import ENVIRONMENT, LIMIT_S, standalone

pytestmark = [pytest.mark.spark_slow, pytest.mark.xdist_group("spark")]
ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
COUNT = 100_000


@pytest.fixture
def program(tmp_path: Path, cluster: Cluster, admin: BlockingAdmin) -> Iterator[Path]:
    """Write the README's program to a file, and create its topics with the orders."""
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
        with contextlib.suppress(KafkaError):  # the program may have failed before
            admin.delete_topics([topic])


def environment(cluster: Cluster) -> dict[str, str]:
    return {**os.environ, **ENVIRONMENT, "KAFKA_BOOTSTRAP_SERVERS": cluster.bootstrap}


def run(
    command: list[str],
    cluster: Cluster,
    folder: Path,
    more: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.Popen[bytes]:
    with open(folder / "program.log", "ab") as log:
        return subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log, env={**environment(cluster), **more}
        )


def invoices(cluster: Cluster) -> list[int]:
    found = asyncio.run(read_to_end(cluster.bootstrap, "invoices"))
    return sorted(int((row.value or b"").removeprefix(b"invoice ")) for row in found)


def test_readme_spark_program_killed_midway_resumes_exactly_once(
    program: Path, cluster: Cluster
) -> None:
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


def test_readme_spark_program_runs_unchanged_on_a_spark_cluster(
    program: Path, cluster: Cluster
) -> None:
    folder = program.parent
    with standalone(folder, environment(cluster)) as spark:
        submit = [str(spark.home / "bin" / "spark-submit"), "--master", spark.url]
        submit += ["--conf", "spark.executor.memory=512m", "--conf", "spark.driver.host=127.0.0.1"]
        done = run([*submit, program.name], cluster, folder)
        assert done.wait(LIMIT_S) == 0, (folder / "program.log").read_text()[-3000:]
        assert spark.worked()
    assert invoices(cluster) == list(range(COUNT))


def pack(folder: Path) -> None:
    """Write a Python environment with all packages that a task needs, and an archive of the
    environment.
    """
    hidden = shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__", "tests")
    shutil.copytree(ROOT, folder / "source", ignore=hidden)
    subprocess.run(
        [sys.executable, "-m", "venv", "--copies", "environment"], check=True, cwd=folder
    )
    pip = ["environment/bin/python", "-m", "pip", "install", "-q"]
    packages = [str(folder / "source"), "pyarrow>=18", "pandas>=2.2,<3", "numpy"]
    subprocess.run([*pip, *packages], check=True, cwd=folder, timeout=LIMIT_S)
    tar = ["tar", "czf", "environment.tgz", "-C", "environment", "."]
    subprocess.run(tar, check=True, cwd=folder)


def test_spark_executors_without_packages_use_a_packed_environment(
    program: Path, cluster: Cluster
) -> None:
    folder = program.parent
    pack(folder)
    seen = 'print("imported from", spark.sparkContext.parallelize([0]).map('
    seen += 'lambda _: __import__("oncelog").__file__).first())\n'
    program.write_text(program.read_text(encoding="utf-8") + seen, encoding="utf-8")
    bare = {"PYTHONPATH": "", "SPARK_LOCAL_IP": "127.0.0.1"}
    with standalone(folder, bare) as spark:
        submit = [str(spark.home / "bin" / "spark-submit"), "--master", spark.url]
        submit += ["--conf", "spark.executor.memory=512m", "--conf", "spark.driver.host=127.0.0.1"]
        submit += ["--archives", "environment.tgz#environment"]
        told = {
            "PYSPARK_PYTHON": "environment/bin/python",
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        done = run([*submit, program.name], cluster, folder, told)
        assert done.wait(LIMIT_S) == 0, (folder / "program.log").read_text()[-3000:]
        assert spark.worked()
    assert invoices(cluster) == list(range(COUNT))
    (place,) = re.findall(r"imported from (\S+)", (folder / "program.log").read_text())
    assert place.startswith(str(folder / "worker-")) and "/environment/" in place
