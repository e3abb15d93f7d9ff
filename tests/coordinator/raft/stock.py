"""Unmodified PySyncObj 0.3.17 under virtual time, to show defects that our engine must not have.

Links behave like TCP. Messages arrive in order, and messages in flight are lost with the
connection.
"""

import heapq
import logging
import random
from collections.abc import Callable
from typing import Any

import pysyncobj.syncobj as library
import pytest
from pysyncobj import SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node
from pysyncobj.transport import Transport

logging.getLogger("pysyncobj").setLevel(logging.CRITICAL + 1)


class _NoPoller:
    def poll(self, timeout: float) -> None: ...


class _Transport(Transport):
    def __init__(self, network: "StockNetwork", node: str) -> None:
        super().__init__(None, Node(node), [])
        self._network, self._node = network, node

    def send(self, node: Node, message: dict) -> bool:
        return self._network.post(self._node, node.id, message)


class StockList(SyncObj):
    """A state machine of PySyncObj, which is a list of items."""

    def __init__(
        self, node: str, others: list[str], conf: SyncObjConf, transport: Transport
    ) -> None:
        super().__init__(Node(node), [Node(other) for other in others], conf, transport=transport)
        self.items: list[Any] = []

    @replicated
    def append(self, item: Any) -> int:
        self.items.append(item)
        return len(self.items)


class StockNetwork:
    """A simulated network of PySyncObj nodes. Patched globals are restored after the test."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        seed: int,
        *,
        nodes: str = "ABC",
        machine: type[StockList] = StockList,
        delay: tuple[float, float] = (0.001, 0.01),
        conf_of: Callable[[str], dict[str, Any]] = lambda node: {},
        **conf: Any,
    ) -> None:
        self.now, self.random = 1_000.0, random.Random(seed)
        self.nodes, self._machine, self._delay = list(nodes), machine, delay
        self._conf, self._conf_of = conf, conf_of
        self._queue: list[tuple[float, int, str, str, dict]] = []
        self._count = 0
        self.gap = 0.0  # seconds between the arrivals of two messages on a link
        self.cut: set[tuple[str, str]] = set()
        self.keep: Callable[[str, str, dict], bool] = lambda source, target, message: True
        patch.setattr(library, "monotonicTime", lambda: self.now)
        patch.setattr(library, "random", self.random)
        patch.setattr(library, "createPoller", lambda kind: _NoPoller())
        patch.setattr(library, "PIPE_NOTIFIER_ENABLED", False)
        self.objects: dict[str, StockList] = {}
        self.transports: dict[str, _Transport] = {}
        for node in self.nodes:
            self.start(node)

    def start(self, node: str) -> None:
        self.transports[node] = _Transport(self, node)
        conf = SyncObjConf(autoTick=False, **(self._conf | self._conf_of(node)))
        others = [other for other in self.nodes if other != node]
        self.objects[node] = self._machine(node, others, conf, self.transports[node])
        for other in self.objects:
            if other != node:
                self.link(node, other)

    def kill(self, node: str) -> None:
        for other in self.objects:
            if other != node:
                self.unlink(node, other)
        self.objects[node]._SyncObj__raftLog._destroy()  # type: ignore[attr-defined]
        del self.objects[node], self.transports[node]

    def close(self) -> None:
        for node in list(self.objects):
            self.kill(node)

    def link(self, a: str, b: str) -> None:
        self.transports[a]._onNodeConnected(Node(b))
        self.transports[b]._onNodeConnected(Node(a))

    def unlink(self, a: str, b: str) -> None:
        for x, y in ((a, b), (b, a)):
            if x in self.transports:
                self.transports[x]._onNodeDisconnected(Node(y))
        self._queue = [event for event in self._queue if {event[2], event[3]} != {a, b}]
        heapq.heapify(self._queue)

    def isolate(self, node: str) -> None:
        for other in self.nodes:
            if other != node:
                self.unlink(node, other)
                self.cut |= {(node, other), (other, node)}

    def heal(self) -> None:
        self.cut.clear()
        for a in self.objects:
            for b in self.objects:
                if a < b:
                    self.link(a, b)

    def post(self, source: str, target: str, message: dict) -> bool:
        if (source, target) in self.cut or target not in self.objects:
            return False
        if not self.keep(source, target, message):
            return True
        earlier = [e[0] for e in self._queue if e[2:4] == (source, target)]
        arrival = self.now + self.random.uniform(*self._delay)
        self._count += 1
        arrival = max(max(earlier, default=0.0) + self.gap, arrival)
        heapq.heappush(self._queue, (arrival, self._count, source, target, message))
        return True

    def step(self, errors: tuple[type[Exception], ...] = ()) -> list[Exception]:
        """Advance the time by 5 ms, and return the caught exceptions of the types `errors`."""
        self.now += 0.005
        seen: list[Exception] = []
        while self._queue and self._queue[0][0] <= self.now:
            _, _, source, target, message = heapq.heappop(self._queue)
            if target in self.transports:
                try:
                    self.transports[target]._onMessageReceived(Node(source), message)
                except errors as error:
                    seen.append(error)
        for node in list(self.objects):
            try:
                self.objects[node].doTick(0)
            except errors as error:
                seen.append(error)
        return seen

    def run(self, seconds: float, until: Callable[[], Any] | None = None) -> bool:
        end = self.now + seconds
        while self.now < end:
            self.step()
            if until is not None and until():
                return True
        return until is None

    def leader(self) -> str | None:
        led = [node for node, o in self.objects.items() if o._isLeader()]
        return max(led, key=lambda node: self.objects[node].raftCurrentTerm) if led else None

    def elect(self) -> str:
        assert self.run(10, self.leader)
        self.run(1)
        leader = self.leader()
        assert leader is not None
        return leader
