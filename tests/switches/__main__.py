"""Run each switch (a planted bug) with the bug, which must be detected, and then without the bug.

A run with the bug must report one of the switch's anomalies, and a run without the bug none. The
exit code is 1 otherwise. Afterwards `python -m tests.proof.judge.page` writes docs/judge.md.
"""

import argparse
import sys
from dataclasses import replace

from ..rounds import chosen, round_number
from . import results
from .catalogue import SWITCHES
from .chance import FIRST, by_chance
from .rounds import DIRECTED, IN_SIMULATION


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if each bug was detected, and no anomaly was found without a bug.

    Otherwise return 1.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.switches", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="the switches to run, by default all"
    )
    parser.add_argument(
        "--round",
        action="store_true",
        help="run only the switches whose turn it is (tests/switches/rounds.py)",
    )
    parser.add_argument(
        "--processes", action="store_true", help="run on real processes, not in the simulation"
    )
    parser.add_argument(
        "--seeds", type=int, default=1, help="run each scenario with this many seeds"
    )
    parser.add_argument("--chance", type=float, metavar="S", help="only search each bug by random "
                        "simulation, for at most S seconds of CPU time")  # fmt: skip
    parser.add_argument(
        "--first", type=int, default=FIRST, help="the first seed of the random simulation"
    )
    parser.add_argument("--write", action="store_true", help="store the results for docs/judge.md")
    options = parser.parse_args(arguments)
    names = options.names or list(SWITCHES)
    if options.processes:
        names = [name for name in names if SWITCHES[name].plays_on_processes]
    if options.round:
        names = [name for name in names if name in DIRECTED]
        names = chosen(round_number(), IN_SIMULATION, names)
        print(f"round {round_number()}: {', '.join(names)}")
    if options.chance:
        return leave_to_chance(names, options.chance, options.first, options.write)
    done: list[results.Result] = []
    print(" | ".join(results.HEADS))
    for name in names:
        result, on, off = results.attempt(
            SWITCHES[name], on_processes=options.processes, seeds=options.seeds
        )
        done.append(result)
        print(" | ".join(results.row(result)), flush=True)
        for found in (on, off) if not result.is_good else ():
            for anomaly, sentence in found.items():
                print(f"    {anomaly}: {sentence}")
    bad = [r.switch for r in done if not r.is_good]
    print(
        f"{len(done) - len(bad)} of {len(done)} caught" + (f"; not: {', '.join(bad)}" * bool(bad))
    )
    if options.write:
        results.write(done)
    return 1 if bad else 0


def leave_to_chance(names: list[str], cpu_s: float, first: int, is_kept: bool) -> int:
    """Print how many seeds of the random simulation it takes to find each bug.

    With `is_kept` the counts are also stored for docs/judge.md.
    """
    known = {result.switch: result for result in results.read()}
    for name in names:
        chance = by_chance(SWITCHES[name], cpu_s=cpu_s, first=first)
        print(f"{name}: {chance} {', '.join(chance.found)}", flush=True)
        if is_kept and name in known:
            known[name] = replace(known[name], by_chance=str(chance))
            results.write(known.values())
    return 0


if __name__ == "__main__":
    sys.exit(main())
