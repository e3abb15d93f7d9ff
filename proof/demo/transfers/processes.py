"""Runs the demo's services and its check-back, and reads the reports of the services."""

import json
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ....client import DecisionOverruled
from ....deploy.cluster.failure import Failure
from ....deploy.cluster.node_process import wait_for_state
from ....deploy.cluster.secured.connection import connection_options
from ....deploy.faults.supervisor import STATE_TIMEOUT_S, Supervisor
from .. import reading
from .broken import NO_TOMBSTONE, PREPARED
from .service import ServiceSettings
from .transfer import PER_SERVICE

SERVICES = ("transfers-1", "transfers-2")
RIVAL = "rival"  # another process of the first service
WRITER_PREFIX = "demo."
OLDER_THAN_MS, EVERY_MS = 2_000, 250
OPEN = ("began", "prepared", "decided", "caught")
READY, START_TIMEOUT_S = b"looks every", 60.0
CAUGHT_TIMEOUT_S = 90.0  # on a busy machine


class ServiceOverruled(Failure):
    """The error of a service that found its row in the database and no event, for good.

    It ends with DecisionOverruled at each start, since it would hide the loss to continue.
    """


@dataclass(slots=True)
class Reported:
    """The last report of a service, and the time of its last commit."""

    event: str = ""
    session: str = ""
    caught: str = ""
    committed_at: float = 0.0


class TransferServices(Supervisor):
    """The processes of the services. `told` has the reported state of each transfer.

    A state is began, committed, failed or doubtful. A service that ends with DecisionOverruled
    makes every wait raise ServiceOverruled.
    """

    restarts_max = None  # each fault may end one; a service in a crash loop commits nothing

    def __init__(self, settings: ServiceSettings, logs: Path) -> None:
        super().__init__(logs)
        self._settings = settings
        self.told: dict[int, str] = {}
        self.reported: dict[str, Reported] = {}

    def settings_of(self, name: str) -> ServiceSettings:
        at = (*SERVICES, RIVAL).index(name)
        writer = WRITER_PREFIX + (SERVICES[0] if name == RIVAL else name)
        return replace(self._settings, name=name, writer=writer, first=at * PER_SERVICE)

    def command(self, name: str, incarnation: int) -> list[str]:
        self.reported[name] = Reported()
        own = {"incarnation": incarnation, "parent": os.getpid()}
        settings = json.dumps(asdict(self.settings_of(name)) | own)
        return ["-m", "oncelog.proof.demo.transfers.service", settings]

    def on_event(self, name: str, event: str, *arguments: Any) -> None:
        reported = self.reported[name]
        if event == "session":
            (reported.session,) = arguments
            return
        reported.event = event
        if event == "ended" and arguments == (DecisionOverruled.__name__,):
            self.failed = ServiceOverruled(
                f"{name} does not continue, because the database has committed a transaction that "
                f"Kafka has aborted. Its log: {self.log(name)}."
            )
        if event == "caught":
            (reported.caught,) = arguments
        elif event in ("began", "committed", "failed", "doubtful"):
            self.told.update(dict.fromkeys(arguments[0], event))
            if event == "committed":
                reported.committed_at = time.monotonic()

    # --- faults

    def set_trap(self, name: str, moment: str, signal_number: int) -> None:
        """Make the service send itself this signal when it reaches the step `moment`."""
        self.reported.setdefault(name, Reported()).caught = ""
        trap = self.settings_of(name).trap
        part = trap.with_suffix(".part")
        part.write_text(f"{moment} {int(signal_number)}")
        part.rename(trap)

    def await_caught(self, name: str, *, is_stopped: bool) -> None:
        deadline = time.monotonic() + CAUGHT_TIMEOUT_S
        while not self.wait(lambda: bool(self.reported[name].caught), 0.5):
            if time.monotonic() > deadline:
                seconds = f"{CAUGHT_TIMEOUT_S:.0f} s"
                raise Failure(f"{name} did not reach the fault in {seconds}: {self.log(name)}")
            if not is_stopped and self.has_ended(name):  # by itself, before this moment
                self.start(name)
                self.unwanted(name)
        if is_stopped:
            wait_for_state(self.running(name), name, STATE_TIMEOUT_S, is_stopped=True)
        else:
            self.kill(name)  # it has killed itself: wait for its end

    def has_ended(self, name: str) -> bool:
        return self._children[name].process.poll() is not None

    def kill_at(self, name: str, moment: str) -> None:
        """Kill the service when it reaches the step `moment`, and do not restart it."""
        self.unwanted(name)
        self.set_trap(name, moment, signal.SIGKILL)
        self.await_caught(name, is_stopped=False)

    def stop_at(self, name: str, moment: str) -> None:
        """Pause the service when it reaches the step `moment`."""
        self.set_trap(name, moment, signal.SIGSTOP)
        self.await_caught(name, is_stopped=True)

    def await_moment(self, name: str, moment: str = PREPARED) -> None:
        """Wait until the service has reached the step `moment`, at most CAUGHT_TIMEOUT_S."""
        self.wait(lambda: self.reported[name].event == moment, CAUGHT_TIMEOUT_S)

    def open_transactions(self) -> int:
        """Return the number of open transactions in the last reports of running services."""
        return sum(
            each.event in OPEN and name in self._children and not self.has_ended(name)
            for name, each in self.reported.items()
        )

    def all_committed_after(self, at: float, names: Iterable[str] = SERVICES) -> bool:
        return all(self.reported[name].committed_at > at for name in names)


class CheckBackProcess(Supervisor):
    """A process of `oncelog txn check-back`, or of a careless check-back for `--break`."""

    takes_reports = False
    name = "check-back"

    def __init__(self, settings: ServiceSettings, logs: Path) -> None:
        super().__init__(logs)
        self._settings = settings

    def start_and_wait(self) -> None:
        """Start the process, and return when it has reported the start of its checks."""
        log = self.log(self.name)
        said = log.read_bytes().count(READY) if log.exists() else 0
        self.start(self.name)
        if not reading.wait_for(lambda: log.read_bytes().count(READY) > said, START_TIMEOUT_S):
            raise Failure(f"The check-back did not start: {self.last_words(self.name)}")

    def command(self, name: str, incarnation: int) -> list[str]:
        connection, url = self._settings.connection, self._settings.database
        if self._settings.broken == NO_TOMBSTONE:
            module = "oncelog.proof.demo.transfers.careless_check_back"
            return ["-m", module, connection, url, str(OLDER_THAN_MS), str(EVERY_MS)]
        times = ["--older-than", str(OLDER_THAN_MS / 1000), "--every", str(EVERY_MS / 1000)]
        where = ["--resolver", url, *connection_options(connection)]
        return ["-m", "oncelog.cli", "txn", "check-back", *where, *times]
