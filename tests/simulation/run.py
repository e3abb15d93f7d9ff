"""A whole cluster in one process under virtual time, from one seed.

    python -m tests.simulation.run --seed 7            one seed, its faults, its verdict
    python -m tests.simulation.run --seeds 0:150       many

`run_seed` is what other tests use. Its signature is settled; the cluster behind it is being built.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from .outcome import Fault, Outcome, Shape

Install = Callable[[], AbstractContextManager[object]]


def run_seed(
    seed: int,
    *,
    shape: Shape | None = None,
    faults: Sequence[Fault] | None = None,
    install: Install | None = None,
) -> Outcome:
    """Run one seed to its end and judge it; never raises for what the cluster did wrong.

    shape: None lets the seed choose. faults: instead of the seed's own schedule (the workload
    stays the seed's). install: makes a context that is entered before the first node is built and
    left after the judge; it may put broken behaviour into the brokers' and cores' classes.
    """
    raise NotImplementedError("not built yet")
