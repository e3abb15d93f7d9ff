"""The transactional ids of a sink, one for its drivers, and one for each task attempt that writes.

The file does no I/O. All ids begin with `oncelog.spark.<sink_id>.`:

    oncelog.spark.SINK.ctl               the control id; initializing it fences older drivers
    oncelog.spark.SINK.g7.1f0c..9a.3     a child of generation 7, the fourth of its worker

child_ids.py has the rules for reuse of a child's id.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

PREFIX = "oncelog.spark."
SHOWN_MAX = 20  # ids in a sentence
SINK_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_CHILD = re.compile(r"g(\d{1,15})\.[0-9a-f]{8,32}\.\d{1,9}")


def check_sink_id(sink_id: str) -> str:
    """Return the id, or raise ValueError if it cannot be part of a transactional id."""
    if not SINK_ID.fullmatch(sink_id):
        raise ValueError(
            f"sink_id={sink_id!r} will not do: it is 1 to 100 letters, digits, dots, dashes and "
            "underscores, and it stays the same for the life of the query's output"
        )
    return sink_id


def control_id(sink_id: str) -> str:
    """Return the transactional id of the sink's drivers."""
    return f"{PREFIX}{sink_id}.ctl"


def timeout_id(sink_id: str) -> str:
    """Return the transactional id by which the sink finds the longest accepted timeout.

    No transaction has this id.
    """
    return f"{PREFIX}{sink_id}.timeout"


def child_prefix(sink_id: str) -> str:
    """Return the prefix of the sink's child ids.

    Ids of other sinks may have the same prefix, and `generation_of` returns None for them.
    """
    return f"{PREFIX}{sink_id}.g"


def shown(names: Sequence[str]) -> str:
    """Join the first few ids for a message, with the number of omitted ids."""
    listed = ", ".join(names[:SHOWN_MAX])
    return listed if len(names) <= SHOWN_MAX else f"{listed} and {len(names) - SHOWN_MAX} more"


def generation_of(sink_id: str, transactional_id: str) -> int | None:
    """Return the generation of a child of this sink, or None for every other id."""
    start = f"{PREFIX}{sink_id}."
    found = _CHILD.fullmatch(transactional_id.removeprefix(start))
    return int(found[1]) if found is not None and transactional_id.startswith(start) else None


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The rule by which a driver aborts open transactions of task attempts.

    They are of the driver's own or an older generation, and no decision keeps them. Therefore a
    superseded driver that does not know of its successor does not abort the successor's
    transactions.
    """

    sink_id: str
    generation: int
    kept: frozenset[str]

    def among(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name not in self.kept and self.is_ours(name))

    def is_ours(self, name: str) -> bool:
        generation = generation_of(self.sink_id, name)
        return generation is not None and generation <= self.generation
