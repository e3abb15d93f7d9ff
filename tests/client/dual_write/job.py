"""A process that makes transfers by dual writes and sends itself a signal at a given point.

The points of a job are before and after each effect of the protocol (`before Decide`). The point
`in the commit` is after all statements and before COMMIT is sent.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oncelog.client import BlockingDualWriter, DualWriteError
from oncelog.client.dual_write import steps
from oncelog.client.dual_write.flow import Flow

from ... import own_nodes
from .ledger import Ledger

POINTS = (
    "after Claim",
    "after Initialize",
    "before Prepare",
    "after Prepare",
    "in the commit",
    "after Decide",
    "after EndAsDecided",
)


@dataclass(frozen=True)
class Job:
    """The settings of one service process.

    database: the path of a SQLite database, or the URL of PostgreSQL. at: the index, from 0, of the
    transfer in which the process sends itself the signal. signal: the signal.
    """

    bootstrap: str
    topic: str
    database: str
    folder: str
    first: int
    count: int
    point: str = ""
    at: int = 0
    signal: int = signal.SIGKILL

    @property
    def mark(self) -> Path:
        """Return the path of the file that the service creates when it reaches the point."""
        return Path(self.folder) / f"{self.first}.reached"

    @property
    def ledger(self) -> Ledger:
        return ledger_of(self.database)


def ledger_of(database: str, in_commit: Callable[[], None] | None = None) -> Ledger:
    """Return the transfers of a database. `in_commit` is called before each COMMIT is sent."""
    hook = in_commit or (lambda: None)
    if not database.startswith("postgresql:"):

        class Sqlite(sqlite3.Connection):
            def commit(self) -> None:
                hook()
                super().commit()

        return Ledger(lambda: sqlite3.connect(database, timeout=20, factory=Sqlite), "?")
    import psycopg

    class Postgresql(psycopg.Connection[Any]):
        def commit(self) -> None:
            hook()
            super().commit()

    return Ledger(lambda: Postgresql.connect(database, connect_timeout=5), "%s")


class MortalWriter(BlockingDualWriter):
    job: Job
    number = -1
    is_deciding = False

    def meet(self, point: str) -> None:
        job = self.job
        is_start = point.endswith(("Claim", "Initialize"))
        if point == job.point and (is_start or self.number == job.first + job.at):
            job.mark.touch()
            os.kill(os.getpid(), job.signal)

    def in_commit(self) -> None:
        if self.is_deciding:
            self.meet("in the commit")

    def _perform(self, effect: steps.Effect) -> Flow[steps.Event]:
        name = type(effect).__name__
        self.meet(f"before {name}")
        self.is_deciding = isinstance(effect, steps.Decide)
        event = yield from super()._perform(effect)
        self.is_deciding = False
        self.meet(f"after {name}")
        return event


def work(job: Job) -> None:
    hooks: list[Callable[[], None]] = []
    ledger = ledger_of(job.database, lambda: hooks[0]() if hooks else None)
    writer = MortalWriter(job.bootstrap, job.topic, ledger.connect)
    writer.job = job
    hooks.append(writer.in_commit)
    with writer:
        for number in range(job.first, job.first + job.count):
            writer.number = number
            try:
                with writer.transaction() as block:
                    block.execute(ledger.insert, (number, 5))
                    block.send(job.topic, b"%d" % number)
            except DualWriteError as problem:
                print(f"{type(problem).__name__}: {problem}", flush=True)


def begin(job: Job) -> subprocess.Popen[str]:
    command = [sys.executable, *own_nodes.program(__name__, json.dumps(asdict(job)))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


if __name__ == "__main__":
    work(Job(**json.loads(sys.argv[1])))
