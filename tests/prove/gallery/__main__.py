"""Run the gallery's applications, and print the results as a table.

Usage is python -m tests.prove.gallery --resume F [--seeds 1:10] [--only NAME].
"""

import argparse
from pathlib import Path

from .entries import ENTRIES
from .runner import run_all, table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.prove.gallery", description=__doc__)
    parser.add_argument(
        "--resume",
        type=Path,
        required=True,
        metavar="F",
        help="file to add results to; runs in it are not repeated",
    )
    parser.add_argument("--seeds", default="1:3", help="seeds FIRST:LAST")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds of faults in a run")
    parser.add_argument(
        "--only",
        action="append",
        choices=sorted(ENTRIES),
        help="run only this application; may be repeated",
    )
    parser.add_argument("--rate", type=float, default=100.0, help="inputs per second")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="keep in this folder the runs that lack the expected verdict or findings",
    )
    parser.add_argument(
        "--bootstrap", help="HOST:PORT of a Kafka to use, whose brokers get no faults"
    )
    chosen = parser.parse_args()
    first, _, last = chosen.seeds.partition(":")
    seeds = range(int(first), int(last or first) + 1)
    entries = [ENTRIES[name] for name in chosen.only or ENTRIES]
    options = {"seconds": chosen.seconds, "rate": chosen.rate, "bootstrap": chosen.bootstrap}
    print(table(run_all(entries, seeds, chosen.resume, keep=chosen.keep, **options)))


if __name__ == "__main__":
    main()
