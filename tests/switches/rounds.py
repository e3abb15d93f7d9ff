"""Which switches are tried in a build: not all each time, but all in turn."""

import datetime
import os

from .catalogue import SWITCHES

ROUND = "ONCELOG_ROUND"  # the number of a build, where it has one; else the day counts


def round_number() -> int:
    """Of this build."""
    given = os.environ.get(ROUND)
    return int(given) if given else datetime.datetime.now(datetime.UTC).date().toordinal()


def chosen(number: int, count: int) -> list[str]:
    """`count` switches; a round goes on where the one before it ended."""
    names = list(SWITCHES)
    return [names[(number * count + i) % len(names)] for i in range(count)]
