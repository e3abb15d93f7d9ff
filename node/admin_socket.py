"""A local door for the people who run the cluster: counters, and faults on the peer links.

A Unix socket `admin-<node>` beside the peers' sockets (a directory of mode 0700, so only the
owner of the cluster comes in). One JSON object a line, answered by one a line:

    {"op": "metrics"}                                  counters of this process
    {"op": "cut", "peer": 2, "inbound": true, "outbound": true}
    {"op": "delay", "peer": 2, "delay_ms": 50}
    {"op": "hold", "peer": 2, "inbound": false, "outbound": true}
    {"op": "keep", "peer": 2, "count": 1}              single messages, which others overtake
    {"op": "links"}                                    what is broken, how often it was met
    {"op": "heal"}
    {"op": "clock"}, {"op": "advance-clock", ...}      see `controlled_clock`

Faults live in this process only: a restart heals them.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from ..replication.messages import PeerMessage
from ..replication.peer.link_gate import LinkGate

LINE_BYTES_MAX = 4096
Metrics = Callable[[], dict[str, Any]]
LongOperation = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class AdminSocket:
    """Serves the door of one node. long_operations: by name, those that take their time."""

    def __init__(
        self,
        path: Path,
        gate: LinkGate,
        metrics: Metrics,
        long_operations: Mapping[str, LongOperation] | None = None,
    ) -> None:
        self._path = path
        self._gate = gate
        self._metrics = metrics
        self._long_operations = long_operations or {}
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen; a socket left by a killed process is replaced."""
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(
            self._serve, str(self._path), limit=LINE_BYTES_MAX
        )
        os.chmod(self._path, 0o600)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                answer = await self._long_answer(line) or self._answer(line)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (ValueError, OSError):
            pass  # a line too long, or gone
        finally:
            writer.close()

    async def _long_answer(self, line: bytes) -> dict[str, Any] | None:
        """None for what `_answer` answers."""
        try:
            asked = json.loads(line)
            operation = self._long_operations.get(asked["op"])
            return None if operation is None else await operation(asked)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            return {"error": f"not understood: {error}"}

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            asked = json.loads(line)
            match asked["op"]:
                case "metrics":
                    return self._metrics()
                case "cut" | "hold" as fault:
                    getattr(self._gate, fault)(
                        int(asked["peer"]),
                        inbound=bool(asked.get("inbound", True)),
                        outbound=bool(asked.get("outbound", True)),
                    )
                case "delay":
                    self._gate.delay(int(asked["peer"]), int(asked["delay_ms"]))
                case "keep":
                    kind = asked.get("kind")
                    self._gate.keep(
                        int(asked["peer"]),
                        int(asked.get("count", 1)),
                        kind=None if kind is None else int(PeerMessage[kind]),
                    )
                case "links":
                    return {
                        "dropped": self._gate.dropped_count,
                        "held": self._gate.held_count,
                        "delayed": self._gate.delayed_count,
                        "faults": self._gate.faults(),
                    }
                case "heal":
                    self._gate.heal(asked.get("peer"))
                case other:
                    return {"error": f"unknown op {other}"}
        except (KeyError, TypeError, ValueError) as error:
            return {"error": f"not understood: {error}"}
        return {"ok": True}
