"""Waits for the end of a test run and removes what it left:
`python -m oncelog.deploy.pytest_plugin.guard DIRECTORY [--keep]`.

Its standard input is a pipe from the process of the tests. That one writes DONE when it has ended
its clusters itself. When the pipe closes without it, or the parent is gone, the guard ends every
cluster under DIRECTORY, whose layouts are written before their nodes are started. Until then it
sleeps and has imported next to nothing.
"""

import os
import select
import shutil
import sys
from pathlib import Path

DONE = b"done\n"
LOOK_S = 0.5  # a process forked from the tests may hold the pipe open after their death


def wait() -> bool:
    """Return when the tests are over: True when they have cleaned up themselves."""
    parent = os.getppid()
    heard = b""
    while os.getppid() == parent:
        readable, _, _ = select.select([sys.stdin.fileno()], [], [], LOOK_S)
        if readable:
            piece = os.read(sys.stdin.fileno(), len(DONE))
            heard += piece
            if heard.startswith(DONE) or not piece:
                break
    return heard.startswith(DONE)


def end_all(directory: Path, *, is_kept: bool) -> None:
    """End every cluster under the directory, and remove it."""
    from ..cluster.failure import Failure
    from ..cluster.local_cluster import Cluster

    for data in sorted(directory.glob("*")):
        try:
            Cluster.open(data).down(purge=not is_kept)
        except Failure:
            continue  # not laid out: nothing of it was started
    if not is_kept:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    if not wait():
        end_all(Path(sys.argv[1]), is_kept="--keep" in sys.argv[2:])
