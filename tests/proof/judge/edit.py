"""A recorded history that can be falsified, with its rows as arrays."""

from typing import Any

import numpy as np

from oncelog.proof.judge.history.columns import History
from oncelog.proof.judge.history.recorder import Recorder
from oncelog.proof.judge.history.schema import TABLES, Column, OpOutcome


class Edit:
    """The tables of a history as arrays by name, which mutations change in place."""

    def __init__(self, recorder: Recorder, rng: Any) -> None:
        self.names, self.rng = list(recorder.names), rng
        self.tables = {
            name: np.frombuffer(recorder.content(name), np.dtype(table.dtype)).copy()
            for name, table in TABLES.items()
        }

    def __getitem__(self, table: str) -> Any:
        return self.tables[table]

    def column(self, table: str, column: Column) -> Any:
        return np.ascontiguousarray(self.tables[table][column.name])

    def history(self) -> History:
        return History([self], {"keeps_all": True})

    def name(self, text: str) -> int:
        if text not in self.names:
            self.names.append(text)
        return self.names.index(text)

    def pick(self, rows: Any) -> int:
        """Return a random one of these rows. Raise NoPlace if there is none."""
        rows = list(rows)
        if not rows:
            raise NoPlace
        return int(self.rng.choice(rows))

    def remove(self, table: str, rows: Any) -> None:
        self.tables[table] = np.delete(self.tables[table], rows)

    def insert(self, table: str, at: int, row: Any) -> None:
        self.tables[table] = np.insert(self.tables[table], at, row)

    def copy(self, table: str, row: int, **changes: Any) -> Any:
        made = self.tables[table][row].copy()
        for name, value in changes.items():
            made[name] = value
        return made

    def hide(self, value: int) -> None:
        """Remove all polls and final reads of one value."""
        for table in ("polls", "scan"):
            self.remove(table, np.flatnonzero(self[table]["value"] == value))

    def transactions(self, outcome: OpOutcome) -> Any:
        """Return the numbers of the transactions that have this outcome."""
        rows = self["transactions"]["outcome"] == outcome
        return self["transactions"]["transaction"][rows]

    def shown_sends(self) -> Any:
        """Return the rows of acknowledged sends with a value in the final reading."""
        sends = self["sends"]
        is_shown = np.isin(sends["value"], self["scan"]["value"])
        return np.flatnonzero(
            is_shown & (sends["outcome"] == OpOutcome.OK) & (sends["offset"] >= 0)
        )

    def committed_sends(self) -> Any:
        """Return the rows of `shown_sends` without a transaction or with a committed one."""
        sends, rows = self["sends"], self.shown_sends()
        owner = sends["transaction"][rows]
        return rows[(owner < 0) | np.isin(owner, self.transactions(OpOutcome.OK))]


class NoPlace(Exception):
    """Raised when a history or log has no place for an anomaly."""
