"""Which switches are tried in a build: not all each time, but all in turn.

Those that random simulation alone finds take their time: they are tried with all (-m chaos).
"""

import datetime
import os
from collections.abc import Sequence

from .catalogue import SWITCHES

IN_SIMULATION, ON_PROCESSES = 8, 1  # a round
DIRECTED = tuple(name for name, switch in SWITCHES.items() if not switch.is_left_to_chance)
ROUND = "ONCELOG_ROUND"  # the number of a build, where it has one; else the day counts


def round_number() -> int:
    given = os.environ.get(ROUND)
    return int(given) if given else datetime.datetime.now(datetime.UTC).date().toordinal()


def chosen(number: int, count: int, names: Sequence[str] = DIRECTED) -> list[str]:
    """`count` of these; a round goes on where the one before it ended."""
    return [names[(number * count + i) % len(names)] for i in range(count)]
