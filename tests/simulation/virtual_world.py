"""Virtual time, network, threads and disks for the simulation of Raft, all from one seed.

The code under test gets a loop, an executor, a disk and a `send` with the real interfaces. After a
crash callbacks of the node never run again. Its disk keeps all writes after a SIGKILL. After a
power cut it keeps the synced data and a random part of the unsynced sectors.
"""

import contextlib
import hashlib
import heapq
import random
from collections.abc import Callable, Generator
from typing import Any

SECTOR_BYTES = 512


class Handle:
    """A scheduled call that can be cancelled."""

    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Crash(BaseException):
    """Raised in a disk operation during which the machine stops."""


class World:
    """The clock and the queue of all future events."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 1_000.0
        self.trace = hashlib.sha256()
        self._queue: list[tuple[float, int, Handle, Callable[..., Any], tuple]] = []
        self._count = 0

    def at(self, when: float, call: Callable[..., Any], *arguments: Any) -> Handle:
        self._count += 1
        handle = Handle()
        entry = (max(when, self.now), self._count, handle, call, arguments)
        heapq.heappush(self._queue, entry)
        return handle

    def note(self, *what: Any) -> None:
        self.trace.update(repr((round(self.now, 6), *what)).encode())

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        end = self.now + seconds
        while self._queue and self._queue[0][0] <= end:
            self.now, _, handle, call, arguments = heapq.heappop(self._queue)
            if not handle.cancelled:
                call(*arguments)
                if until is not None and until():
                    return True
        self.now = end
        return until is None


class NodeLoop:
    """The event loop of a node between two crashes. Its clock is ahead by a constant time."""

    def __init__(self, world: World, ahead_s: float = 0.0) -> None:
        self._world = world
        self._ahead_s = ahead_s
        self.is_alive = True

    def time(self) -> float:
        return self._world.now + self._ahead_s

    def call_at(self, when: float, call: Callable[..., Any], *arguments: Any) -> Handle:
        return self._world.at(when - self._ahead_s, self._guarded, call, arguments)

    def call_soon(self, call: Callable[..., Any], *arguments: Any) -> Handle:
        return self._world.at(self._world.now, self._guarded, call, arguments)

    call_soon_threadsafe = call_soon

    def is_closed(self) -> bool:
        return not self.is_alive

    def _guarded(self, call: Callable[..., Any], arguments: tuple) -> None:
        if self.is_alive:
            call(*arguments)


class _Future:
    def __init__(self) -> None:
        self._callbacks: list[Callable[[Any], None]] = []
        self._result: Any = None
        self._error: Exception | None = None
        self._is_cancelled = False

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    def cancel(self) -> None:
        self._is_cancelled = True

    def cancelled(self) -> bool:
        return self._is_cancelled

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    def fail(self, error: Exception) -> None:
        self._error = error
        for callback in self._callbacks:
            callback(self)

    def run(self, job: Callable[[], Any]) -> None:
        try:
            self._result = job()
        except Exception as error:
            self.fail(error)
            return
        for callback in self._callbacks:
            callback(self)


class NodeExecutor:
    """The thread pool of a node between two crashes. A crash may interrupt a job."""

    def __init__(self, world: World, loop: NodeLoop, disk: "VirtualDisk") -> None:
        self._world, self._loop, self._disk = world, loop, disk
        self._under_way: dict[int, Callable[[], Any]] = {}
        self._count = 0
        self.jobs_left = 0  # jobs until `on_last_job`; 0: no call is expected
        self.on_last_job: Callable[[], object] | None = None

    def submit(self, job: Callable[[], Any]) -> _Future:
        rng = self._world.random
        duration = 0.25 if rng.random() < 0.01 else rng.uniform(0.0002, 0.003)
        future = _Future()
        self._count += 1
        self._under_way[self._count] = job
        self._world.at(self._world.now + duration, self._finish, self._count, future)
        return future

    def crash(self) -> None:
        """Run each job in flight until a random one of its disk operations, and stop it there."""
        for job in self._under_way.values():
            self._disk.operations_left = self._world.random.randrange(6)
            with contextlib.suppress(Crash, Exception):
                job()
        self._disk.operations_left = None

    def _finish(self, number: int, future: _Future) -> None:
        if not self._loop.is_alive:
            return
        future.run(self._under_way.pop(number))
        self.jobs_left -= self.jobs_left > 0
        if self.on_last_job is not None and not self.jobs_left:
            self.on_last_job, call = None, self.on_last_job
            call()


class NodeWork:
    """The sliced work of a node between two crashes.

    Other jobs or a crash may come between two steps of a job.
    """

    def __init__(self, world: World, loop: NodeLoop) -> None:
        self._world, self._loop = world, loop
        self._now = 0.0

    def clock(self) -> float:
        """Return a time that sometimes jumps, so that a slice may end after any step."""
        if self._world.random.random() < 0.05:
            self._now += 1.0
        return self._now

    def run(self, name: str, steps: Generator[None, None, Any]) -> "_Future":
        future = _Future()
        self._go_on(steps, future)
        return future

    def _go_on(self, steps: Generator[None, None, Any], future: "_Future") -> None:
        delay = self._world.random.uniform(0, 0.004)
        self._loop.call_at(self._world.now + delay, self._step, steps, future)

    def _step(self, steps: Generator[None, None, Any], future: "_Future") -> None:
        if future.cancelled():
            return
        try:
            next(steps)
        except StopIteration as end:
            result = end.value
            future.run(lambda: result)
        except Exception as error:
            future.fail(error)
        else:
            self._go_on(steps, future)


class VirtualDisk:
    """Journal segments and snapshots of one node. A power cut may lose unsynced writes."""

    def __init__(self, rng: random.Random) -> None:
        self._random = rng
        self._segments: dict[int, bytearray] = {}
        self._unsynced: dict[int, list[tuple[int, bytes]]] = {}
        self._snapshots: dict[int, bytes] = {}
        self._prepared: dict[int, bytes] = {}
        self._deleted: list[tuple[int, bytearray]] = []
        self.operations_left: int | None = None
        self.is_open = False

    def open(self) -> None:
        assert not self.is_open
        self.is_open = True

    def close(self) -> None:
        self.is_open = False

    def segments(self) -> list[int]:
        return sorted(self._segments)

    def segment_name(self, number: int) -> str:
        return f"{number}.wal"

    def read_segment(self, number: int) -> bytes:
        segment = bytearray(self._segments[number])
        for position, data in self._unsynced.get(number, ()):
            segment[position : position + len(data)] = data
        return bytes(segment)

    def ensure_segment(self, number: int, size_bytes: int) -> None:
        self._step()
        self._segments.setdefault(number, bytearray(size_bytes))

    def write(self, number: int, position: int, data: bytes) -> None:
        self._step()
        assert position + len(data) <= len(self._segments[number])
        self._unsynced.setdefault(number, []).append((position, bytes(data)))

    def sync(self, number: int) -> None:
        self._step()
        segment = self._segments[number]
        for position, data in self._unsynced.pop(number, ()):
            segment[position : position + len(data)] = data

    def delete_segment(self, number: int) -> None:
        self._step()
        self._deleted = [*self._deleted[-1:], (number, self._segments.pop(number))]
        self._unsynced.pop(number, None)

    def snapshot_name(self, group_id: int) -> str:
        return f"group-{group_id}.snapshot"

    def read_snapshot(self, group_id: int) -> bytes | None:
        return self._snapshots.get(group_id)

    def prepare_snapshot(self, group_id: int, data: bytes) -> None:
        self._step()
        self._prepared[group_id] = data

    def publish_snapshot(self, group_id: int) -> None:
        self._step()
        self._snapshots[group_id] = self._prepared.pop(group_id)

    def crash(self, *, power: bool) -> None:
        """Apply a crash. A SIGKILL keeps all writes, and a power cut any subset of the sectors."""
        for number, writes in self._unsynced.items():
            segment = self._segments[number]
            for position, data in writes:
                start = position
                while start < position + len(data):
                    end = min(
                        start // SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES, position + len(data)
                    )
                    if not power or self._random.random() < 0.6:
                        segment[start:end] = data[start - position : end - position]
                    start = end
        if power:  # the directory was not synced: the newest deletions are reverted
            self._segments = dict(self._deleted[self._random.randrange(3) :]) | self._segments
        self._deleted.clear()
        self._unsynced.clear()
        self._prepared.clear()
        self.is_open = False

    def wipe(self) -> None:
        self.__init__(self._random)

    def _step(self) -> None:
        if self.operations_left is not None:
            if self.operations_left == 0:
                raise Crash
            self.operations_left -= 1


class Network:
    """A network that may delay, lose, repeat and reorder frames, and cut links in one direction."""

    def __init__(self, world: World, deliver: Callable[[int, int, bytes], None]) -> None:
        self._world = world
        self._deliver = deliver
        self._last_arrival: dict[tuple[int, int], float] = {}
        self.cut: set[tuple[int, int]] = set()
        self.loss = 0.0
        self.repetition = 0.0
        self.disorder = 0.0
        self.delay_max = 0.002
        self.sent = 0

    def send(self, source: int, target: int, frame: bytes) -> bool:
        rng = self._world.random
        self.sent += 1
        if (source, target) in self.cut:
            return rng.random() < 0.5  # the message is lost in a queue, or the sender gets False
        if rng.random() < self.loss:
            return True
        copies = 2 if rng.random() < self.repetition else 1
        for _ in range(copies):
            arrival = self._world.now + rng.uniform(0.00005, self.delay_max)
            if rng.random() >= self.disorder and copies == 1:
                arrival = max(arrival, self._last_arrival.get((source, target), 0.0))
                self._last_arrival[source, target] = arrival
            self._world.at(arrival, self._arrive, source, target, frame)
        return True

    def _arrive(self, source: int, target: int, frame: bytes) -> None:
        if (source, target) not in self.cut:
            self._deliver(source, target, frame)
