"""Reduce a failing schedule by removing faults as long as the run still fails (ddmin).

The reduced run must have a violation of the same name, but its sentence may differ.
"""

from collections.abc import Callable, Sequence

from .outcome import Fault, Outcome, Shape

RUNS_MAX = 60


def shrink(
    failed: Outcome, again: Callable[[Sequence[Fault]], Outcome], runs_max: int = RUNS_MAX
) -> tuple[list[Fault], int]:
    """Return a smaller schedule that fails in the same way, and the number of runs.

    It is minimal if `runs_max` was not reached. `again` runs the seed with another schedule.
    """
    left, wanted, runs = list(failed.faults), set(failed.names), 0

    def fails(faults: Sequence[Fault]) -> bool:
        nonlocal runs
        runs += 1
        return bool(again(faults).names & wanted)

    pieces = 2
    while left and runs < runs_max:
        size = max(1, len(left) // pieces)
        for start in range(0, len(left), size):
            fewer = left[:start] + left[start + size :]
            if runs < runs_max and fails(fewer):
                left, pieces = fewer, max(2, pieces - 1)
                break
        else:
            if size == 1:
                break
            pieces = min(len(left), 2 * pieces)
    return left, runs


def command(seed: int, faults: Sequence[Fault], shape: Shape | None = None) -> str:
    """Return the command that runs a seed with these faults.

    Without `shape` the seed determines the shape.
    """
    given = " ".join(f"'{fault}'" for fault in faults)
    shaped = "" if shape is None else f" --shape '{shape}'"
    return f"python -m tests.simulation.run --seed {seed}{shaped} --faults {given}"
