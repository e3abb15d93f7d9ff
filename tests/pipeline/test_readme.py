"""The README's program: as it stands there, killed, and on a Spark cluster by options alone."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oncelog.client import BlockingAdmin, BlockingConsumer, BlockingProducer
from oncelog.deploy.local_cluster import Cluster
from oncelog.wire.errors import KafkaError

pytestmark = [pytest.mark.spark_slow, pytest.mark.xdist_group("spark")]
README = Path(__file__).resolve().parents[2] / "README.md"
COUNT = 100_000
LIMIT_S = 600


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
    ours = {"KAFKA_BOOTSTRAP_SERVERS": cluster.bootstrap, "PYSPARK_PYTHON": sys.executable}
    return {**os.environ, **ours, "SPARK_LOCAL_IP": "127.0.0.1"}


def run(command: list[str], cluster: Cluster, folder: Path) -> subprocess.Popen[bytes]:
    with open(folder / "program.log", "ab") as log:
        return subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log, env=environment(cluster)
        )


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.1)


def invoices(cluster: Cluster) -> list[int]:
    found: list[int] = []
    with BlockingConsumer(cluster.bootstrap, isolation_level="read_committed") as consumer:
        ends = consumer.end_offsets([("invoices", partition) for partition in range(3)])
        consumer.assign(dict.fromkeys(ends, 0))
        while any(consumer.position(*key) < end for key, end in ends.items()):
            for columns in consumer.poll_columns():
                found += [int(value.removeprefix(b"invoice ")) for value in columns.values if value]
    return sorted(found)


def test_a_killed_program_goes_on_exactly_once(program: Path, cluster: Cluster) -> None:
    folder = program.parent
    first = run([sys.executable, program.name], cluster, folder)
    commit = folder / "invoices-checkpoint/commits/3"
    until(lambda: commit.exists() or first.poll() is not None, "the fourth batch")
    assert commit.exists(), (folder / "program.log").read_text()[-3000:]
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert 0 < len(invoices(cluster)) < COUNT
    second = run([sys.executable, program.name], cluster, folder)
    assert second.wait(LIMIT_S) == 0, (folder / "program.log").read_text()[-3000:]
    assert invoices(cluster) == list(range(COUNT))


def test_the_same_file_on_a_spark_cluster(program: Path, cluster: Cluster) -> None:
    import pyspark

    folder, home = program.parent, Path(pyspark.__file__).parent
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, main_class: str, *arguments: str) -> Path:
        log = folder / f"{name}.log"
        with open(log, "wb") as out:
            command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{main_class}"]
            command += [*arguments, "--webui-port", "0"]
            env = environment(cluster) | {"SPARK_WORKER_DIR": str(folder / name)}
            started.append(subprocess.Popen(command, stdout=out, stderr=out, env=env))
        return log

    def url() -> str:
        found = re.search(r"Starting Spark master at (spark://\S+)", master.read_text())
        return found[1] if found else ""

    try:
        master = start("master", "master.Master", "--host", "127.0.0.1", "--port", "0")
        until(url, "the master")
        workers = [
            start(f"worker-{n}", "worker.Worker", "--host", f"127.0.0.{n}", "-c", "1", "-m", "1g",
                  url())
            for n in (2, 3)
        ]  # fmt: skip
        until(lambda: master.read_text().count("Registering worker") == 2, "two workers")
        submit = [str(home / "bin" / "spark-submit"), "--master", url()]
        submit += ["--conf", "spark.executor.memory=512m", "--conf", "spark.driver.host=127.0.0.1"]
        done = run([*submit, program.name], cluster, folder)
        assert done.wait(LIMIT_S) == 0, (folder / "program.log").read_text()[-3000:]
        for worker in workers:
            assert "Launching Spark executor" in worker.read_text() or (
                "Asked to launch executor" in worker.read_text()
            )
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert invoices(cluster) == list(range(COUNT))
