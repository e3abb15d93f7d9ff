"""Whether offsets are committed by a timer that goes on through rebalances.

A tick is a commit that comes whole defaults of 5 s behind another one of its instance, or behind
the start of its client. What a rebalance brings about says nothing, tick or not.
"""

from collections import defaultdict
from dataclasses import dataclass, field

DEFAULT_S, JITTER_S = 5.0, 0.1  # auto.commit.interval.ms of all clients
BEHIND_MAX = 2  # defaults
TICKS_MIN, TICKS_SHARE, SPARSE_MAX = 3, 2 / 3, 5
REVOKED_S = 1.0  # so close before a JoinGroup or LeaveGroup it is a commit of the rebalance


@dataclass(slots=True)
class _Life:
    """The commits of an instance in a group, across rebalances: (seconds, whether it is a tick)."""

    commits: list[tuple[float, bool]] = field(default_factory=list[tuple[float, bool]])
    is_fresh: bool = False  # the last of them may turn out to be of a rebalance


@dataclass(slots=True)
class _Counts:
    ticks: int = 0
    commits: int = 0


class CommitTicks:
    """Of all groups that are seen. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._lives = defaultdict[str, dict[str, _Life]](dict[str, _Life])  # instance -> group
        self._counts = defaultdict[str, _Counts](_Counts)
        self._connections = defaultdict[str, int](int)  # open ones, of an instance
        self._started_s = dict[str, float]()

    def opened(self, instance: str, at_s: float) -> None:
        """A connection; the first one is the start of a client."""
        if not self._connections[instance]:
            self._started_s[instance] = at_s
        self._connections[instance] += 1

    def closed(self, instance: str) -> None:
        self._connections[instance] = max(0, self._connections[instance] - 1)

    def rebalanced(self, instance: str, at_s: float) -> None:
        """It joins or leaves a group: its last commit, if that is close, was part of it."""
        for group, life in self._lives[instance].items():
            if life.is_fresh and at_s - life.commits[-1][0] <= REVOKED_S:
                life.is_fresh = False
                _, is_tick = life.commits.pop()
                self._counts[group].commits -= 1
                self._counts[group].ticks -= is_tick

    def committed(self, instance: str, group: str, at_s: float) -> str:
        """What shows a timer, in words; empty as long as nothing does."""
        life, counts = self._lives[instance].setdefault(group, _Life()), self._counts[group]
        oldest_s = at_s - BEHIND_MAX * DEFAULT_S - JITTER_S
        before = [each for each in life.commits if each[0] >= oldest_s]
        moments = [self._started_s.get(instance, at_s), *(moment_s for moment_s, _ in before)]
        is_tick = len(before) <= SPARSE_MAX and any(_is_multiple(at_s - each) for each in moments)
        life.commits = [*before[-2 * SPARSE_MAX :], (at_s, is_tick)]
        life.is_fresh = True
        counts.commits += 1
        counts.ticks += is_tick
        if counts.ticks < max(TICKS_MIN, TICKS_SHARE * counts.commits):
            return ""
        return (
            f"{counts.ticks} of {counts.commits} OffsetCommits come a multiple of {DEFAULT_S:g} s "
            "after another, or after the start of their client, whatever is written between them"
        )


def _is_multiple(gap_s: float) -> bool:
    defaults = round(gap_s / DEFAULT_S)
    return defaults > 0 and abs(gap_s - defaults * DEFAULT_S) <= JITTER_S
