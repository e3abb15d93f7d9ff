"""The watchdog of the event loop, which reports turns that are too long and the code that ran.

If the loop is blocked for a session timeout, the broker is fenced.

A turn is one iteration of the event loop. A timer on the loop fires every TICK_S, or every
IDLE_TICK_S while the loop is mostly idle, because each tick wakes the process. If the timer fires
late, one turn was too long. The same timer arms an alarm of the operating system. The alarm fires
during a long turn, in the main thread, and reads the running code from the stack (`describe`). So a
turn longer than STALL_S plus a tick is always noticed, a turn longer than STALL_S often, and no
thread is needed.

A turn is measured by its wall time, by the CPU time of its thread, by the time for which the thread
was ready but had no processor (`/proc/self/schedstat`), and by the pauses of the garbage collector.
Only the wall time less the wait for a processor counts against the broker. A pause of the process
(SIGSTOP, SIGCONT) does not count. Any thread may receive SIGCONT, and may run later than the main
thread, so a stall is counted one turn later.

The watchdog belongs to a process, not to a broker, and is started by `node/__main__`.
"""

import asyncio
import logging
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from ..coordinator.metadata.commands import MalformedCommand, decode_command
from ..runtime.garbage_collection import GarbageCollection
from ..wire.messages.apis import APIS
from .clock import until_tenth_s
from .linux import open_process_file

ROOT = str(Path(__file__).resolve().parents[1])


def _request(variables: dict[str, Any]) -> str:
    header = variables.get("header")
    client = f" of client {header.client_id}" if header is not None and header.client_id else ""
    return f"request {APIS[variables['api'].key].name}{client}"


# For each function, by qualified name, a description of its work from its local variables.
_NAMES: dict[str, Callable[[dict[str, Any]], str]] = {
    "Dispatcher.dispatch": _request,
    "Dispatcher._run.<locals>.run": _request,
    "ClusterState.apply_steps": lambda it: (
        f"command {type(decode_command(it['command'])[0]).__name__}"
    ),
    "TransactionShard.apply": lambda it: f"entry {it['index']} of a transaction shard",
    "SlicedWork._turn": lambda it: f"work {it['self'].running}",
}


def describe(frame: FrameType | None, task: "asyncio.Task[Any] | None") -> str:
    """Describe the work of the stack that ends in `frame`. `task` is the running task or None.

    A description is built only when needed, from the local variables of a few functions. The
    outermost known function gives the activity (a request, command, job or task), and the innermost
    frame of this project gives the place in the code.
    """
    name, where = "", ""
    for one in _stack(frame):
        tell = _NAMES.get(one.f_code.co_qualname)
        if tell is not None:
            # A function that has just begun may not have set its variables.
            with suppress(KeyError, AttributeError, MalformedCommand):
                name = tell(one.f_locals)  # the outermost function comes last
        if not where and one.f_code.co_filename.startswith(ROOT):
            file = one.f_code.co_filename[len(ROOT) + 1 :]
            where = f"{one.f_code.co_name} ({file}:{one.f_lineno})"
    if not name:
        name = f"task {task.get_name()}" if task is not None else "a callback"
    return f"{name}, in {where}" if where else name


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


logger = logging.getLogger(__name__)
TICK_S, IDLE_TICK_S = 0.05, 0.1
IDLE_SHARE = 0.05  # the maximum CPU share of an idle loop between two ticks
STALL_S = 0.1
STALL_LINE = re.compile(r"the event loop was kept for (\d+) ms by ")  # the beginning of str(Stall)
FINDING_S = 0.5  # a longer stall is a finding in chaos runs and in the pytest plugin


@dataclass(frozen=True, slots=True)
class Stall:
    """One turn of the event loop that was too long, with its times in seconds."""

    wall_s: float
    cpu_s: float
    waited_s: float  # time in which the thread was ready, but had no processor
    collected_s: float  # time of the garbage collector
    activity: str

    @property
    def own_s(self) -> float:
        """The duration of the turn without the time in which its thread had no processor."""
        return self.wall_s - self.waited_s

    def __str__(self) -> str:
        return (
            f"the event loop was kept for {self.own_s * 1000:.0f} ms by {self.activity}"
            f" (CPU {self.cpu_s * 1000:.0f} ms, of which garbage collection"
            f" {self.collected_s * 1000:.0f} ms; besides, it waited {self.waited_s * 1000:.0f} ms"
            " for a processor)"
        )


class LoopWatchdog:
    """The watchdog of the event loop in the main thread of this process."""

    def __init__(self) -> None:
        self.stall_count = self.finding_count = self.starved_count = 0
        self.longest: Stall | None = None
        self.last: Stall | None = None
        self._collection = GarbageCollection()
        self._schedstat: int | None = None
        self._cpu_s, self._tick_s = 0.0, TICK_S
        self._was_stopped = False
        self._unconfirmed: Stall | None = None
        self._activity = ""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start to watch the running event loop. It must be called in the main thread."""
        self._loop = asyncio.get_running_loop()
        signal.signal(signal.SIGALRM, self._alarm)
        signal.signal(signal.SIGCONT, self._continued)
        self._collection.start()
        self._schedstat = open_process_file("schedstat")
        self._begin_turn()

    def stop(self) -> None:
        self._confirm()
        if self._timer is not None:
            self._timer.cancel()
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.signal(signal.SIGCONT, signal.SIG_DFL)
            self._collection.stop()
        if self._schedstat is not None:
            os.close(self._schedstat)
            self._schedstat = None

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of the loop for the admin socket, in milliseconds."""
        longest = self.longest
        return {
            "stalls": self.stall_count,
            "stalls_over_500_ms": self.finding_count,
            "starved": self.starved_count,
            "longest_ms": round(longest.own_s * 1000) if longest else 0,
            "longest": str(longest) if longest else "",
            "last": str(self.last) if self.last else "",
            **self._collection.metrics(),
        }

    # -- turns

    def _begin_turn(self) -> None:
        # Before the clock is read, since the process may be stopped in between.
        self._was_stopped, self._activity = False, ""
        cpu_s, self._waited_s = time.thread_time(), self._processor_wait_s()
        is_idle = cpu_s - self._cpu_s <= IDLE_SHARE * self._tick_s
        tick_s = until_tenth_s(self._loop.time(), IDLE_TICK_S) if is_idle else TICK_S
        self._cpu_s, self._tick_s = cpu_s, tick_s
        self._collected_s = self._collection.paused_s
        self._due_s = time.monotonic() + tick_s
        self._timer = self._loop.call_later(tick_s, self._tick)
        signal.setitimer(signal.ITIMER_REAL, tick_s + STALL_S)

    def _tick(self) -> None:
        stall = self._stall(time.monotonic() - self._due_s)
        if self._was_stopped:
            self._unconfirmed = None
        else:
            self._confirm()
            self._unconfirmed = stall
        self._begin_turn()

    def _stall(self, late_s: float) -> Stall | None:
        if late_s < STALL_S:
            return None
        return Stall(
            wall_s=late_s,
            cpu_s=time.thread_time() - self._cpu_s,
            waited_s=min(late_s, self._processor_wait_s() - self._waited_s),
            collected_s=self._collection.paused_s - self._collected_s,
            activity=self._activity or "what ended before it could be seen",
        )

    def _confirm(self) -> None:
        """Count the stall of the previous turn, since no SIGCONT was received after it."""
        stall, self._unconfirmed = self._unconfirmed, None
        if stall is None:
            return
        if stall.own_s < STALL_S:
            self.starved_count += 1  # the machine had no processor for the broker
            return
        self.stall_count += 1
        self.finding_count += stall.own_s > FINDING_S
        self.last = stall
        if self.longest is None or stall.own_s > self.longest.own_s:
            self.longest = stall
        logger.warning("%s", stall)

    # -- signals

    def _alarm(self, _number: int, frame: FrameType | None) -> None:
        if self._collection.is_running:
            self._activity = "garbage collection"
        else:
            self._activity = describe(frame, asyncio.current_task(self._loop))

    def _continued(self, _number: int, _frame: FrameType | None) -> None:
        self._was_stopped = True

    def _processor_wait_s(self) -> float:
        if self._schedstat is None:
            return 0.0
        return int(os.pread(self._schedstat, 64, 0).split()[1]) / 1e9
