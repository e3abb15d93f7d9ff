"""Which cases of a large set run in a build: a part each time, and all in turn.

The marks `chaos` and `soak` run whole sets.
"""

import datetime
import os
from collections.abc import Sequence
from typing import TypeVar

Case = TypeVar("Case")
ROUND = "ONCELOG_ROUND"  # the number of a build, where it has one; else the day counts


def round_number() -> int:
    """Return the number of this build."""
    given = os.environ.get(ROUND)
    return int(given) if given else datetime.datetime.now(datetime.UTC).date().toordinal()


def chosen(number: int, count: int, cases: Sequence[Case]) -> list[Case]:
    """Return `count` of the cases; each round goes on where the one before it ended."""
    return [cases[(number * count + i) % len(cases)] for i in range(count)]
