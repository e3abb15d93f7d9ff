"""The transactional ids of a sink: one for its drivers, one for each task attempt that writes.

Pure. All begin with `oncelog.spark.<sink_id>.`:

    oncelog.spark.SINK.ctl               the control id; whoever initializes it fences older drivers
    oncelog.spark.SINK.g7.1f0c..9a.3     a child: of generation 7, its worker's fourth

When one is used again: child_ids.py.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

PREFIX = "oncelog.spark."
SHOWN_MAX = 20  # ids in a sentence
SINK_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_CHILD = re.compile(r"g(\d{1,15})\.[0-9a-f]{8,32}\.\d{1,9}")


def check_sink_id(sink_id: str) -> str:
    """The same. Raises ValueError when it cannot be part of a transactional id."""
    if not SINK_ID.fullmatch(sink_id):
        raise ValueError(
            f"sink_id={sink_id!r} will not do: it is 1 to 100 letters, digits, dots, dashes and "
            "underscores, and it stays the same for the life of the query's output"
        )
    return sink_id


def control_id(sink_id: str) -> str:
    """The transactional id of the sink's drivers."""
    return f"{PREFIX}{sink_id}.ctl"


def timeout_id(sink_id: str) -> str:
    """The id by which a coordinator is asked how long transactions may take; it never has one."""
    return f"{PREFIX}{sink_id}.timeout"


def child_prefix(sink_id: str) -> str:
    """What the sink's child ids begin with; those of other sinks may, too (see generation_of)."""
    return f"{PREFIX}{sink_id}.g"


def shown(names: Sequence[str]) -> str:
    """Some ids, for a sentence or a log, and how many there are beyond."""
    listed = ", ".join(names[:SHOWN_MAX])
    return listed if len(names) <= SHOWN_MAX else f"{listed} and {len(names) - SHOWN_MAX} more"


def generation_of(sink_id: str, transactional_id: str) -> int | None:
    """The generation of a child of this sink; None for every other id."""
    start = f"{PREFIX}{sink_id}."
    found = _CHILD.fullmatch(transactional_id.removeprefix(start))
    return int(found[1]) if found is not None and transactional_id.startswith(start) else None


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Which open children may be aborted: those of own and older generations that no decision
    keeps. A driver that was superseded, and does not know, leaves its successor's alone."""

    sink_id: str
    generation: int
    kept: frozenset[str]

    def among(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name not in self.kept and self.is_ours(name))

    def is_ours(self, name: str) -> bool:
        generation = generation_of(self.sink_id, name)
        return generation is not None and generation <= self.generation
