"""A run's history by the second, with operations, latencies and faults. The file does no I/O."""

from typing import NamedTuple

import numpy as np

from ..judge.history.columns import History
from ..judge.history.format import Array
from ..judge.history.schema import OpOutcome

NS_A_SECOND = 1_000_000_000
BINS_MAX = 600


class Line(NamedTuple):
    """A curve with one value for each bin of time, where nan is unknown."""

    name: str
    values: Array


class FaultBar(NamedTuple):
    """The begin and end of one fault, in seconds since the first operation."""

    kind: str
    target: str
    start_s: float
    end_s: float


class Series(NamedTuple):
    """All curves and bars of a run.

    bin_s: the length of a bin, of which the first begins with the first operation.
    """

    bin_s: float
    seconds: float
    rates: tuple[Line, ...]
    latencies: tuple[Line, ...]  # ms
    faults: tuple[FaultBar, ...]


def series_of(history: History) -> Series:
    """Return the curves and faults of a history. Second 0 is the first send or polled record."""
    invoked = history.column("sends", "invoked_ns")
    acknowledged = history.column("sends", "acknowledged_ns")
    polled = history.column("polls", "returned_ns")
    asked = history.column("transactions", "commit_invoked_ns")
    ended = history.column("transactions", "ended_ns")
    is_committed = (history.column("transactions", "outcome") == OpOutcome.OK) & (asked >= 0)
    starts = [int(each.min()) for each in (invoked, polled) if len(each)]
    ends = [int(each.max()) for each in (acknowledged, polled, ended) if len(each)]
    start, end = min(starts, default=0), max(ends, default=0)
    seconds = max((end - start) / NS_A_SECOND, 1.0)
    bin_s = max(1.0, float(np.ceil(seconds / BINS_MAX)))
    bins = int(np.ceil(seconds / bin_s))

    def places(times: Array) -> Array:
        return np.clip(((times - start) / (bin_s * NS_A_SECOND)).astype(np.int64), 0, bins - 1)

    def rate(times: Array) -> Array:
        return np.bincount(places(times), minlength=bins)[:bins] / bin_s

    def percentile(at: Array, took_ns: Array, which: float) -> Array:
        found = np.full(bins, np.nan)
        order = np.argsort(places(at), kind="stable")
        at, took_ns = places(at)[order], took_ns[order]
        edges = np.searchsorted(at, np.arange(bins + 1))
        for number in np.flatnonzero(np.diff(edges)):
            part = took_ns[edges[number] : edges[number + 1]]
            found[number] = np.percentile(part, which) / 1e6
        return found

    known = acknowledged >= 0
    committed_at, commit_ns = ended[is_committed], (ended - asked)[is_committed]
    sent_at, sent_ns = acknowledged[known], (acknowledged - invoked)[known]
    plain = history.column("sends", "transaction")[known] < 0
    return Series(
        bin_s,
        seconds,
        (
            Line("records acknowledged/s", rate(acknowledged[known])),
            Line("records polled/s", rate(polled)),
            Line("transactions committed/s", rate(committed_at)),
        ),
        (
            Line("commit p50, ms", percentile(committed_at, commit_ns, 50)),
            Line("commit p99, ms", percentile(committed_at, commit_ns, 99)),
            Line("plain send p50, ms", percentile(sent_at[plain], sent_ns[plain], 50)),
            Line("plain send p99, ms", percentile(sent_at[plain], sent_ns[plain], 99)),
        ),
        _faults(history, start, seconds),
    )


def _faults(history: History, start: int, seconds: float) -> tuple[FaultBar, ...]:
    found: list[FaultBar] = []
    for row in range(history.count("faults")):
        facts = history.row("faults", row)
        begun, ended = int(facts["started_ns"] or 0), int(facts["ended_ns"] or -1)
        end_s = seconds if ended < 0 else (ended - start) / NS_A_SECOND
        found.append(
            FaultBar(str(facts["kind"]), str(facts["target"]), (begun - start) / NS_A_SECOND, end_s)
        )
    return tuple(found)
