"""The process `guardian_process.py OWNER`, which removes everything that its owner left at its end.

guardian.py starts it. Its standard input is a pipe from its owner. Each line is a JSON list. The
owner sends ["keep", KIND, NAME, HOW] before it creates an item, and ["forget", KIND, NAME] after it
has removed the item. When the pipe closes, or the owner has ended, the process kills or removes the
registered items. To save memory while it waits, it is started as a file, without site-packages, and
imports almost nothing.
"""

import json
import os
import select
import signal
import sys

MODULE = "oncelog.deploy.cluster.ends.guardian_process"
END = "--end"
LOOK_S = 0.5  # where the kernel does not report the death of a process
PIECE_BYTES = 65_536
Kept = dict[tuple[str, str], str]


def kept_at_the_end(owner: int, source: int) -> Kept:
    """Wait until the owner has ended, or has removed all items. Return those still registered.

    The end of the pipe `source` is not awaited alone, because a process that was forked from the
    owner may hold the pipe open after the owner's death.
    """
    watched = _death_of(owner)
    kept: Kept = {}
    heard = b""
    is_over = False
    while not is_over:
        files = [source] if watched is None else [source, watched]
        readable, _, _ = select.select(files, [], [], LOOK_S if watched is None else None)
        is_over = watched in readable or os.getppid() != owner
        while select.select([source], [], [], 0)[0]:  # also the last words of a dead owner
            piece = os.read(source, PIECE_BYTES)
            if not piece:
                is_over = True
                break
            *lines, heard = (heard + piece).split(b"\n")
            for line in lines:
                verb, kind, name, *how = json.loads(line)
                if verb == "keep":
                    kept[kind, name] = how[0]
                else:
                    kept.pop((kind, name), None)
                    # ended by its owner; a fork may still have the pipe open
                    is_over = is_over or not kept
    return kept


def _death_of(owner: int) -> int | None:
    """Return a descriptor that is readable after the owner's death, or None if unsupported."""
    try:
        return os.pidfd_open(owner)
    except (AttributeError, OSError):
        return None


def main() -> None:
    """Wait for the owner's end, and then replace this process by one that cleans up.

    The second process imports the whole package, which would take too much memory during the wait.
    """
    if sys.argv[1] == END:
        from .leftovers import end_all

        end_all([(kind, name, how) for kind, name, how in json.loads(sys.argv[2])])
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # signals to a whole service are ignored; only the owner's end counts
        signal.signal(number, signal.SIG_IGN)
    kept = kept_at_the_end(int(sys.argv[1]), sys.stdin.fileno())
    if kept:
        left = json.dumps([(kind, name, how) for (kind, name), how in kept.items()])
        os.execv(sys.executable, [sys.executable, "-P", "-m", MODULE, END, left])


if __name__ == "__main__":
    main()
