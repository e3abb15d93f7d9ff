"""Try bug switches: `python -m tests.switches [NAME...] [--round] [--processes] [--write]`.

Each is played with the bug, which must be found under its right name, and without, where nothing
may be found. No name: all. --round: those whose turn it is. --processes: on real processes, not in
the simulation. --write: keep the table for docs/judge.md, which
`python -m tests.deploy.judge.page` then makes anew. Exit code 1 when a switch was not caught.
"""

import sys

from . import results
from .catalogue import SWITCHES
from .rounds import IN_SIMULATION, chosen, round_number


def main(arguments: list[str]) -> int:
    names = [name for name in arguments if not name.startswith("--")] or list(SWITCHES)
    if "--round" in arguments:
        names = chosen(round_number(), IN_SIMULATION)
        print(f"round {round_number()}: {', '.join(names)}")
    done: list[results.Result] = []
    print(" | ".join(results.HEADS))
    for name in names:
        switch = SWITCHES[name]
        result, on, off = results.attempt(switch, on_processes="--processes" in arguments)
        done.append(result)
        print(" | ".join(results.row(result)), flush=True)
        for found in (on.found, off.found) if not result.is_good else ():
            for anomaly, sentence in found.items():
                print(f"    {anomaly}: {sentence}")
    bad = [r.switch for r in done if not r.is_good]
    print(
        f"{len(done) - len(bad)} of {len(done)} caught" + (f"; not: {', '.join(bad)}" * bool(bad))
    )
    if "--write" in arguments:
        results.write(done)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
