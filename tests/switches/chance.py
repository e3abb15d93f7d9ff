"""Whether random simulation finds a bug that nobody leads it to, and how soon.

The directed scenarios prove that the judge knows a bug when it sees one; this tells how likely the
schedules that are drawn by lot are to meet it: a measure of the simulation, not a test. The shapes
are the seeds' own.
"""

import time
from dataclasses import dataclass

from ..simulation.run import run_seed
from .catalogue import Switch

FIRST = 100_000  # seeds that nothing else uses


@dataclass(frozen=True, slots=True)
class Chance:
    """`seeds`: how many were tried, from `first` on; the last found it, unless `found` is empty."""

    first: int
    seeds: int
    cpu_s: float
    found: tuple[str, ...]

    def __str__(self) -> str:
        if self.found:
            return f"seed {self.seeds} of {self.first}.., {self.cpu_s:.0f} s"
        return f"not with {self.seeds} seeds"


def by_chance(switch: Switch, *, cpu_s: float, first: int = FIRST) -> Chance:
    """Try seed after seed until it is found, or so much time of the processor is spent."""
    started, seeds = time.process_time(), 0
    while True:
        outcome = run_seed(first + seeds, install=switch.install)
        seeds += 1
        spent_s = time.process_time() - started
        if outcome.names or spent_s > cpu_s:
            return Chance(first, seeds, spent_s, tuple(sorted(outcome.names)))
