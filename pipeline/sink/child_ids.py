"""The transactional ids of task attempts, each for one attempt at a time, and their reuse.

The first request of an attempt with its id is InitProducerId, which aborts the id's open
transaction. Therefore each attempt needs an id of its own. An attempt that froze before that
request, and resumes much later, can then abort only its own transaction. (With ids made of
partition and attempt number, such an attempt would abort the transaction of the attempt with the
same number in a later batch. Two attempts for one partition may both have the first number, since a
retried stage counts from zero.)

An attempt reuses an id only by taking it out of the table of its executor. A successful attempt
returns its id to the table. The id may be taken again when the driver has reported that its last
transaction was committed, and only for a newer batch. Therefore a long query needs few ids. An id
is abandoned when Spark did not keep its attempt. An id is also abandoned when its first request got
no answer, because the request may arrive again much later.

The table is a file, because Spark ends Python workers that are idle for a minute. With ids in
memory, a query with rarer triggers would need new ids all the time. The file is in the directory
that Spark gives an executor for its lifetime, and belongs to the daemon that forks its workers. Ids
that the table has lost are never reused, so safety does not depend on the file. If the file cannot
be created, a process keeps its ids in memory.
"""

import logging
import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from .names import child_prefix

log = logging.getLogger("oncelog.sink")

IDS_MAX = 100_000  # size of a table; the oldest ids are dropped
PRUNED_EACH = 1_000  # that are put back
LOCK_TIMEOUT_S = 2.0  # a process that was stopped within its transaction holds the others up
BUSY = (5, 6)  # SQLITE_BUSY, SQLITE_LOCKED

CREATE = """CREATE TABLE IF NOT EXISTS ids
    (name TEXT PRIMARY KEY, sink TEXT, generation INTEGER, batch INTEGER)"""
IS_WRITABLE = "PRAGMA user_version = 1"
OLDER = "DELETE FROM ids WHERE sink = ? AND generation < ?"
TAKE_OUT = "DELETE FROM ids WHERE name = ? AND sink = ? AND generation = ? AND batch < ?"
PUT_BACK = "INSERT INTO ids VALUES (?, ?, ?, ?)"
PRUNE = """DELETE FROM ids WHERE rowid IN
    (SELECT rowid FROM ids ORDER BY rowid DESC LIMIT -1 OFFSET ?)"""


class IdTable(Protocol):
    """A table of transactional ids for reuse, with the sink, generation and last batch of each."""

    def take_out(
        self, names: Iterable[str], sink_id: str, generation: int, batch_id: int
    ) -> str | None: ...

    def put_back(self, name: str, sink_id: str, generation: int, batch_id: int) -> None: ...

    def close(self) -> None: ...


class OwnTable:
    """A table of ids in the memory of one process."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[str, int, int]] = {}

    def take_out(
        self, names: Iterable[str], sink_id: str, generation: int, batch_id: int
    ) -> str | None:
        for name, (sink, of_generation, _) in list(self._rows.items()):
            if sink == sink_id and of_generation < generation:
                del self._rows[name]
        for name in names:
            sink, of_generation, batch = self._rows.get(name, ("", 0, 0))
            if (sink, of_generation) == (sink_id, generation) and batch < batch_id:
                del self._rows[name]
                return name
        return None

    def put_back(self, name: str, sink_id: str, generation: int, batch_id: int) -> None:
        if len(self._rows) >= IDS_MAX:
            del self._rows[next(iter(self._rows))]
        self._rows[name] = (sink_id, generation, batch_id)

    def close(self) -> None:
        self._rows.clear()


class SharedTable:
    """A table of ids in a file, shared by all processes that open the file.

    Raises sqlite3.Error, or ImportError without sqlite.
    """

    def __init__(self, file: Path) -> None:
        import sqlite3

        # A process runs one task at a time, with its parts in two threads.
        self._connection = sqlite3.connect(
            file, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        self._connection.execute("PRAGMA synchronous = OFF")  # it does not outlive its machine
        self._connection.execute(CREATE)
        self._connection.execute(IS_WRITABLE)

    def take_out(
        self, names: Iterable[str], sink_id: str, generation: int, batch_id: int
    ) -> str | None:
        with self._connection as table:
            table.execute("BEGIN IMMEDIATE")
            table.execute(OLDER, (sink_id, generation))
            for name in names:
                if table.execute(TAKE_OUT, (name, sink_id, generation, batch_id)).rowcount:
                    return name
        return None

    def put_back(self, name: str, sink_id: str, generation: int, batch_id: int) -> None:
        with self._connection as table:
            table.execute("BEGIN IMMEDIATE")
            rowid = table.execute(PUT_BACK, (name, sink_id, generation, batch_id)).lastrowid or 0
            if rowid % PRUNED_EACH == 0:
                table.execute(PRUNE, (IDS_MAX,))

    def close(self) -> None:
        self._connection.close()


class ChildIds:
    """The transactional ids of a process for its task attempts.

    file: a table that the processes of an executor share, or None for a table of this process only.
    word: hexadecimal digits in this process's new ids, by default random.
    """

    def __init__(self, file: Path | None = None, word: str | None = None) -> None:
        self._word = word or secrets.token_hex(8)
        assert re.fullmatch("[0-9a-f]{8,32}", self._word)
        self._made = 0
        self._table: IdTable = OwnTable()
        if file is not None:
            try:
                self._table = SharedTable(file)
            except Exception as problem:
                log.warning(
                    "this process does not share transactional ids, because the file %s "
                    "cannot be opened: %s",
                    file,
                    problem,
                )

    def take(
        self, sink_id: str, generation: int, batch_id: int, committed: Iterable[str] = ()
    ) -> str:
        """Return a transactional id for one attempt, which no other attempt uses.

        The driver has reported that the last transactions of the ids in `committed` were committed,
        so these ids may be reused.
        """
        try:
            name = self._table.take_out(committed, sink_id, generation, batch_id)
        except Exception as problem:
            self._failed(problem)
            name = None
        if name is None:
            name = f"{child_prefix(sink_id)}{generation}.{self._word}.{self._made}"
            self._made += 1
        return name

    def put_back(self, name: str, sink_id: str, generation: int, batch_id: int) -> None:
        """Put the id of a successful attempt back into the table, for a later reuse."""
        try:
            self._table.put_back(name, sink_id, generation, batch_id)
        except Exception as problem:
            self._failed(problem)
            if isinstance(self._table, OwnTable):  # it is not in the file
                self._table.put_back(name, sink_id, generation, batch_id)

    def close(self) -> None:
        """Close the table. Returned ids stay in the file."""
        self._table.close()

    def _failed(self, problem: Exception) -> None:
        if getattr(problem, "sqlite_errorcode", 0) & 0xFF in BUSY:
            log.info(
                "the table of reusable transactional ids is locked and is skipped: %s", problem
            )
            return
        log.warning(
            "this process no longer shares transactional ids with other processes: %s", problem
        )
        self._table.close()
        self._table = OwnTable()


def ids_file() -> Path | None:
    """Return the path of the executor's table of ids, or None without an executor's directory."""
    from pyspark import SparkFiles

    try:
        folder = Path(SparkFiles.getRootDirectory()).absolute()
    except OSError:  # a task has removed the directory that it stood in
        return None
    return folder / f"oncelog-sink-ids-{os.getppid()}.sqlite"
