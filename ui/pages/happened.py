"""Events as rows of a table, with the same event of many partitions in one row, without I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...proof.pages.markup import Child, element, joined
from ...proof.pages.parts import clock, link

Document = Mapping[str, Any]
TOGETHER_MS = 2_000
NAMED_MAX = 4


@dataclass(slots=True)
class _Happened:
    """A group of similar events, which become one row. The newest event comes first."""

    events: list[Document] = field(default_factory=list[Document])

    def takes(self, event: Document) -> bool:
        return self.events[-1]["at_ms"] - event["at_ms"] <= TOGETHER_MS

    def cells(self, *, has_logs: bool) -> list[Child]:
        newest = self.events[0]
        words: Child = newest["sentence"]
        if newest["address"]:
            words = link(newest["address"], newest["sentence"])
        if len(self.events) > 1:
            ordered = sorted(
                self.events, key=lambda e: (e["subject"].startswith("__"), e["subject"])
            )
            named = [link(e["address"], e["subject"]) for e in ordered[:NAMED_MAX]]
            more = len(self.events) - len(named)
            parts = [joined(each, " ") for each in named]
            words = joined(newest["alike"], ": ", parts, f"and {more} more" if more else "")
        cells: list[Child] = [clock(newest["at_ms"]), newest["kind"], words]
        return [*cells, self._lines()] if has_logs else cells

    def _lines(self) -> Child:
        """Return the log lines of the newest events under the newest event's node, or None."""
        lines = [each["line"] for each in self.events if each["line"] is not None]
        if not lines:
            return None
        name = element("summary", f"node {self.events[0]['node']}")
        shown = [element("code", line) for line in lines[:NAMED_MAX]]
        return element("details", name, shown)


def event_rows(
    events: Sequence[Document], limit: int, *, has_logs: bool = False
) -> list[list[Child]]:
    """Return at most `limit` table rows, each with time, kind and sentence.

    `events` are the newest first. Elections and ISR changes with an equal text share one row while
    each is at most 2 seconds older than the event before it. With `has_logs` there is one more
    column for the lines of the logs.
    """
    rows: list[_Happened] = []
    open_rows: dict[tuple[str, str], _Happened] = {}
    for event in events:
        key = event["kind"], event.get("alike") or ""
        row = open_rows.get(key)
        if not key[1] or row is None or not row.takes(event):
            if len(rows) == limit:
                break
            row = open_rows[key] = _Happened()
            rows.append(row)
        row.events.append(event)
    return [row.cells(has_logs=has_logs) for row in rows]
