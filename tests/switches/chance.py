"""Measure how soon the random simulation finds a bug without a directed scenario.

A directed scenario proves that the judge recognizes a bug. This program measures how likely random
faults trigger the bug, so it is not a test. A switch names the shape of the simulated cluster, or
each seed has its own. Bugs in elections are searched for by the simulation of Raft alone.
"""

import time
from dataclasses import dataclass

from oncelog.coordinator.raft.outcomes import CorruptJournal

from ..simulation.outcome import NAMED
from ..simulation.raft_simulation import Violation
from ..simulation.run import run_seed
from ..simulation.test_raft_simulation import run_schedule
from .catalogue import RAFT_ALONE, Switch

FIRST = 100_000  # seeds that nothing else uses
RANDOM_APART = 1_000_000  # the first seeds of the plays of a scenario that is random


@dataclass(frozen=True, slots=True)
class Chance:
    """The result of a search with `seeds` random seeds, from seed `first` on.

    The last seed found the bug, unless `found` is empty.
    """

    shape: str
    first: int
    seeds: int
    cpu_s: float
    found: tuple[str, ...]

    def __str__(self) -> str:
        where = f"{self.shape}: " if self.shape else ""
        if self.found:
            return f"{where}seed {self.seeds} of {self.first}.., {self.cpu_s:.0f} s"
        return f"{where}not with {self.seeds} seeds"


def by_chance(switch: Switch, *, cpu_s: float, first: int = FIRST) -> Chance:
    """Run seeds until one finds the bug by an expected anomaly, or the CPU time is spent."""
    started, seeds = time.process_time(), 0
    while True:
        found = _found(switch, first + seeds)
        seeds += 1
        spent_s = time.process_time() - started
        if found or spent_s > cpu_s:
            return Chance(switch.shape, first, seeds, spent_s, tuple(sorted(found)))


def _found(switch: Switch, seed: int) -> set[str]:
    """Return the expected anomalies that a run of one seed with the bug reports."""
    if switch.shape != RAFT_ALONE:
        shape = NAMED[switch.shape] if switch.shape else None
        return run_seed(seed, shape=shape, install=switch.install).names & switch.found_as
    with switch.install():
        try:
            run_schedule(seed)
        except (Violation, CorruptJournal) as violation:
            return {words for words in switch.found_as if words in str(violation)}
    return set()
