"""End clusters, directories and children together with this process, even after `kill -9`.

    with guardian.kept("directory", path):
        ...

A guardian is a separate process (guardian_process.py). An item is a cluster, a directory, or a run
(the child processes with the same name in their environment). Each item is registered with the
guardian before its creation, and forgotten after its removal. The guardian waits for this process
to end, and then ends the registered items. It runs only while something is registered.
"""

import contextlib
import io
import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

Kind = Literal["cluster", "directory", "run"]
PROGRAM = Path(__file__).resolve().with_name("guardian_process.py")
RUN = "ONCELOG_RUN"  # in the environment of children, and of all that they start
KEEP, PURGE = "keep", "purge"  # the data of a cluster; the owner in its file is added


class Guardian:
    """The client of this process's guardian. Any thread may call its methods."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: io.FileIO | None = None  # its standard input
        self._owner = os.getpid()
        self._kept: dict[tuple[Kind, str], str] = {}

    def keep(self, kind: Kind, name: str | Path, how: str = "") -> None:
        """Register an item, which the guardian removes if this process ends before `forget`.

        how: for a cluster, whether to keep or purge its data, and its owner.
        """
        with self._lock:
            if self._owner != os.getpid():  # after a fork, the guardian belongs to the parent
                self._hang_up()
                self.__init__()
            self._kept[kind, str(name)] = how
            if self._process is None or self._process.poll() is not None:
                self._start()
            elif not self._tell(_line("keep", kind, str(name), how)):
                self._start()  # it was just killed

    def forget(self, kind: Kind, name: str | Path) -> None:
        """Cancel the registration of an item that was removed, or that shall stay.

        The guardian process ends when no item is registered.
        """
        with self._lock:
            if self._owner != os.getpid() or self._kept.pop((kind, str(name)), None) is None:
                return
            self._tell(_line("forget", kind, str(name)))
            if not self._kept and (dismissed := self._process) is not None:
                self._process = None  # a signal may raise while we wait
                self._hang_up()
                dismissed.wait()

    @contextlib.contextmanager
    def kept(self, kind: Kind, name: str | Path, how: str = "") -> Iterator[None]:
        """Keep an item registered during a block that creates the item and removes it."""
        self.keep(kind, name, how)
        try:
            yield
        finally:
            self.forget(kind, name)

    def _start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name != RUN}
        first, *others = [_line("keep", *item, how) for item, how in self._kept.items()]
        for item in self._kept:  # a guardian whose start was interrupted must not end them
            self._tell(_line("forget", *item))
        self._hang_up()
        theirs, ours = os.pipe()
        self._pipe = io.FileIO(ours, "w")
        try:
            self._pipe.write(first)  # before the start, as this process may be killed during it
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(PROGRAM), str(os.getpid())],
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,  # without RUN, as the end of our run must not end the guardian
                start_new_session=True,  # a signal from the terminal is not meant for it
            )
        finally:
            os.close(theirs)
        for line in others:
            self._tell(line)

    def _hang_up(self) -> None:
        """Close this process's end of the pipe to the guardian."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def _tell(self, line: bytes) -> bool:
        """Send a line to the guardian. Return False if the guardian has ended."""
        if self._pipe is None:
            return False
        with contextlib.suppress(BrokenPipeError):
            self._pipe.write(line)
            return True
        return False


def _line(*words: str) -> bytes:
    return json.dumps(words).encode() + b"\n"


guardian = Guardian()


def new_run() -> str:
    """Return a new name of a run. The guardian kills the child processes of a run together."""
    return f"{os.getpid()}-{secrets.token_hex(8)}"


def environment_of(run: str, others: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for a child of this run, which has the name of the run.

    The other variables are `others`, by default those of this process.
    """
    return {**(os.environ if others is None else others), RUN: run}
