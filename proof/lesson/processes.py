"""The processes of the lesson: applications, and the page. All of them end with the lesson."""

import json
import os
import re
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from ...deploy.cluster.failure import Failure
from ...deploy.faults.supervisor import Supervisor
from .application import FENCED, LessonSettings

PAGE, PAGE_TIMEOUT_S = "page", 30.0
ADDRESS = re.compile(r"oncelog ui: (http://\S+)")


class LessonProcesses(Supervisor):
    """The supervised processes of a lesson. They are not restarted, since the reader kills them.

    invoiced: the number of invoices of each application. said: the last report of each application.
    """

    def __init__(self, logs: Path, data: Path) -> None:
        """Create the processes. `data` is the directory of the cluster that the page shows."""
        super().__init__(logs)
        self._data, self._opens = data, "--no-open"
        self._settings: dict[str, LessonSettings] = {}
        self.invoiced: dict[str, int] = {}
        self.said: dict[str, list[Any]] = {}

    def argv(self, name: str, incarnation: int) -> list[str]:
        if name == PAGE:
            options = ("ui", self._opens, "--allow-writes", "--data", str(self._data))
            return [sys.executable, "-P", "-m", "oncelog.cli", *options]
        settings = json.dumps(asdict(self._settings[name]))
        return [sys.executable, "-P", "-m", "oncelog.proof.lesson.application", settings]

    def begin(self, process: str, *, pause_s: float, **fields: str) -> int:
        """Start an application with this pause for each order, and return its pid."""
        self._settings[process] = LessonSettings(parent=os.getpid(), pause_s=pause_s, **fields)
        return self._begin(process)

    def open_page(self, *, in_browser: bool) -> str:
        """Start the page. Return its address, which contains its token."""
        self._opens = "--open" if in_browser else "--no-open"
        self._begin(PAGE)
        deadline_s = time.monotonic() + PAGE_TIMEOUT_S
        while time.monotonic() < deadline_s and not self.has_ended(PAGE):
            if found := ADDRESS.search(self.log(PAGE).read_text()):
                return found[1]
            time.sleep(0.05)
        raise Failure(f"The page did not start; {self.last_words(PAGE)}")

    def has_ended(self, name: str) -> bool:
        """Return whether a process has ended and its last report was read."""
        child = self._children[name]
        if child.process.poll() is None:
            return False
        self._exit_code(child)
        return True

    def was_fenced(self, name: str) -> bool:
        """Return whether an ended process reported that it was fenced."""
        code = self._children[name].process.poll()
        return code == FENCED and self.said[name][:1] == ["fenced"]

    def is_paused(self, name: str) -> bool:
        """Return whether the operating system reports a process of this name as stopped."""
        try:
            return self.running(name).status() == psutil.STATUS_STOPPED
        except (Failure, psutil.NoSuchProcess):
            return False

    def on_event(self, name: str, event: str, *arguments: Any) -> None:
        self.said[name] = [event, *arguments]
        if event == "invoiced":
            self.invoiced[name] = arguments[0]

    def _begin(self, name: str) -> int:
        self.invoiced[name], self.said[name] = 0, []
        self.start(name)
        return self.unwanted(name).process.pid
