"""The files and processes that a command has left in its temporary directory."""

from pathlib import Path

import psutil


def left_in(scratch: Path) -> list[str]:
    """Return the files in the folder, and the processes that were started with it."""
    found = [str(path) for path in scratch.iterdir()]
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or [])
        found += [command] if str(scratch) in command else []
    return found
