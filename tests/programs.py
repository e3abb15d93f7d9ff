"""Run other programs, and wait for their ends."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CLI = [sys.executable, "-P", "-m", "oncelog.cli"]


def run_to_end(
    command: Sequence[str | Path], timeout_s: float = 120, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, and return its exit code and output."""
    options |= {"capture_output": True, "text": True, "check": False}
    return subprocess.run(command, timeout=timeout_s, **options)


def printed_by(command: Sequence[str | Path], timeout_s: float = 120, **options: Any) -> str:
    """Return the output of a program. Raises an error unless it exits with 0."""
    done = run_to_end(command, timeout_s, **options)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout
