"""Find the files and processes that a command has left behind."""

from pathlib import Path

import psutil


def left_in(scratch: Path) -> list[str]:
    """Return the files in the folder, and the command lines of processes that name the folder."""
    found = [str(path) for path in scratch.iterdir()]
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or [])
        found += [command] if str(scratch) in command else []
    return found
