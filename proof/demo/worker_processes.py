"""The demo's worker processes, and the transactions that they report."""

import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...deploy.faults.supervisor import Supervisor
from .worker import WorkerSettings

DRAINED_WITHIN_S = 0.05  # the last reports of a stopped worker have been read by then


@dataclass(slots=True)
class ReportedTransaction:
    """A transaction as its worker reports it. A transaction without records is not reported."""

    name: str
    worker: str
    records: int
    until: dict[int, int]  # partition -> next offset
    state: str = "began"
    error: str = ""  # the reason of the abort
    began_at: float = field(default_factory=time.monotonic)
    at: float = 0.0  # of the last report


class WorkerProcesses(Supervisor):
    """The worker processes. `transactions` are all transactions they reported, in order."""

    def __init__(self, settings: WorkerSettings, logs: Path) -> None:
        super().__init__(logs)
        self._settings = settings
        self.transactions: dict[str, ReportedTransaction] = {}
        self.last: dict[str, ReportedTransaction] = {}  # by worker

    def command(self, name: str, incarnation: int) -> list[str]:
        own = {"name": name, "incarnation": incarnation, "parent": os.getpid()}
        return ["-m", "oncelog.proof.demo.worker", json.dumps(asdict(self._settings) | own)]

    def pause(self, name: str) -> int:
        """Pause a worker, wait until its last report has been read, and return its pid."""
        pid = super().pause(name)
        time.sleep(DRAINED_WITHIN_S)
        return pid

    def committed_after(self, at: float) -> dict[str, float | None]:
        """Return when each worker first committed a transaction that it began after `at`."""
        found: dict[str, float | None] = dict.fromkeys(self.names)
        for each in list(self.transactions.values()):
            if each.state == "committed" and each.began_at > at and found[each.worker] is None:
                found[each.worker] = each.at
        return found

    def on_event(self, name: str, event: str, *arguments: Any) -> None:
        transaction, *more = arguments
        if event == "began":
            records, until = more
            self.transactions[transaction] = self.last[name] = ReportedTransaction(
                transaction, name, records, {int(p): offset for p, offset in until.items()}
            )
        elif transaction in self.transactions:  # "ended" names an error, and no transaction
            known = self.transactions[transaction]
            known.state, known.error = event, more[0] if more else ""
            known.at = time.monotonic()
