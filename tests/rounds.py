"""The choice of the tests that run in one build. Successive builds run all tests.

The marks `chaos` and `soak` run whole sets. The default run takes one third of the tests marked
`in_turn`, and each day another third. With `-m in_turn`, a path or `-k`, all selected tests run.
"""

import datetime
import os
from collections.abc import Sequence
from typing import TypeVar

Case = TypeVar("Case")
TURNS = 3
ROUND = "ONCELOG_ROUND"  # the number of a build, if there is one; otherwise the day counts


def round_number() -> int:
    """Return the number in the variable ONCELOG_ROUND, or without it the number of this day."""
    given = os.environ.get(ROUND)
    return int(given) if given else datetime.datetime.now(datetime.UTC).date().toordinal()


def chosen(number: int, count: int, cases: Sequence[Case]) -> list[Case]:
    """Return `count` of the cases for build `number`, after those of build `number - 1`."""
    return [cases[(number * count + i) % len(cases)] for i in range(count)]


def skipped(number: int, names: Sequence[str]) -> set[str]:
    """Return the two thirds of these tests that do not run in build `number`."""
    return {name for at, name in enumerate(sorted(names)) if (at + number) % TURNS}
