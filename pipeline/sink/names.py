"""The transactional ids of a sink: one for its drivers, one for each task attempt that writes.

Pure. All begin with `oncelog.spark.<sink_id>.`:

    oncelog.spark.SINK.ctl               the control id; whoever initializes it fences older drivers
    oncelog.spark.SINK.g7.1f0c..9a.3     a child: of generation 7, the worker's fourth

Rules of this file. The first thing that a task does to its child id is InitProducerId, which aborts
whatever the id has open. So an id belongs to one worker process for ever (the word in its middle is
drawn by the process): an attempt that froze before that request, and wakes much later, can hurt
nobody but itself. (With ids made of partition and attempt number, such a sleeper would abort the
transaction of the attempt that bears the same number in a later batch.) Within its process an id is
used again only when the driver has said that its last transaction was committed, and never for a
batch that is not newer than its last one. So a long query keeps to a few ids. One whose attempt was
not wanted, or whose first request got no answer (it may come again, much later), is left for good.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PREFIX = "oncelog.spark."
SINKS_MAX = 100  # that one worker process remembers
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


class WorkerIds:
    """The child ids of one worker process. `word`: hexadecimal, drawn by the process itself."""

    def __init__(self, word: str) -> None:
        assert re.fullmatch("[0-9a-f]{8,32}", word)
        self._word = word
        # By sink: the newest generation, and the last batch of each of its ids.
        self._sinks: dict[str, tuple[int, dict[str, int]]] = {}
        self._made = 0

    def take(
        self, sink_id: str, generation: int, batch_id: int, committed: Iterable[str] = ()
    ) -> str:
        """An id for one attempt. committed: ids that the driver gives back."""
        used = self._used_by(sink_id, generation)
        for name in committed:
            if used.get(name, batch_id) < batch_id:
                used[name] = batch_id
                return name
        name = f"{child_prefix(sink_id)}{generation}.{self._word}.{self._made}"
        self._made += 1
        used[name] = batch_id
        return name

    def leave(self, name: str) -> None:
        """Never use this id again."""
        for _, used in self._sinks.values():
            used.pop(name, None)

    def _used_by(self, sink_id: str, generation: int) -> dict[str, int]:
        newest, used = self._sinks.get(sink_id, (generation, {}))
        if generation < newest:
            return {}  # a task of a driver that is gone: its id is for once
        if generation > newest:
            used = {}
        if len(self._sinks) >= SINKS_MAX and sink_id not in self._sinks:
            self._sinks.clear()  # they make new ids
        self._sinks[sink_id] = (generation, used)
        return used
