"""The choice of a document's rows, and limits on its size, without I/O."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

Document = dict[str, Any]
Key = TypeVar("Key")
LIMIT, LIMIT_MAX = 500, 1_000
LISTED_MAX = 1_000  # of a list within a row
ITEMS_MAX = 20_000  # of all such lists of a document, but for those of its last row


@dataclass(frozen=True, slots=True)
class RowRange:
    """A request for `limit` rows of a list from row `start` on.

    If `limit` is None, all rows are requested, whatever `start` is.
    """

    start: int = 0
    limit: int | None = None

    @classmethod
    def asked(cls, query: Mapping[str, str]) -> "RowRange":
        """Return the range that `start` and `limit` in a query string request.

        Raises ValueError with a message for an invalid value.
        """
        start, limit = query.get("start") or "0", query.get("limit") or str(LIMIT)
        if not (start.isdecimal() and start.isascii() and len(start) < 10):
            raise ValueError(f"start is a whole number of 0 or more, not {start[:40]!r}")
        if not (limit.isdecimal() and limit.isascii() and 0 < int(limit[:10]) <= LIMIT_MAX):
            raise ValueError(f"limit is 1 to {LIMIT_MAX}, not {limit[:40]!r}")
        return cls(int(start), int(limit))

    def of(self, name: str, keys: Sequence[Key], make: Callable[[Key], Document]) -> Document:
        """Return a document with the rows of this range as `name`.

        `make` returns the row of a key. `left_out` counts the keys after the last row. With a
        limit, the document ends early when the lists in its rows have ITEMS_MAX items.
        """
        if self.limit is None:
            return {name: [make(key) for key in keys], "left_out": 0}
        rows: list[Document] = []
        items = 0
        for key in keys[self.start : self.start + self.limit]:
            rows.append(shortened(make(key)))
            items += sum(len(lines) for lines in _lists(rows[-1]).values())
            if items >= ITEMS_MAX:
                break
        return {name: rows, "left_out": max(0, len(keys) - self.start - len(rows))}


def shortened(row: Document) -> Document:
    """Return a row in which each list has at most LISTED_MAX items.

    `LIST_left_out` counts the omitted items.
    """
    long = {name: lines for name, lines in _lists(row).items() if len(lines) > LISTED_MAX}
    cut = {name: lines[:LISTED_MAX] for name, lines in long.items()}
    counts = {f"{name}_left_out": len(lines) - LISTED_MAX for name, lines in long.items()}
    return row | cut | counts if long else row


def _lists(row: Document) -> dict[str, list[Any]]:
    return {
        name: cast("list[Any]", value) for name, value in row.items() if isinstance(value, list)
    }
