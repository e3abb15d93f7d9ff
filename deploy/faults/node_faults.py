"""Faults inside a node of a chaos run, of its disk, its wall clock, and death at a fault point.

A released broker has no such faults. Another program, `faulty_node`, adds the faults when it
creates the broker. Faults are requested through a separate Unix socket beside the admin socket
(`faults-<node>`), with one JSON object on a line:

    {"op": "disk", "point": "log.append.before-write", "errno": 28}   every write there fails
    {"op": "die", "point": "partition.before-marker"}                 kill -9 of itself, there
    {"op": "clock", "offset_ms": 3600000}                             the wall clock only
    {"op": "heal"}
    {"op": "counts"}                                                  what has happened so far
"""

import json
import os
import signal
import socketserver
import threading
import time
from pathlib import Path
from typing import Any

from ...node.clock import SystemClock

DOOR = "faults"
LINE_BYTES_MAX = 4096


class JumpingClock(SystemClock):
    """The machine's clocks, with the wall clock advanced or set back."""

    offset_ms = 0

    def wall_ms(self) -> int:  # type: ignore[override]  # a method there needs no instance
        """Return the node's wall-clock time, in ms since 1970."""
        return SystemClock.wall_ms() + self.offset_ms


class NodeFaults:
    """The faults that were requested in this process. Several threads use the object."""

    def __init__(self) -> None:
        self.clock = JumpingClock()
        self.errors = 0  # how many writes have failed on purpose
        self._disk: tuple[str, int] | None = None
        self._die_at: str | None = None

    def point(self, name: str) -> None:
        """Kill the process or raise OSError, if that was requested for the fault point `name`.

        The broker calls this method before steps that may fail.
        """
        if self._die_at is not None and name == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        disk = self._disk
        if disk is not None and name == disk[0]:
            self.errors += 1
            raise OSError(disk[1], f"{os.strerror(disk[1])} (made by chaos)")

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Execute a request of the socket and return the answer.

        Raises KeyError, TypeError or ValueError for an invalid request.
        """
        match asked["op"]:
            case "disk":
                self._disk = str(asked["point"]), int(asked["errno"])
            case "die":
                self._die_at = str(asked["point"])
            case "clock":
                self.clock.offset_ms = int(asked["offset_ms"])
            case "heal":
                self._disk, self._die_at, self.clock.offset_ms = None, None, 0
            case "counts":
                return {"errors": self.errors, "wall_ms": self.clock.wall_ms()}
            case other:
                return {"error": f"unknown op {other}"}
        return {"ok": True}


def serve_faults(path: Path, faults: NodeFaults) -> None:
    """Serve the socket in a thread, so that a node with a blocked event loop still answers."""

    class Question(socketserver.StreamRequestHandler):
        timeout = 2

        def handle(self) -> None:
            try:
                answer = faults.answer(json.loads(self.rfile.readline(LINE_BYTES_MAX)))
            except (KeyError, TypeError, ValueError) as problem:
                answer = {"error": f"not understood: {problem}"}
            self.wfile.write(json.dumps(answer).encode() + b"\n")

    path.unlink(missing_ok=True)  # left by a process that was killed
    door = socketserver.UnixStreamServer(str(path), Question)
    os.chmod(path, 0o600)
    threading.Thread(target=door.serve_forever, daemon=True).start()


def offset_of(counts: dict[str, Any]) -> int:
    """Return by how many ms a node's wall clock is ahead of this machine's.

    `counts` is the node's answer to "counts".
    """
    return int(counts["wall_ms"]) - time.time_ns() // 1_000_000
