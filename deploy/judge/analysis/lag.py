"""How far consumers were behind, at least: never an anomaly, but worth a look and a drawing.

An offset is out of date from the moment at which any higher one of its partition is known to
exist (a send was acknowledged there, or somebody read it). A poll call that leaves a consumer at
an offset that was out of date when the call began is behind by at least that time.
"""

from dataclasses import dataclass

import numpy as np

from .arrays import Array
from .evidence import Evidence
from .view import View


@dataclass(frozen=True, slots=True)
class Lag:
    """One poll call and one partition that was assigned to its consumer."""

    invoked_ns: int
    process: int
    partition: str
    lag_ns: int


def realtime_lag(view: View) -> list[Lag]:
    """The lag of every poll call for every partition that was assigned, in the order of time."""
    history = view.history
    known = _known_since(view)
    polls = {
        name: history.column("polls", name)
        for name in ("process", "partition", "session", "call", "offset")
    }
    calls, callers = history.column("poll_calls", "call"), history.column("poll_calls", "process")
    invoked = history.column("poll_calls", "invoked_ns")
    found: list[Lag] = []
    for row in range(history.count("assignments")):
        a = {
            name: int(history.column("assignments", name)[row])
            for name in ("process", "partition", "session", "assigned_ns", "revoked_ns")
        }
        until = a["revoked_ns"] if a["revoked_ns"] >= 0 else np.iinfo(np.int64).max
        during = (callers == a["process"]) & (invoked >= a["assigned_ns"]) & (invoked < until)
        got = (
            (polls["process"] == a["process"])
            & (polls["partition"] == a["partition"])
            & (polls["session"] == a["session"])
        )
        offsets, since = known.get(a["partition"], (np.empty(0), np.empty(0)))
        position = -1
        for call in np.flatnonzero(during):
            own = polls["offset"][got & (polls["call"] == calls[call])]
            position = max([position, *own.tolist()])
            next_one = int(np.searchsorted(offsets, position, "right"))
            is_behind = next_one < len(offsets)
            lag_ns = max(0, int(invoked[call] - since[next_one])) if is_behind else 0
            name = history.name(a["partition"]) or ""
            found.append(Lag(int(invoked[call]), a["process"], name, lag_ns))
    return sorted(found, key=lambda lag: (lag.invoked_ns, lag.partition))


def worst_lag(view: View) -> Lag | None:
    """The largest lag of a history."""
    return max(realtime_lag(view), key=lambda lag: lag.lag_ns, default=None)


def _known_since(view: View) -> dict[int, tuple[Array, Array]]:
    """By partition: offsets ascending, and since when something at or above each is known."""
    history, evidence = view.history, Evidence(view)
    acknowledged = history.column("sends", "acknowledged_ns")
    rows = np.flatnonzero((acknowledged >= 0) & (view.send_place[: view.sends] >= 0))
    partitions, offsets = [view.partition[rows]], [history.column("sends", "offset")[rows]]
    times = [acknowledged[rows]]
    for reads in view.committed:
        if reads.table == "polls":
            partitions.append(reads.partition)
            offsets.append(reads.offset)
            times.append(evidence.read_ns(reads))
    partition, offset = np.concatenate(partitions), np.concatenate(offsets)
    time = np.concatenate(times)
    found: dict[int, tuple[Array, Array]] = {}
    for at in np.unique(partition).tolist():
        chosen = partition == at
        order = np.argsort(offset[chosen], kind="stable")
        since = np.minimum.accumulate(time[chosen][order][::-1])[::-1]
        found[at] = (offset[chosen][order], since)
    return found
