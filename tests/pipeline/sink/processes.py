"""Run queries in processes that a test kills, and kill the nodes that these queries use."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

from oncelog.deploy.cluster.local_cluster import Cluster

from ...interop.kafka_peer import KafkaPeer

RUN_S = 900.0  # a busy machine takes minutes to start a JVM
ROOT = Path(__file__).parents[3]
DAEMON = ROOT / "tests" / "pipeline" / "daemon"
Nodes = Cluster | KafkaPeer
KAFKA_PREPARES = "kafka-prepares"  # Apache Kafka 4.4 with the settings of mode "prepared"


class AnyJob(Protocol):
    """A job with a folder for its files, and with its settings as JSON text."""

    @property
    def folder(self) -> str: ...

    def text(self) -> str: ...


class QueryProcess:
    """A process with a program of this folder. It runs a job in its own JVM, with a log file."""

    def __init__(self, job: AnyJob, program: str) -> None:
        self._log = Path(job.folder) / "log"
        paths = [str(ROOT), str(DAEMON), *filter(None, [os.environ.get("PYTHONPATH")])]
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", f"tests.pipeline.sink.{program}", job.text()],
                stdout=log, stderr=log, cwd=job.folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths),
                     "OPENBLAS_NUM_THREADS": "1"},
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def words(self) -> str:
        """Return the last 6,000 characters of the process's log."""
        return self._log.read_text()[-6000:]

    def runs(self) -> bool:
        return self._process.poll() is None

    def wait_for(self, file: Path) -> None:
        """Wait until the process has created this file.

        AssertionError is raised if the process ends earlier.
        """
        until_s = time.monotonic() + RUN_S
        while not file.exists():
            assert self.runs(), self.words
            assert time.monotonic() < until_s, self.words
            time.sleep(0.05)

    def end(self) -> int:
        """Wait for the end of the process, and return its exit code, negative for a signal."""
        try:
            return self._process.wait(RUN_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end: {self.words}") from None
        finally:
            self._process.kill()
            self._process.wait()


def kill_nodes_while(process: QueryProcess, nodes: Nodes, roles: tuple[str, ...]) -> int:
    """Kill and restart a node at a time while the process runs, nine times at most. Count them."""
    kills = 0
    while process.runs() and kills < 9:
        if isinstance(nodes, Cluster):
            node = nodes.kill(roles[kills % len(roles)])
        else:
            node = kills % 3 + 1
            nodes.kill(node)
        kills += 1
        time.sleep(1.5)
        nodes.start(node)
        time.sleep(1)
    return kills
