"""The clock of a controlled cluster, which a test may advance by a week.

    with Cluster(clock="controlled") as cluster:
        cluster.clock.advance("8d")

The clock only goes forward. The advance survives restarts of nodes or of the whole cluster.
`advance` waits up to LOOK_TIMEOUT_S until all running nodes have checked timeouts, expiries and
retention. The nodes that have not done so by then are `behind` in its result, and check them later.
"""

import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from . import admin_socket_client
from .failure import Failure
from .node_process import NodeStatus

UNITS_MS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
MAX_MS = 100 * 365 * UNITS_MS["d"]
ADVANCE_TIMEOUT_S = 20.0
# timeout for one node, longer than the node's own timeout for the controller
ANSWER_TIMEOUT_S = 4.0
LOOK_TIMEOUT_S = 3.0
POLL_S = 0.01


class ClockNotControlled(Failure):
    """The error of a cluster that was not started with a controlled clock."""

    def __init__(self) -> None:
        super().__init__(
            "The clock of this cluster is the machine's, and cannot be advanced. Start one with "
            "`oncelog up --clock controlled`, Cluster(clock='controlled'), or in a test with the "
            "marker oncelog(clock='controlled')."
        )


@dataclass(frozen=True, slots=True)
class ClockStatus:
    """The time of a cluster.

    now_ms: the time of the cluster's clock, in ms since 1970. behind: running nodes that have not
    checked their timeouts yet, because they cannot be reached or have much to do.
    """

    now_ms: int
    advanced_ms: int
    behind: tuple[int, ...] = ()


class ClockedCluster(Protocol):
    """The methods of a cluster that the clock uses."""

    @property
    def peer_directory(self) -> Path: ...

    def status(self) -> Sequence[NodeStatus]: ...


class ClockControl:
    """The object `Cluster.clock`. It calls `note` with a sentence about each advance."""

    def __init__(self, cluster: ClockedCluster, note: Callable[[str], None] | None = None) -> None:
        self._cluster = cluster
        self._note = note or (lambda _: None)

    def show(self) -> ClockStatus:
        """Return the latest time of the running nodes, and the nodes that are behind.

        A node that missed an advance is behind until it gets the advance. Raises
        ClockNotControlled, or Failure if no node answers.
        """
        known = self._known(self._running())
        if not any(answer["is_controlled"] for answer in known.values()):
            raise ClockNotControlled
        latest = max(known.values(), key=lambda answer: answer["now_ms"])
        return self._status(latest["now_ms"], latest["advanced_ms"], known)

    def advance(self, by: str | timedelta) -> ClockStatus:
        """Advance the clock by "15m", "1h30m" or "8d", and return its new time.

        Raises ClockNotControlled or Failure. The Failure says whether the clock was not advanced or
        may have been. In the second case `show` has the answer.
        """
        by_ms = duration_ms(by)
        self.show()
        request = {
            "op": "advance-clock",
            "by_ms": by_ms,
            "operation_id": secrets.token_hex(16),
        }
        why, deadline = "no node runs", time.monotonic() + ADVANCE_TIMEOUT_S
        while time.monotonic() < deadline:
            for node_id in self._running():  # the same operation id, so the advance is made once
                try:
                    answer = self._ask(node_id, request, ANSWER_TIMEOUT_S)
                except Failure as problem:
                    why = str(problem)
                    continue
                if "refused" in answer:
                    raise Failure(f"The clock was not advanced: {answer['refused']}")
                if "unknown" not in answer:
                    self._note(f"the clock was advanced by {by}")
                    return self._until_looked(answer["advanced_ms"])
                why = answer["unknown"]
            time.sleep(POLL_S)
        raise Failure(f"The clock may have been advanced or not: {why} See: oncelog clock show")

    def _until_looked(self, advanced_ms: int) -> ClockStatus:
        deadline = time.monotonic() + LOOK_TIMEOUT_S
        while True:
            is_late, known = time.monotonic() > deadline, dict[int, dict[str, Any]]()
            try:
                known = self._known(self._running())
            except Failure as problem:
                if is_late:
                    raise Failure(
                        "The clock was advanced, but it is unknown whether nodes have checked "
                        f"their timeouts: {problem}"
                    ) from problem
            now_ms = max((answer["now_ms"] for answer in known.values()), default=0)
            status = self._status(now_ms, advanced_ms, known)
            if known and (is_late or not status.behind):
                return status
            time.sleep(POLL_S)

    def _status(
        self, now_ms: int, advanced_ms: int, known: dict[int, dict[str, Any]]
    ) -> ClockStatus:
        looked = {i for i, answer in known.items() if answer["looked_ms"] >= advanced_ms}
        behind = tuple(i for i in self._running() if i not in looked)
        return ClockStatus(now_ms, advanced_ms, behind)

    def _known(self, node_ids: list[int]) -> dict[int, dict[str, Any]]:
        """Return the clock's state by node, for the nodes that answer.

        Raises Failure if no node answers.
        """
        known: dict[int, dict[str, Any]] = {}
        problem = Failure("No node runs, so nothing is known of the cluster's clock.")
        for node_id in node_ids:
            try:
                known[node_id] = self._ask(node_id, {"op": "clock"})
            except Failure as failure:
                problem = failure
        if not known:
            raise problem
        return known

    def _running(self) -> list[int]:
        return [s.node_id for s in self._cluster.status() if s.state == "running"]

    def _ask(self, node_id: int, request: dict[str, Any], timeout_s: float = 2.0) -> dict[str, Any]:
        directory = self._cluster.peer_directory
        return admin_socket_client.ask(directory, node_id, request, timeout_s=timeout_s)


def duration_ms(by: str | timedelta) -> int:
    """Return the ms of a duration, which is a text ("15m", "1h30m", "8d") or a timedelta.

    Raises Failure unless the duration is valid, positive, and at most MAX_MS.
    """
    found = 0
    if isinstance(by, timedelta):
        found = round(by / timedelta(milliseconds=1))
    elif isinstance(by, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        parts = re.findall(r"(\d{1,12})(ms|[smhdw])", by)
        whole = "".join(number + unit for number, unit in parts) == by
        found = sum(int(number) * UNITS_MS[unit] for number, unit in parts) if whole else 0
    if not 0 < found <= MAX_MS:
        raise Failure(
            f"{by!r} is not a valid time for an advance of the clock. Write for example 15m, "
            f"1h30m or "
            "8d (units: ms, s, m, h, d, w; 100 years at most).",
            exit_code=2,
        )
    return found
