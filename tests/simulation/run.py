"""A whole cluster in one process under virtual time, from one seed.

    python -m tests.simulation.run --seed 7            one seed: its faults, its verdict
    python -m tests.simulation.run --seeds 0:160       many seeds
    python -m tests.simulation.run --seed 7 --faults 'kill@1.5+2/0:1' 'cut@3+1/0:1>2'
    python -m tests.simulation.run --seeds 0:30 --shape power
    python -m tests.simulation.run --seed 7 --shape nodes=5,faults=30,kinds=kill+cut

`run_seed` is for other tests. A failing seed's schedule is reduced before it is printed.
"""

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Sequence

from .fault_schedule import ImpossibleFault
from .outcome import NAMED, Fault, Outcome, Shape
from .shrink import command, shrink
from .simulation import Install, run
from .virtual_cluster import bury


def run_seed(
    seed: int,
    *,
    shape: Shape | None = None,
    faults: Sequence[Fault] | None = None,
    install: Install | None = None,
) -> Outcome:
    """Run one seed to its end, and return the judged outcome. A violation raises no exception.

    Without `shape` the seed determines the shape. `faults` replaces the schedule of the seed, while
    the workload stays the same. `install` returns a context that is open from before the first node
    is built until after the verdict, and may replace product code by broken code. Raises ValueError
    for an impossible fault.
    """
    return run(seed, shape=shape, faults=faults, install=install)


def report(outcome: Outcome) -> str:
    head = (
        f"seed {outcome.seed}: {outcome.virtual_s:.0f} virtual s in {outcome.cpu_s:.2f} CPU s, "
        f"{outcome.events} events, {len(outcome.faults)} faults, {outcome.operations} operations, "
        f"{outcome.transactions} transactions, trace {outcome.trace_hash}"
    )
    return "\n".join([head, *(f"  VIOLATION {each[:900]}" for each in outcome.violations[:12])])


def in_json(outcome: Outcome) -> str:
    return json.dumps(
        {
            "seed": outcome.seed,
            "violations": outcome.violations[:12],
            "names": sorted(outcome.names),
            "faults": [str(fault) for fault in outcome.faults],
            "trace": outcome.trace_hash,
            "virtual_s": outcome.virtual_s,
            "cpu_s": outcome.cpu_s,
            "operations": outcome.operations,
            "transactions": outcome.transactions,
        }
    )


def shrunken(outcome: Outcome, shape: Shape | None) -> str:
    """Return a line with the number of runs and the command for the shrunken schedule."""
    faults, runs = shrink(outcome, lambda fewer: run(outcome.seed, shape=shape, faults=fewer))
    return f"  after {runs} runs: {command(outcome.seed, faults, shape)}"


def seeds_of(text: str) -> range:
    """Return the seeds of a text such as "7" or "0:160". The end of a range is not included."""
    first, is_range, behind = text.partition(":")
    return range(int(first), int(behind) if is_range else int(first) + 1)


def main(arguments: list[str] | None = None) -> int:
    """Run the given seeds, and return 0 if no seed had a violation, otherwise 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run", description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", help="FIRST:END (END is excluded), or a list: 3,7,10:20")
    parser.add_argument("--shape", help=f"{', '.join(NAMED)}, or fields: nodes=5,faults=30")
    parser.add_argument("--faults", nargs="*", default=None)
    parser.add_argument("--trace", help="write the trace as text to this file")
    parser.add_argument("--no-shrink", action="store_true", help="do not reduce a failing schedule")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each seed")
    parser.add_argument("--logs", action="store_true", help="print the nodes' logs and the faults")
    options = parser.parse_args(arguments)
    faults, shape = None, None
    try:
        if options.shape is not None:
            shape = Shape.parse(options.shape)
        if options.faults is not None:
            faults = [Fault.parse(text) for text in options.faults]
    except ValueError as problem:
        parser.error(str(problem))
    seeds = [options.seed or 0]
    if options.seeds:
        seeds = [seed for part in options.seeds.split(",") for seed in seeds_of(part)]
    gc.disable()  # an ended cluster is collected, and several end at once
    gc.freeze()  # objects imported now need no visit then
    bad, started, total = 0, time.process_time(), 0.0
    for seed in seeds:
        trace: list[str] | None = [] if options.trace else None
        on_log = print if options.logs else None
        try:
            outcome = run(seed, shape=shape, faults=faults, trace=trace, on_log=on_log)
        except ImpossibleFault as problem:
            parser.error(str(problem))
        total += outcome.virtual_s
        bad += not outcome.is_clean
        print(in_json(outcome) if options.json else report(outcome), flush=True)
        if not (outcome.is_clean or options.no_shrink or options.faults or options.logs):
            print(shrunken(outcome, shape), flush=True)
        if trace is not None:
            with open(options.trace, "w") as file:
                file.write("\n".join(trace))
    bury()
    cpu_s = time.process_time() - started
    print(f"{len(seeds)} seeds, {bad} failed, {total / 3600:.2f} hours in {cpu_s:.1f} CPU s")
    return 1 if bad else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets of names is part of a run
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation.run", *sys.argv[1:]])
    sys.exit(main())
