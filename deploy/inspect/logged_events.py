"""The events in the node.log of each node of a cluster, also as they are written."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from ...runtime.event_log import LOGGER

FIRST_BYTES = 1024 * 1024  # of a log, at the first look
READ_BYTES = 1024 * 1024  # at a look
_TEXT = re.compile(
    rf"(\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{{3}}) [A-Z]+ {re.escape(LOGGER)}: ([a-z]+) (?={{)"
)
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedEvent:
    """An event of a node. `line` is the line in its log, and `terms` are the values by name."""

    at_ms: int
    kind: str
    terms: Mapping[str, Any]
    sentence: str
    node: int
    line: str

    def term(self, name: str) -> str:
        """Return a value of the event that is a string, or "" if it is missing."""
        value = self.terms.get(name)
        return value if isinstance(value, str) else ""


def event_in(line: str, node: int) -> LoggedEvent | None:
    """Return the event of a line of node.log, as text or as JSON, or None for other lines."""
    try:
        if line.startswith("{"):
            found = json.loads(line)
            if found.get("logger") != LOGGER:
                return None
            at_ms, kind = int(found["at_ms"]), str(found["event"])
            terms, sentence = found["terms"], str(found["message"])
        else:
            match = _TEXT.match(line)
            if match is None:
                return None
            at_ms = int(datetime.fromisoformat(match[1]).timestamp() * 1000)
            kind = match[2]
            terms, end = _DECODER.raw_decode(line, match.end())
            sentence = line[end:].strip()
    except (ValueError, KeyError, TypeError):
        return None
    if not isinstance(terms, dict):
        return None
    told = cast("dict[str, Any]", terms)
    return LoggedEvent(at_ms=at_ms, kind=kind, terms=told, sentence=sentence, node=node, line=line)


@dataclass(slots=True)
class _Tail:
    """A log file that is read as it grows. `rest` is the beginning of an incomplete line."""

    node: int
    path: Path
    position: int = -1
    rest: bytes = b""

    def read(self) -> Iterable[LoggedEvent]:
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                if self.position < 0:
                    self.position = max(0, size - FIRST_BYTES)
                elif self.position > size:  # another file
                    self.position, self.rest = 0, b""
                file.seek(self.position)
                data = file.read(READ_BYTES)
        except OSError:
            return ()
        self.position += len(data)
        *lines, rest = (self.rest + data).split(b"\n")
        self.rest = rest if len(rest) <= READ_BYTES else b""
        events = (event_in(line.decode(errors="replace"), self.node) for line in lines)
        return tuple(event for event in events if event is not None)


@dataclass(slots=True)
class EventLogs:
    """A reader of the node.log of every node of a cluster on this machine."""

    logs: Mapping[int, Path]
    _tails: list[_Tail] = field(default_factory=list[_Tail])

    def __post_init__(self) -> None:
        self._tails = [_Tail(node, path) for node, path in sorted(self.logs.items())]

    def new(self) -> list[LoggedEvent]:
        """Return the events that were written since the previous call, oldest first.

        The first call returns the events in the newest part of each log. A call reads at most
        READ_BYTES of each log, and the next call continues there. The call reads files, so it
        blocks.
        """
        found = [event for tail in self._tails for event in tail.read()]
        return sorted(found, key=lambda event: event.at_ms)
