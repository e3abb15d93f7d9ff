"""Describes rows of a history, with the writer and readers of a value, faults, and markers."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np

from ..history.schema import NONE, Marker, OpOutcome
from .arrays import Array
from .findings import Anomaly, Case, Finding, finding
from .view import Reads, View

FAULTS_MAX, SKIPPED_MAX = 6, 10
Facts = dict[str, Any]
T = TypeVar("T")


class Evidence:
    """Descriptions of rows of one history, with times in seconds since the history's first time."""

    def __init__(self, view: View) -> None:
        self.view, self.history = view, view.history

    @cached_property
    def start_ns(self) -> int:
        """Return the earliest time in the history, which is second 0 in reports."""
        found = [
            int(column[column >= 0].min())
            for table, name in (
                ("sends", "invoked_ns"),
                ("transactions", "begun_ns"),
                ("faults", "started_ns"),
                ("polls", "returned_ns"),
            )
            if (column := self.history.column(table, name)).size and (column >= 0).any()
        ]
        return min(found, default=0)

    def seconds(self, time_ns: int) -> float | None:
        """Return a time in seconds since `start_ns`, or None if it is unknown."""
        return None if time_ns < 0 else round((time_ns - self.start_ns) / 1e9, 6)

    def row(self, table: str, number: int) -> Facts:
        """Return a row of a table as a dict, with times in seconds and outcomes as words.

        Unknown values are left out.
        """
        found: Facts = {}
        for name, value in self.history.row(table, number).items():
            if value is None or value == NONE:
                continue
            if name.endswith("_ns") and isinstance(value, int):
                found[name.removesuffix("_ns") + "_s"] = self.seconds(value)
            elif name == "outcome" and isinstance(value, int):
                found[name] = OpOutcome(value).name.lower()
            else:
                found[name] = value
        return found

    def send(self, number: int) -> Facts:
        """Return the facts of a sent record, with its transaction and the faults at that time."""
        if number >= self.view.sends:
            return {"value": self.view.value(number), "writer": "nobody"}
        found = self.row("sends", number)
        started = int(self.history.column("sends", "invoked_ns")[number])
        ended = int(self.history.column("sends", "acknowledged_ns")[number])
        transaction = int(self.view.transaction[number])
        if 0 <= transaction < self.view.transactions.count:
            ended = max(ended, int(self.view.transactions.ended_ns[transaction]))
        return found | self._transaction(transaction) | self.faults(started, ended)

    def read(self, reads: Reads, number: int) -> Facts:
        """Return the facts of a record that was read, with the reader's transaction and faults."""
        found = self.row(reads.table, int(reads.rows[number]))
        found["reader"] = "the last reading" if reads.table == "scan" else "a consumer"
        time_ns = int(self.read_ns(reads)[number])
        return (
            found
            | self._transaction(int(reads.transaction[number]))
            | self.faults(time_ns, time_ns)
        )

    def _transaction(self, row: int) -> Facts:
        is_known = 0 <= row < self.view.transactions.count
        return {"transaction": self.row("transactions", row)} if is_known else {}

    def reading(self, reads: Reads, number: int) -> Facts:
        """Return all facts about a record that was read.

        They are its value, offset, writer and reader, and the nearest transaction markers in the
        log.
        """
        send, partition = int(reads.writer[number]), int(reads.partition[number])
        offset = int(reads.offset[number])
        return {
            "value": self.view.value(send),
            "partition": self.partition(partition),
            "offset": offset,
            "writer": self.send(send),
            "reader": self.read(reads, number),
            **self.around(partition, offset),
        }

    def step(self, sends: tuple[int, int], places: tuple[int, int], delta: int) -> Facts:
        """Return facts about two consecutive records of one client in a partition.

        `sends` are their rows, `places` their places in the partition. `skipped` has the values
        between these places.
        """
        (partition, low), (_, high) = map(self.place, places)
        between = self.view.order.between(*places, SKIPPED_MAX)
        return {
            "partition": partition,
            "delta": delta,
            "values": [self.view.value(send) for send in sends],
            "offsets": [low, high],
            "skipped": [self.view.value(send) for send in between],
        }

    def read_ns(self, reads: Reads) -> Array:
        """Return, for each record that was read, the time at which the poll returned."""
        column = "scanned_ns" if reads.table == "scan" else "returned_ns"
        times = self.history.column(reads.table, column)
        return times if len(times) == len(reads.rows) else times[reads.rows]

    def first_reader(self, send: int) -> Facts:
        """Return the facts of the first read of a sent record, or {} if it was never read."""
        for reads in self.view.committed:
            found = np.flatnonzero(reads.writer == send)
            if len(found):
                return self.read(reads, int(found[0]))
        return {}

    def faults(self, from_ns: int, to_ns: int) -> Facts:
        """Return the faults that were active between two times."""
        started = self.history.column("faults", "started_ns")
        ended = self.history.column("faults", "ended_ns")
        if not len(started) or from_ns < 0:
            return {}
        to_ns = max(from_ns, to_ns)
        rows = np.flatnonzero((started <= to_ns) & ((ended < 0) | (ended >= from_ns)))
        listed = [self.row("faults", int(row)) for row in rows[:FAULTS_MAX]]
        return {"faults": listed, "faults_active": len(rows)} if len(rows) else {}

    def around(self, partition: int, offset: int) -> Facts:
        """Return the transaction markers next to an offset in the dumped logs, two on each side."""
        batches = self.history.column("batches", "partition")
        rows = np.flatnonzero(batches == partition)
        rows = rows[self.history.column("batches", "marker")[rows] != Marker.NONE]
        if not len(rows):
            return {}
        base = self.history.column("batches", "base_offset")[rows]
        low, high = rows[base < offset], rows[base >= offset]
        near = [int(r) for r in (*low[-2:], *high[:2])]
        wanted = ("replica", "base_offset", "producer_id", "producer_epoch", "coordinator_epoch")
        listed: list[Facts] = []
        for row in near:
            facts = self.row("batches", row)
            kind = Marker(int(self.history.column("batches", "marker")[row])).name.lower()
            listed.append({"marker": kind} | {k: facts[k] for k in wanted if k in facts})
        return {"markers": listed}

    def place(self, place: int) -> tuple[str, int]:
        """Return the partition and offset of a place."""
        at = np.array([place])
        partition = int(self.view.places.group_of(at)[0])
        return self.partition(partition), int(self.view.places.number_of(at)[0])

    def of_readings(
        self,
        anomaly: Anomaly,
        is_bad: Callable[[Reads], Array],
        sentence: str,
        *,
        is_of_all: bool = False,
    ) -> Iterator[Finding]:
        """Yield a finding of the read records for which `is_bad` is true.

        There is one finding for each table of read records. Without `is_of_all` only the records
        read with read_committed are judged.
        """
        for reads in [*self.view.committed, *(self.view.uncommitted if is_of_all else ())]:
            rows = np.flatnonzero(is_bad(reads))
            yield from finding(anomaly, rows, told(sentence, partial(self.reading, reads)))

    def of_rows(
        self, anomaly: Anomaly, table: str, rows: "Array | list[int]", sentence: str
    ) -> Iterable[Finding]:
        """Return a finding of these rows of a table. `sentence` has column names in braces."""
        return finding(anomaly, rows, told(sentence, partial(self.row, table)))

    def transactions(self, earlier: int, later: int) -> Facts:
        """Return the rows of two transactions, and their numbers as `earlier` and `later`."""
        found = [self.row("transactions", row) for row in (earlier, later)]
        one, other = (facts["transaction"] for facts in found)
        return {"transactions": found, "earlier": one, "later": other}

    def partition(self, number: int) -> str:
        return self.history.name(number) or "an unknown partition"


def told(sentence: str, facts_of: Callable[[T], Facts]) -> Callable[[T], Case]:
    """Return a function that creates a case from the facts of one item.

    `sentence` has names of facts in braces. An unknown fact becomes `?`.
    """

    def case(one: T) -> Case:
        facts = facts_of(one)
        return Case(sentence.format_map(defaultdict(lambda: "?", facts)), facts)

    return case
