"""The cases of a large set that run in a build, a part each time and all in turn.

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
    """Return the number of this build."""
    given = os.environ.get(ROUND)
    return int(given) if given else datetime.datetime.now(datetime.UTC).date().toordinal()


def chosen(number: int, count: int, cases: Sequence[Case]) -> list[Case]:
    """Return `count` of the cases. Each round continues where the one before ended."""
    return [cases[(number * count + i) % len(cases)] for i in range(count)]


def skipped(number: int, names: Sequence[str]) -> set[str]:
    """Return which of the tests that are marked `in_turn` have their turn in another round."""
    return {name for at, name in enumerate(sorted(names)) if (at + number) % TURNS}
