"""A Spark master with two workers, each on a loopback address of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ..waiting import until

LIMIT_S = 600.0
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # of a JVM: little is compiled
ENVIRONMENT = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
DAEMONS = {"SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED, "SPARK_DAEMON_MEMORY": "256m"}


class Standalone(NamedTuple):
    """A running Spark cluster, its URL and the logs of its workers."""

    home: Path  # of Spark
    url: str
    logs: tuple[Path, ...]

    def worked(self) -> bool:
        """Return whether each worker has launched an executor."""
        return all("Asked to launch executor" in log.read_text() for log in self.logs)


@contextmanager
def standalone(
    folder: Path,
    environment: Mapping[str, str] = ENVIRONMENT,
    cores: int = 1,
    memory: str = "1g",
) -> Iterator[Standalone]:
    """Run a Spark master and two workers. A task's second attempt needs another address."""
    import pyspark

    home = Path(pyspark.__file__).parent
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, main_class: str, *arguments: str) -> Path:
        log = folder / f"{name}.log"
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{main_class}"]
        command += [*arguments, "--webui-port", "0"]
        env = {**os.environ, **DAEMONS, **environment, "SPARK_WORKER_DIR": str(folder / name)}
        with open(log, "wb") as out:
            started.append(subprocess.Popen(command, stdout=out, stderr=out, env=env))
        return log

    def url() -> str:
        found = re.search(r"Starting Spark master at (spark://\S+)", master.read_text())
        return found[1] if found else ""

    try:
        master = start("master", "master.Master", "--host", "127.0.0.1", "--port", "0")
        until(url, "the master", LIMIT_S)
        logs = tuple(
            start(f"worker-{n}", "worker.Worker", "--host", f"127.0.0.{n}", "-c", str(cores),
                  "-m", memory, url())
            for n in (2, 3)
        )  # fmt: skip
        until(lambda: master.read_text().count("Registering worker") == 2, "two workers", LIMIT_S)
        yield Standalone(home, url(), logs)
    finally:
        for process in started:
            process.kill()
            process.wait()
