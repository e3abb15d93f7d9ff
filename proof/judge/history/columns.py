"""Reads a history as columns, for the checks.

Columns are numpy arrays, read at their first use and kept until `release`. A string is stored as a
number, which is its position in `names`, the same for all tables and recorders. Rows of one
recorder keep their order, and recorders follow one another by number. Recordings are readable
whether or not they were sealed as Parquet, also after the death of their writer. Incomplete rows
are left out.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .format import Array, recordings
from .recorder import Recorder
from .schema import NONE, TABLES, Column


class Source(Protocol):
    names: list[str]

    def column(self, table: str, column: Column) -> Array:
        """Return a column of a table, in which each string is the number of a recorder's name.

        The column of a missing table is empty.
        """
        ...


class History:
    """The recorded tables of a run. `settings` are the run's settings (RUN/run.json)."""

    def __init__(self, sources: Iterable[Source], settings: dict[str, Any] | None = None) -> None:
        self.settings = settings or {}
        self.names: list[str] = []
        self._name_ids: dict[str, int] = {}
        self._columns: dict[tuple[str, str], Array] = {}
        # a recorder's numbers of names -> ours; the last entry is for "none"
        self._sources = [
            (s, np.array([self.name_id(n) for n in s.names] + [NONE], np.int32)) for s in sources
        ]

    @classmethod
    def of(cls, *recorders: Recorder, settings: dict[str, Any] | None = None) -> "History":
        return cls([MemorySource(recorder) for recorder in recorders], settings)

    @classmethod
    def open(cls, run: Path) -> "History":
        from .files import FolderSource

        about = run / "run.json"
        settings = json.loads(about.read_text(encoding="utf-8")) if about.exists() else {}
        return cls([FolderSource(folder) for folder in recordings(run)], settings)

    def column(self, table: str, name: str) -> Array:
        """Return a column of a table. The caller must not change it."""
        key = (table, name)
        if key not in self._columns:
            column = next(c for c in TABLES[table].columns if c.name == name)
            parts = [self._part(source, ids, table, column) for source, ids in self._sources]
            empty = np.empty(0, np.dtype(column.dtype))
            self._columns[key] = parts[0] if len(parts) == 1 else np.concatenate([empty, *parts])
        return self._columns[key]

    def count(self, table: str) -> int:
        return len(self.column(table, TABLES[table].columns[-1].name))

    def release(self, table: str, *names: str) -> None:
        """Free the memory of these columns of a table, or of all its columns without `names`.

        A later request reads the column again.
        """
        for name in names or [c.name for c in TABLES[table].columns]:
            self._columns.pop((table, name), None)

    def name(self, number: int) -> str | None:
        """Return the string that a number stands for, or None for -1."""
        return None if number < 0 else self.names[number]

    def name_id(self, text: str) -> int:
        """Return the number that stands for a string. A new string gets a new number."""
        if text not in self._name_ids:
            self._name_ids[text] = len(self.names)
            self.names.append(text)
        return self._name_ids[text]

    def row(self, table: str, number: int) -> dict[str, int | str | None]:
        """Return one row as a dict. Names are strings."""
        found: dict[str, int | str | None] = {}
        for column in TABLES[table].columns:
            value = int(self.column(table, column.name)[number])
            found[column.name] = self.name(value) if column.is_name else value
        return found

    @staticmethod
    def _part(source: Source, ids: Array, table: str, column: Column) -> Array:
        values = source.column(table, column)
        if not column.is_name:
            return values
        # a number beyond the written names (a torn file) counts as none
        return ids[np.clip(np.where(values < 0, len(ids) - 1, values), 0, len(ids) - 1)]


class MemorySource:
    """The current rows of a recorder in memory, as a source of columns."""

    def __init__(self, recorder: Recorder) -> None:
        self.names = list(recorder.names)
        self._recorder = recorder

    def column(self, table: str, column: Column) -> Array:
        rows = np.frombuffer(self._recorder.content(table), np.dtype(TABLES[table].dtype))
        return np.ascontiguousarray(rows[column.name])
