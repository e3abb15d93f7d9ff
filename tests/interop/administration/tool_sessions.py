"""Run a sequence of Kafka's tools in one JVM (`java/ToolSessions.java`)."""

import base64
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from ..kafka_peer import java_source

SOURCE = Path(__file__).parents[1] / "java" / "ToolSessions.java"
GRACE_S = 30.0
HOOKS = "--add-opens=java.base/java.lang=ALL-UNNAMED"  # where the JVM keeps its shutdown hooks


class Outcome(NamedTuple):
    """A tool's exit code, or "late" after a timeout, and its standard output and error."""

    code: str
    out: str
    err: str


class ToolSessions:
    """The JVM that runs the tools, used as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            java_source(SOURCE, flags=(HOOKS,)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, cwd=folder,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def run(
        self, name: str, tool: str, arguments: Sequence[str], *, text: str = "", seconds: int
    ) -> Outcome:
        """Run a tool, and return its outcome when it has ended."""
        self._say("run", name, str(seconds), _coded(text), tool, *arguments)
        return self._answer(seconds)

    def begin(self, name: str, tool: str, arguments: Sequence[str]) -> None:
        """Start a tool that runs until `end`."""
        self._say("begin", name, "0", "", tool, *arguments)

    def end(self, name: str, *, seconds: int) -> Outcome:
        """End a running tool as a signal would, and return its outcome."""
        self._say("end", name, str(seconds), "")
        return self._answer(seconds)

    def _say(self, *fields: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(fields) + "\n")
        self._process.stdin.flush()

    def _answer(self, seconds: int) -> Outcome:
        assert self._process.stdout is not None
        guard = threading.Timer(seconds + GRACE_S, self._process.kill)
        guard.start()
        line = self._process.stdout.readline()
        guard.cancel()
        assert line, "the JVM of the tools has ended"
        _, code, out, err = line.rstrip("\n").split("\t")
        return Outcome(code, _text(out), _text(err))


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _text(coded: str) -> str:
    return base64.b64decode(coded).decode(errors="replace")
