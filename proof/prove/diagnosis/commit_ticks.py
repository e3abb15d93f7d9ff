"""Finds out whether a timer sends the commits of an instance, also through rebalances.

A tick is a commit at a multiple of the default 5 s after another commit of its instance, or after
the start of its client. Commits of a rebalance prove nothing, whether or not they are ticks.
"""

from collections import defaultdict
from dataclasses import dataclass

DEFAULT_S, JITTER_S = 5.0, 0.1  # auto.commit.interval.ms of all clients
EARLY_S, LATE_S = 0.1, 0.25  # a timer begins about when its client connects first, or after that
BEHIND_MAX = 2  # defaults
TICKS_MIN, TICKS_SHARE, SPARSE_MAX = 3, 2 / 3, 5
RECENT_MAX = 8  # including those of rebalances, of which each may bring several
# output this long before a tick counts; a commit after each batch follows it immediately
WRITTEN_MIN_S = 0.3
REVOKED_S = 1.0  # so close before a JoinGroup or LeaveGroup it is a commit of the rebalance


@dataclass(slots=True)
class _Commit:
    at_s: float
    is_tick: bool
    is_revoked: bool = False  # of a rebalance


@dataclass(slots=True)
class _Counts:
    ticks: int = 0
    commits: int = 0

    def add(self, commit: _Commit, sign: int = 1) -> None:
        self.ticks += sign * commit.is_tick
        self.commits += sign


class CommitTicks:
    """The times of the commits of all groups, in seconds of one clock."""

    def __init__(self) -> None:
        # The last commits of an instance, across rebalances; by instance and group.
        self._commits = defaultdict[str, dict[str, list[_Commit]]](dict[str, list[_Commit]])
        self._counts = defaultdict[str, _Counts](_Counts)
        self._connections = defaultdict[str, int](int)  # open ones, of an instance
        self._started_s = dict[str, float]()

    def opened(self, instance: str, at_s: float) -> None:
        """Record that an instance opened a connection.

        A connection that is opened while no other is open is the start of its client.
        """
        if not self._connections[instance]:
            self._started_s[instance] = at_s
        self._connections[instance] += 1

    def closed(self, instance: str, at_s: float) -> None:
        """Record that an instance closed a connection.

        When it has closed its last connection, it counts as having left its groups.
        """
        self._connections[instance] = max(0, self._connections[instance] - 1)
        if not self._connections[instance]:
            self.rebalanced(instance, at_s)

    def rebalanced(self, instance: str, at_s: float) -> None:
        """Record that an instance joins or leaves a group.

        Its commits just before are ignored, because the rebalance caused them, and not a timer.
        """
        for group, commits in self._commits[instance].items():
            for commit in reversed(commits):
                if commit.is_revoked or at_s - commit.at_s > REVOKED_S:
                    break
                commit.is_revoked = True
                self._counts[group].add(commit, -1)

    def committed(
        self, instance: str, group: str, at_s: float, written_since_s: float | None = None
    ) -> str:
        """Record a commit. Return evidence of a timer as a sentence, or an empty text.

        written_since_s: the time of the first output that this commit covers.
        """
        commits, counts = self._commits[instance].get(group, []), self._counts[group]
        oldest_s = at_s - BEHIND_MAX * DEFAULT_S - JITTER_S
        recent = [each for each in commits if each.at_s >= oldest_s]
        before = [each.at_s for each in recent if not each.is_revoked]
        is_sparse = len(before) <= SPARSE_MAX and len(recent) <= RECENT_MAX
        has_waited = written_since_s is None or at_s - written_since_s >= WRITTEN_MIN_S
        since_start_s = at_s - self._started_s.get(instance, at_s)
        is_tick = (
            is_sparse
            and has_waited
            and (
                _is_multiple(since_start_s, EARLY_S, LATE_S)
                or any(_is_multiple(at_s - each, JITTER_S, JITTER_S) for each in before)
            )
        )
        commit = _Commit(at_s, is_tick)
        self._commits[instance][group] = [*recent[-RECENT_MAX:], commit]
        counts.add(commit)
        if counts.ticks < max(TICKS_MIN, TICKS_SHARE * counts.commits):
            return ""
        return (
            f"{counts.ticks} of {counts.commits} OffsetCommits come a multiple of {DEFAULT_S:g} s "
            "after another, or after the start of their client, whatever is written between them"
        )


def _is_multiple(gap_s: float, early_s: float, late_s: float) -> bool:
    defaults = round(gap_s / DEFAULT_S)
    return defaults > 0 and -early_s <= gap_s - defaults * DEFAULT_S <= late_s
