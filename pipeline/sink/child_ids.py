"""The transactional ids that task attempts write with, one at a time, and when one is used again.

Rules of this file. The first thing that an attempt does to its id is InitProducerId, which aborts
whatever the id has open. So an attempt has its id for itself: one that froze before that request,
and wakes much later, can hurt nobody but itself. (With ids made of partition and attempt number,
such a sleeper would abort the transaction of the attempt that bears the same number in a later
batch. And of two attempts that Spark runs for one partition both may be the first, since a stage
that is tried again counts from nought.) An id is used again only by who has taken it out of the
table of its executor, where an attempt that has ended well puts it back; when the driver has said
that its last transaction was committed, and never for a batch that is not newer than its last one.
So a long query keeps to a few ids. One whose attempt was not wanted, or whose first request got no
answer (it may come again, much later), is left for good.

The table is a file, because Spark ends Python workers that are idle for a minute: ids that a
process kept for itself would be made anew by a query whose triggers are further apart. It lies in
the directory that Spark gives an executor for as long as it lives. Nothing is lost with it: what
the table does not have is never used again.
"""

import logging
import re
import secrets
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from .names import child_prefix

log = logging.getLogger("oncelog.sink")

FILE_NAME = "oncelog-sink-ids.sqlite"
MEMORY = ":memory:"
IDS_MAX = 20_000  # in a table; those put back first are left
LOCK_TIMEOUT_S = 2.0  # a process that was stopped within its transaction holds the others up
TABLE = """CREATE TABLE IF NOT EXISTS ids
    (name TEXT PRIMARY KEY, sink TEXT, generation INTEGER, batch INTEGER)"""
OLDER = "DELETE FROM ids WHERE sink = ? AND generation < ?"
RESTED = "SELECT name FROM ids WHERE sink = ? AND generation = ? AND batch < ?"
SURPLUS = "DELETE FROM ids WHERE rowid <= (SELECT max(rowid) FROM ids) - ?"


class ChildIds:
    """The ids of one executor, as one of its processes sees them.

    file: None: only this process has them. word: hexadecimal, drawn by the process itself.
    """

    def __init__(self, file: Path | None = None, word: str | None = None) -> None:
        self._word = word or secrets.token_hex(8)
        assert re.fullmatch("[0-9a-f]{8,32}", self._word)
        self._made = 0
        try:
            self._table = _open_table(file or MEMORY)
        except sqlite3.Error as problem:
            log.warning("transactional ids are this process' own: %s: %s", file, problem)
            self._table = _open_table(MEMORY)

    def take(
        self, sink_id: str, generation: int, batch_id: int, committed: Iterable[str] = ()
    ) -> str:
        """An id for one attempt. committed: ids that the driver gives back."""
        try:
            with self._table as table:
                table.execute("BEGIN IMMEDIATE")
                table.execute(OLDER, (sink_id, generation))
                free = {name for (name,) in table.execute(RESTED, (sink_id, generation, batch_id))}
                name = next((name for name in committed if name in free), None)
                if name is not None:
                    table.execute("DELETE FROM ids WHERE name = ?", (name,))
                    return name
        except sqlite3.Error as problem:
            log.info("no transactional id is used again: %s", problem)
        name = f"{child_prefix(sink_id)}{generation}.{self._word}.{self._made}"
        self._made += 1
        return name

    def put_back(self, name: str, sink_id: str, generation: int, batch_id: int) -> None:
        """By an attempt that has ended well: all its requests have been answered."""
        try:
            with self._table as table:
                table.execute("BEGIN IMMEDIATE")
                row = (name, sink_id, generation, batch_id)
                table.execute("INSERT INTO ids VALUES (?, ?, ?, ?)", row)
                table.execute(SURPLUS, (IDS_MAX,))
        except sqlite3.Error as problem:
            log.info("%s is not used again: %s", name, problem)

    def close(self) -> None:
        """What was put back stays in the file."""
        self._table.close()


def _open_table(file: Path | str) -> sqlite3.Connection:
    # One task runs at a time in a process, its parts in two threads.
    table = sqlite3.connect(
        file, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    table.execute("PRAGMA synchronous = OFF")  # an executor does not outlive its machine
    table.execute(TABLE)
    return table
