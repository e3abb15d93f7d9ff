"""The probe's process, which sends ApiVersions to each node at fixed times and measures the delay.

A request is due every interval, even if the previous request is not answered yet. Its lateness
counts from the time at which it was due, so a stall of a second causes two hundred late answers,
not one (no coordinated omission). When a connection is lost, the unanswered requests are sent again
on the next connection, and their lateness still counts from the original time. A request without an
answer at the end counts as answered at the end. No other work runs in this process, so no load can
disturb its clock.

Each late answer has the time for which the node's thread waited for a processor (the second number
of /proc/PID/schedstat), and the time for which this process waited before sending and receiving.

With TLS and SASL (`config`, a client's settings), each connection is made in a thread, and measured
after its login (secured_socket.py).

The standard input has one JSON object with the nodes, then {"node": 2, "pid": 77} to begin with a
node and {"node": 2, "pid": null} to stop with it. At the end of the input, the process prints the
result to stdout.
"""

import errno
import gc
import json
import os
import selectors
import socket
import ssl
import struct
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ...node.linux import open_process_file

SIZE_BYTES = 4
RECEIVE_BYTES = 1 << 18
NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
LATE_NS = 5_000_000  # the reason of a shorter one is not looked up
STALL_MS = 50.0
STALLS_MAX = 20
TICKS_PER_LOOK = 20  # at the memory of the nodes
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# ApiVersions 0 with client id null, which every broker answers quickly.
REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class ProcessFiles:
    """The kernel's data about one process, zeros if the process has ended."""

    def __init__(self, pid: int | None) -> None:
        self._files: dict[str, int] = {}
        for name in ("schedstat", "statm", "stat") if pid else ():
            if (file := open_process_file(name, pid)) is not None:
                self._files[name] = file

    def waited_ns(self) -> int:
        """Return how long the main thread has been ready to run without a processor."""
        return int(self._fields("schedstat", 3)[1])

    def rss_bytes(self) -> int:
        return int(self._fields("statm", 2)[1]) * PAGE_BYTES

    def cpu_s(self) -> float:
        fields = self._fields("stat", 13)  # the fields after the name
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS_PER_S

    def close(self) -> None:
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def _fields(self, name: str, least: int) -> list[bytes]:
        try:
            # The name of the program, in brackets, may contain blanks.
            fields = os.pread(self._files[name], 1024, 0).rpartition(b")")[2].split()
        except (KeyError, OSError):
            fields = []
        return fields if len(fields) >= least else [b"0"] * least


class Answers:
    """The due requests of one node, and the lateness of the answered ones."""

    def __init__(self) -> None:
        # The time at which it was due, and the node's waits for a processor, less our own before
        # sending.
        self.waiting: deque[tuple[int, int]] = deque()
        self.sent = 0  # of those waiting, on this connection
        self._due_ns, self._late_ns, self._wait_ns = array("q"), array("q"), array("q")

    @property
    def count(self) -> int:
        return len(self._late_ns)

    def answered(self, now_ns: int, waited_ns: int) -> None:
        due_ns, waited_before_ns = self.waiting.popleft()
        self.sent -= 1
        self._note(due_ns, now_ns, waited_ns - waited_before_ns)

    def end(self, now_ns: int, waited_ns: int) -> float:
        """Count each unanswered request as answered at `now_ns`.

        Returns for how many ms the oldest of these requests was due, or 0 if all were answered.
        """
        oldest_ns = self.waiting[0][0] if self.waiting else now_ns
        for due_ns, waited_before_ns in self.waiting:
            self._note(due_ns, now_ns, waited_ns - waited_before_ns)
        self.waiting.clear()
        return (now_ns - oldest_ns) / 1e6

    def summary(self, began_ns: int) -> dict[str, Any]:
        late = sorted(self._late_ns) or [0]
        pairs = zip(self._late_ns, self._wait_ns, strict=True)
        return {
            "answers": self.count,
            "p50_ms": late[len(late) // 2] / 1e6,
            "p99_ms": late[int(len(late) * 0.99)] / 1e6,
            "max_ms": late[-1] / 1e6,
            "max_less_wait_ms": max((ns - wait_ns for ns, wait_ns in pairs), default=0) / 1e6,
            "stalls": self._stalls(began_ns),
        }

    def _note(self, due_ns: int, now_ns: int, wait_ns: int) -> None:
        self._due_ns.append(due_ns)
        self._late_ns.append(now_ns - due_ns)
        self._wait_ns.append(min(wait_ns, now_ns - due_ns) if now_ns - due_ns > LATE_NS else 0)

    def _stalls(self, began_ns: int) -> list[dict[str, float]]:
        """Return the longest stalls, at most STALLS_MAX.

        A stall lasts from the due time of a late answer until that answer. Other late answers that
        were due during the stall belong to the stall.
        """
        stalls: list[dict[str, float]] = []
        ended_ns = 0
        for due_ns, late_ns, wait_ns in zip(
            self._due_ns, self._late_ns, self._wait_ns, strict=True
        ):
            if late_ns > STALL_MS * 1e6 and due_ns > ended_ns:
                ended_ns = due_ns + late_ns
                at_s = (due_ns - began_ns) / 1e9
                stalls.append({"at_s": at_s, "ms": late_ns / 1e6, "wait_ms": wait_ns / 1e6})
        stalls.sort(key=lambda stall: -stall["ms"])
        return stalls[:STALLS_MAX]


class Watched:
    """One node, with its connection, its answers and its process."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        entry: dict[str, Any],
        config: dict[str, Any] | None,
    ) -> None:
        self._opening: Future[socket.socket] | None = None
        self._connect_secured = _secured(config, entry["host"], entry["port"]) if config else None
        self.node_id = int(entry["node"])
        self._address = socket.getaddrinfo(entry["host"], entry["port"], type=socket.SOCK_STREAM)[0]
        self.answers = Answers()
        self.process = ProcessFiles(entry.get("pid"))
        self.rss_max_bytes, self.lost = 0, 0
        self._cpu_before_s, self._cpu_s = self.process.cpu_s(), 0.0
        self._waited_before_ns, self._waited_ns = self.process.waited_ns(), 0
        self._selector = selector
        self._socket: socket.socket | None = None
        self._is_connected = self._has_served = False
        self._is_watched = True
        self._received = bytearray()

    def due(self, due_ns: int, waited_before_ns: int) -> None:
        """Add a request that is due now, and connect to the node if there is no connection.

        Requests that are due before the node's first connection do not count.
        """
        if not self._is_watched:
            return
        if self._socket is None:
            self._connect()
        if self._has_served:
            self.answers.waiting.append((due_ns, waited_before_ns))

    def send(self) -> None:
        unsent = len(self.answers.waiting) - self.answers.sent
        if not self._is_connected or not unsent or self._socket is None:
            return
        try:
            written = self._socket.send(REQUEST * unsent)
        except NOT_NOW:
            return
        except OSError:
            self._lose()
            return
        # A request cut in two would break the stream; the socket's buffer has room for minutes of
        # them.
        assert written % len(REQUEST) == 0
        self.answers.sent += written // len(REQUEST)

    def ready(self, own_wait_ns: Callable[[], int]) -> None:
        """Handle an event of the socket, which has received data, is connected, or was refused.

        own_wait_ns: returns for how long this process has just waited for a processor.
        """
        if self._socket is None:
            return
        if not self._is_connected:
            if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._close()
                return
            self._is_connected = self._has_served = True
            self._selector.modify(self._socket, selectors.EVENT_READ, self)
            self.send()
            return
        try:
            data = self._socket.recv(RECEIVE_BYTES)
            while isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
                data += self._socket.recv(RECEIVE_BYTES)
        except NOT_NOW:
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        self._received += data
        now_ns = time.monotonic_ns()
        waited_ns: int | None = None
        position = 0
        while len(self._received) - position >= SIZE_BYTES:
            size = int.from_bytes(self._received[position : position + SIZE_BYTES], "big")
            if len(self._received) - position < SIZE_BYTES + size:
                break
            position += SIZE_BYTES + size
            if waited_ns is None:
                waited_ns = own_wait_ns() + self.process.waited_ns()
            self.answers.answered(now_ns, waited_ns)
        del self._received[:position]

    def look(self) -> None:
        self.rss_max_bytes = max(self.rss_max_bytes, self.process.rss_bytes())

    def leave(self) -> None:
        """Stop sending requests before the node is killed, and drop its unanswered requests."""
        self._take_figures()
        self._close()
        self.answers.waiting.clear()
        self._is_watched = self._has_served = False

    def begin(self, pid: int) -> None:
        """Send requests to the node's new process `pid`, once its port accepts a connection."""
        self.process = ProcessFiles(pid)
        self._is_watched = True

    def result(self, now_ns: int, began_ns: int) -> dict[str, Any]:
        silent_ms = self.answers.end(now_ns, self.process.waited_ns())
        self.look()
        self._take_figures()
        return {
            "node": self.node_id,
            **self.answers.summary(began_ns),
            "silent_ms": silent_ms,
            "lost_connections": self.lost,
            "waited_ms": self._waited_ns / 1e6,
            "cpu_s": self._cpu_s,
            "rss_max_bytes": self.rss_max_bytes,
        }

    def _take_figures(self) -> None:
        """Add the CPU time and the waits of the node's process to the totals of the node.

        Its files are closed, because the process will be killed or the watch ends.
        """
        self._cpu_s += max(0.0, self.process.cpu_s() - self._cpu_before_s)
        self._waited_ns += max(0, self.process.waited_ns() - self._waited_before_ns)
        self._cpu_before_s, self._waited_before_ns = 0.0, 0
        self.process.close()

    def _connect(self) -> None:
        if self._connect_secured is not None:
            self._take_secured(self._connect_secured)
            return
        family, kind, protocol, _, address = self._address
        self._socket = socket.socket(family, kind, protocol)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(self._socket, selectors.EVENT_READ | selectors.EVENT_WRITE, self)
        if self._socket.connect_ex(address) not in (0, errno.EINPROGRESS):
            self._close()

    def _take_secured(self, connect: "Callable[[], Future[socket.socket]]") -> None:
        """Let a thread connect and log in by `connect`, and use its connection when it is done.

        A failed attempt is repeated at a later call. Raises LoginRefused if a retry would not help.
        """
        from .secured_socket import LoginRefused

        if self._opening is None:
            self._opening = connect()
        if not self._opening.done():
            return
        opened, self._opening = self._opening, None
        try:
            self._socket = opened.result()
        except LoginRefused:
            raise
        except OSError:
            return
        self._is_connected = self._has_served = True
        self._selector.register(self._socket, selectors.EVENT_READ, self)

    def _lose(self) -> None:
        self.lost += 1
        self._close()

    def _close(self) -> None:
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket.close()
        self._socket, self._is_connected = None, False
        self.answers.sent = 0
        self._received.clear()


def _secured(config: dict[str, Any], host: str, port: int) -> "Callable[[], Future[socket.socket]]":
    from .secured_socket import SecuredConnector

    connector, threads = SecuredConnector(config, host, port), ThreadPoolExecutor(1)
    return lambda: threads.submit(connector.connect)


def watch(
    nodes: list[dict[str, Any]], interval_ns: int, config: dict[str, Any] | None
) -> dict[str, Any]:
    """Send ApiVersions to the nodes until standard input ends. Return late answers and waits."""
    selector = selectors.SelectSelector()  # epoll's timeout is no finer than 1 ms
    os.set_blocking(sys.stdin.fileno(), False)
    selector.register(sys.stdin.fileno(), selectors.EVENT_READ, None)
    own = ProcessFiles(os.getpid())
    watched = {int(entry["node"]): Watched(selector, entry, config) for entry in nodes}
    commands, is_announced = b"", False
    began_ns = next_ns = time.monotonic_ns()
    own_before_ns, ticks = own.waited_ns(), 0
    while True:
        before_ns = own.waited_ns()
        befores_ns = {node: one.process.waited_ns() for node, one in watched.items()}
        for key, _ in selector.select(max(0, next_ns - time.monotonic_ns()) / 1e9):
            if key.data is not None:
                key.data.ready(lambda since_ns=before_ns: own.waited_ns() - since_ns)
                continue
            data = os.read(sys.stdin.fileno(), 1 << 16)
            if not data:
                now_ns = time.monotonic_ns()
                return {
                    "seconds": (now_ns - began_ns) / 1e9,
                    "waited_ms": (own.waited_ns() - own_before_ns) / 1e6,
                    "nodes": [one.result(now_ns, began_ns) for one in watched.values()],
                }
            *lines, commands = (commands + data).split(b"\n")
            for line in lines:
                command = json.loads(line)
                one = watched[command["node"]]
                if command["pid"] is None:
                    one.leave()
                else:
                    one.begin(command["pid"])
        now_ns, own_wait_ns = time.monotonic_ns(), own.waited_ns() - before_ns
        while next_ns <= now_ns:  # each tick that we slept over was due in its time
            for node, one in watched.items():
                one.due(next_ns, befores_ns[node] - own_wait_ns)
            next_ns += interval_ns
            ticks += 1
            if ticks % TICKS_PER_LOOK == 1:
                for one in watched.values():
                    one.look()
        for one in watched.values():
            one.send()
        if not is_announced and all(one.answers.count for one in watched.values()):
            is_announced = True
            print("watching", flush=True)


def main() -> None:
    """Read the nodes, watch them, and print the result."""
    asked = json.loads(sys.stdin.buffer.readline())
    gc.disable()
    gc.freeze()
    try:
        found = watch(asked["nodes"], int(asked["interval_ms"] * 1e6), asked.get("config"))
    except OSError as problem:  # an unknown name, no files left, a refused login
        sys.exit(print(problem, flush=True))
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
