"""A service of the demo, which writes transfers, each a row and an event, in transactions.

    python -m oncelog.proof.demo.transfers.service '{"connection": ..., "writer": ..., ...}'

The service reports its steps on stdout, as lines of JSON. Its parent may write a step and the
number of a signal into a file (`ServiceSettings.trap`). At that step the service deletes the file
and sends itself the signal, so that faults hit the right moment.
"""

import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from ....client import DecisionInDoubt, DecisionOverruled
from ....client.dual_write.steps import WriterPhase
from ....client.dual_write.stop_words import WriterSuperseded
from ....deploy.cluster.secured.connection import client_config
from .broken import WRITERS, TellingWriter
from .database import TransferDatabase
from .transfer import PER_INCARNATION, AccountTransfer, drawn

FATAL = 3  # exit code that makes the parent restart it
REFUSED_SHARE = 0.05  # blocks that raise, as programs do
AFTER_FAILURE_S, SQLITE_PAUSE_S = 0.05, 0.03
PRODUCER: dict[str, Any] = {
    "linger_ms": 200,  # ended by a flush: records are sent when they are prepared
    "max_block_ms": 8_000,
    "retry_backoff_ms": 20,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    connection: str  # see deploy/cluster/secured/connection.py
    topic: str
    database: str
    folder: str
    seed: int
    broken: str
    writer: str = ""  # the name that it bears in the database
    name: str = ""  # of the process
    first: int = 0  # number of its transfers, of all incarnations
    incarnation: int = 0
    parent: int = 0  # pid of the parent, which may be gone before it can ask

    @property
    def trap(self) -> Path:
        return Path(self.folder) / f"{self.name}.trap"


class Service:
    def __init__(self, settings: ServiceSettings) -> None:
        self.settings, self.is_over = settings, False
        self.database = TransferDatabase(settings.database)
        writer = WRITERS[settings.broken]
        self.writer: TellingWriter = writer(
            client_config(settings.connection), settings.writer, self.database.connect, **PRODUCER
        )
        self.writer.meet = self._meet
        self._random = Random(f"{settings.seed} {settings.name} {settings.incarnation}")
        self._next = settings.first + settings.incarnation * PER_INCARNATION

    def run(self) -> None:
        """Write transfers until `is_over`, or raise the error that stopped the writer."""
        with self.writer:
            tell("session", self.writer.transactional_id)
            while not self.is_over and os.getppid() == self.settings.parent:
                self._transact()

    def _transact(self) -> None:
        transfers = drawn(self._random, self._next)
        self._next += len(transfers)
        numbers = [each.number for each in transfers]
        is_refused = self._random.random() < REFUSED_SHARE
        tell("began", numbers)
        try:
            with self.writer.transaction() as work:
                for each in transfers:
                    self._transfer(work, each)
                if is_refused:
                    raise ValueError("this transfer is refused")
        except (DecisionInDoubt, DecisionOverruled) as problem:
            tell("doubtful", numbers, type(problem).__name__)
            raise
        except Exception as problem:
            tell("failed", numbers, type(problem).__name__)
            if isinstance(problem, WriterSuperseded) or self.writer.phase is WriterPhase.STOPPED:
                raise
            if not is_refused:
                print(f"{type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
                time.sleep(AFTER_FAILURE_S)
        else:
            tell("committed", numbers)
            if self.database.is_sqlite:  # its lock goes to the next that asks
                time.sleep(SQLITE_PAUSE_S)

    def _transfer(self, work: Any, transfer: AccountTransfer) -> None:
        self.database.write(work.execute, transfer)
        work.send(self.settings.topic, transfer.event(), key=b"%d" % transfer.source)

    def _meet(self, moment: str) -> None:
        tell(moment)
        trap = self.settings.trap
        try:
            wanted, number = trap.read_text().split()
            if wanted != moment:
                return
            trap.unlink()
        except (FileNotFoundError, ValueError):  # maybe the parent has just removed it
            return
        tell("caught", moment)
        os.kill(os.getpid(), int(number))


def tell(*event: Any) -> None:
    """Print one report as a line of JSON, for the parent process."""
    # immediately, since the process may be killed next
    os.write(1, json.dumps(event).encode() + b"\n")


def main() -> int:
    """Run the service until SIGTERM. Return FATAL when the writer cannot continue."""
    service = Service(ServiceSettings(**json.loads(sys.argv[1])))

    def end(*_: Any) -> None:
        service.is_over = True

    signal.signal(signal.SIGTERM, end)
    try:
        service.run()
    except Exception as problem:
        tell("ended", type(problem).__name__)
        print(f"{type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
        return FATAL
    return 0


if __name__ == "__main__":
    sys.exit(main())
