"""The admin socket of a node, which reports its counters and sets faults on its peer links.

The Unix socket `admin-<node>` is beside the peers' sockets, in a directory of mode 0700, so only
the owner of the cluster can open it. Each request is a line with a JSON object, and so is its
reply:

    {"op": "metrics"}                                  return the counters of this process
    {"op": "cut", "peer": 2, "inbound": true, "outbound": true}    drop messages
    {"op": "delay", "peer": 2, "delay_ms": 50}         deliver messages later
    {"op": "hold", "peer": 2, "inbound": false, "outbound": true}  keep messages until "heal"
    {"op": "keep", "peer": 2, "count": 1}              keep only the next `count` messages until
                                                       "heal", and deliver those that follow
    {"op": "links"}                                    return the faults, and the numbers of
                                                       messages that they dropped or delayed
    {"op": "heal"}                                     remove all faults
    {"op": "level", "level": "DEBUG", "logger": "oncelog.node"}    set the level of a logger
    {"op": "clock"}, {"op": "advance-clock", ...}      see `controlled_clock`

Faults exist only in the memory of this process, so a restart removes them.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from ..replication.messages import PeerMessage
from ..replication.peer.link_gate import LinkGate
from ..runtime.event_log import EventLog
from .log_format import set_level

LINE_BYTES_MAX = 4096
Metrics = Callable[[], dict[str, Any]]
LongOperation = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class AdminSocket:
    """The server of one node's admin socket.

    long_operations: the asynchronous operations by name.
    """

    def __init__(
        self,
        path: Path,
        gate: LinkGate,
        metrics: Metrics,
        long_operations: Mapping[str, LongOperation] | None = None,
        *,
        node_id: int = -1,
        events: EventLog | None = None,
    ) -> None:
        self._path = path
        self._gate = gate
        self._metrics = metrics
        self._long_operations = long_operations or {}
        self._node_id, self._events = node_id, events
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen on the socket, and replace a socket file that a killed process left behind."""
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
            pass  # the line is too long, or the client has disconnected
        finally:
            writer.close()

    async def _long_answer(self, line: bytes) -> dict[str, Any] | None:
        """Return the reply of an asynchronous operation, or None for any other operation."""
        try:
            asked = json.loads(line)
            operation = self._long_operations.get(asked["op"])
            return None if operation is None else await operation(asked)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            return {"error": f"not understood: {error}"}

    def _answer(self, line: bytes) -> dict[str, Any]:
        before = self._gate.faults()
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
                case "level":
                    set_level(str(asked["level"]), str(asked.get("logger", "")))
                case other:
                    return {"error": f"unknown op {other}"}
            if self._events is not None and self._gate.faults() != before:
                self._note_fault(asked)
        except (KeyError, TypeError, ValueError) as error:
            return {"error": f"not understood: {error}"}
        return {"ok": True}

    def _note_fault(self, asked: Mapping[str, Any]) -> None:
        """Log that a fault on the peer links has begun or ended."""
        assert self._events is not None
        operation, peer, delay_ms = str(asked["op"]), asked.get("peer"), asked.get("delay_ms")
        link = "all its links" if peer is None else f"its link to node {peer}"
        ways = asked.get("inbound", True), asked.get("outbound", True)
        way = {(True, False): " inbound", (False, True): " outbound"}.get(ways, "")
        delay = f" by {delay_ms} ms" if delay_ms is not None else ""
        words = f"node {self._node_id}: {operation} {link}{way}{delay}"
        terms = {"node": self._node_id, "peer": peer, "delay_ms": delay_ms}
        self._events.tell("fault", f"node {self._node_id}", operation, words, **terms)
