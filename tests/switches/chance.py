"""Whether random simulation finds a bug that nobody leads it to, and how soon.

The directed scenarios prove that the judge knows a bug when it sees one; this tells how likely the
schedules that are drawn by lot are to meet it: a measure of the simulation, not a test.
"""

import time
from dataclasses import dataclass

from ..simulation.outcome import Shape
from ..simulation.run import run_seed
from .catalogue import Switch

SHAPE = Shape(seconds=15.0, faults=14)


@dataclass(frozen=True, slots=True)
class Chance:
    """`seeds`: how many were tried; the last of them found it, unless `found` is empty."""

    seeds: int
    cpu_s: float
    found: tuple[str, ...]

    def __str__(self) -> str:
        if self.found:
            return f"with seed {self.seeds - 1}, after {self.cpu_s:.0f} s"
        return f"not with {self.seeds} seeds"


def by_chance(switch: Switch, *, cpu_s: float) -> Chance:
    """Try seed after seed until it is found, or so much time of the processor is spent."""
    started, seed = time.process_time(), 0
    while True:
        outcome = run_seed(seed, shape=SHAPE, install=switch.install)
        seed += 1
        spent_s = time.process_time() - started
        if outcome.names or spent_s > cpu_s:
            return Chance(seed, spent_s, tuple(sorted(outcome.names)))
