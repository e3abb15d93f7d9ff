"""Starts and stops the processes that run the clients of a run.

If a process ends by itself with an exit code other than STUCK, an error occurred that no workload
expects. Such an error is a failure of the run (`broken`), with the process's log as evidence.
"""

import os
import signal
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...deploy.faults.supervisor import Supervisor
from .load.order import STUCK, WorkerOrder


class ClientProcesses(Supervisor):
    """The processes that run the clients of the load.

    `errors` and `clients` have the counts that ended processes have reported.
    """

    restarts_max = None
    stop_timeout_s = 40.0

    def __init__(self, run: Path) -> None:
        super().__init__(run / "workers")
        self._orders: dict[str, WorkerOrder] = {}
        self.errors: Counter[str] = Counter()
        self.clients = self.stuck = 0
        self.broken: list[str] = []

    def add(self, name: str, order: WorkerOrder) -> None:
        """Start a process with this name and these settings. An ended process is started again."""
        self._orders[name] = order
        self.start(name)

    def remove(self, name: str) -> None:
        """Stop a process by SIGTERM, and do not start it again."""
        self.stop([name])
        del self._children[name]

    def command(self, name: str, incarnation: int) -> list[str]:
        order = self._orders[name]
        seed = f"{order.seed}/{name}/{incarnation}"
        seeded = replace(order, seed=seed, parent=os.getpid())
        return ["-m", "oncelog.proof.chaos.load.worker", seeded.to_json()]

    def on_event(self, name: str, event: str, *arguments: Any) -> None:
        clients, errors = arguments
        self.clients += clients
        self.errors.update(errors)

    def on_exit(self, name: str, code: int) -> None:
        if code == STUCK:
            self.stuck += 1
        else:
            self.broken.append(f"{name} ended with exit code {code}; {self.last_words(name)}")

    def stop(self, names: Iterable[str] | None = None) -> dict[str, int | None]:
        """Stop processes, and return their exit codes by name.

        A process that did not end properly is recorded in `broken`.
        """
        codes = super().stop(names)
        for name, code in codes.items():
            if code is None:
                self.broken.append(f"{name} did not end; {self.last_words(name)}")
            elif code not in (0, -signal.SIGTERM):  # SIGTERM ends a process that had hardly begun
                self.on_exit(name, code)
        return codes
