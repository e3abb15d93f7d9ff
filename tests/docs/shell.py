"""A shell that runs the commands of a page in their order, in one folder."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .blocks import Step, differences

OURS = ("ONCELOG_", "KAFKA_", "SCHEMA_REGISTRY_")
SAID_BY_BASH = re.compile(r"^\S*bash: line \d+: .*Killed")  # bash's format outside terminals


@dataclass(frozen=True)
class Done:
    step: Step
    code: int
    lines: list[str]

    def wrong(self) -> list[str]:
        """Return the differences between the output and the page, or [] if they agree.

        For a failed command, return its exit code and its output.
        """
        if self.code:
            return [f"exit code {self.code}", *self.lines]
        return list(differences(self.step.shown, self.lines)) if self.step.shown else []


def environment(home: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a shell in the venv, with `home` and the variables `more`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    return {**kept, "PATH": path, "HOME": str(home), "PYTHONUNBUFFERED": "1", **(more or {})}


def run(
    steps: Sequence[Step],
    folder: Path,
    *,
    timeout_s: float = 300,
    more: Mapping[str, str] | None = None,
) -> list[Done]:
    """Run the commands in one bash, and return the exit code and output of each.

    The output of a background job counts as output of the command that started the job.
    """
    script = "".join(
        f"{step.command}\ncode=$?; wait; printf '\\n %s %s\\n' {at} $code\n"
        for at, step in enumerate(steps)
    )
    with open(folder / "shell.log", "w+b") as log:
        shell = subprocess.Popen(
            ["bash", "-c", script], cwd=folder, env=environment(folder, more),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            shell.wait(timeout_s)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
        log.seek(0)
        told = log.read().decode(errors="replace")
    found = re.split(r"\n \d+ (\d+)\n", told)
    return [
        Done(step, int(code), [line for line in text.splitlines() if not SAID_BY_BASH.match(line)])
        for step, text, code in zip(steps, found[:-1:2], found[1::2], strict=True)
    ]


def wrong_in(done: Sequence[Done]) -> dict[str, list[str]]:
    return {each.step.command: found for each in done if (found := each.wrong())}
