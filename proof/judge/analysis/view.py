"""The common data of all checks of client histories, with the writers of read records.

A send is identified by its row. A value that was read and never sent gets a row after the last
row, so that every read record has a writer. The outcome of a send within a transaction is the
transaction's.

A send is *proven* when it succeeded. A send with an unknown outcome is also proven when a
successful reader has read one of the values of its transaction, because Kafka shows only committed
records.

`places` are the known (partition, offset) pairs. `order` has the value at each place, from the
proven sends and from everything that was read with read_committed. Records that were read in failed
transactions count, too, because a consumer gets only committed data, whatever the outcome of its
own transaction. The *index* of a place is its number among the places of its partition that have a
value. An index is an offset without gaps.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..history.columns import History
from ..history.schema import NONE, Isolation, OpOutcome
from .arrays import Array, Places, RowsByNumber
from .order import Order


@dataclass(slots=True)
class Reads:
    """The records of one history table that were read with one isolation level.

    `rows` are their row numbers in the table.
    """

    table: str
    rows: Array
    partition: Array
    offset: Array
    writer: Array  # rows of sends
    transaction: Array  # rows of transactions, -1 for none
    is_ok: Array  # whether the reader's own operation succeeded
    place: Array


class TransactionRows:
    """The columns of the history's table `transactions`.

    An extra last row with unknown values stands for transactions that only other tables name.
    """

    def __init__(self, history: History) -> None:
        numbers = history.column("transactions", "transaction")
        self.count = len(numbers)
        self._rows = RowsByNumber(numbers)

        def padded(name: str, unknown: int) -> Array:
            return np.append(history.column("transactions", name), unknown)

        self.outcome = padded("outcome", OpOutcome.INFO)
        self.commit_invoked_ns = padded("commit_invoked_ns", 0)
        self.begun_ns, self.ended_ns = padded("begun_ns", 0), padded("ended_ns", NONE)
        self.process = padded("process", NONE)

    def rows_of(self, numbers: Array) -> Array:
        """Return the row of each transaction number.

        The number -1 has row -1, and a number without a row has the extra last row.
        """
        rows = self._rows.of(numbers)
        return np.where((rows < 0) & (numbers >= 0), self.count, rows).astype(np.int32)


class View:
    """The data of one history that the checks share. All of it is computed at its first use."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.transactions = TransactionRows(history)
        self.sends = history.count("sends")
        by_value = RowsByNumber(history.column("sends", "value"))
        history.release("sends", "value")
        raw: list[tuple[str, Array, Array, Array]] = []
        for table in ("polls", "scan"):
            isolation = history.column(table, "isolation")
            value = history.column(table, "value")
            raw.append((table, isolation, by_value.of(value), value))
        del by_value
        strange = [value[writer < 0] for _, _, writer, value in raw]
        self.unknown_values = np.unique(np.concatenate(strange))
        for _, _, writer, value in raw:
            is_strange = writer < 0
            if is_strange.any():
                writer[is_strange] = self.sends + np.searchsorted(
                    self.unknown_values, value[is_strange]
                )
        history.release("polls", "value")
        history.release("scan", "value")
        self._make_sends()
        offset = self._send_offset
        known = np.flatnonzero((offset >= 0) & (self.partition >= 0))
        pairs = [(self.partition[known], offset[known])]
        for table, _, _, _ in raw:
            pairs.append((history.column(table, "partition"), history.column(table, "offset")))
        self.places = Places(pairs)
        found = self.places.of(*pairs[0])
        self.send_place = np.full(len(self.partition), -1, found.dtype)
        self.send_place[known] = found
        del pairs, known, found
        self._split_reads(raw)

    def _make_sends(self) -> None:
        history = self.history
        self.partition = self.padded(history.column("sends", "partition"), NONE)
        self._send_offset = self.padded(history.column("sends", "offset"), NONE)
        rows = self.transactions.rows_of(history.column("sends", "transaction"))
        history.release("sends", "transaction")
        self.transaction = self.padded(rows, NONE)
        own = self.padded(history.column("sends", "outcome"), OpOutcome.INFO)
        self.outcome = np.where(
            self.transaction >= 0, self.transactions.outcome[self.transaction], own
        )

    def _split_reads(self, raw: list[tuple[str, Array, Array, Array]]) -> None:
        self.committed: list[Reads] = []
        self.uncommitted: list[Reads] = []
        for table, isolation, writer, _ in raw:
            for level, found in (
                (Isolation.READ_COMMITTED, self.committed),
                (Isolation.READ_UNCOMMITTED, self.uncommitted),
            ):
                rows = np.flatnonzero(isolation == level).astype(np.int32)
                if len(rows):
                    found.append(self._reads(table, rows, writer, len(isolation)))
        for table, _, _, _ in raw:
            self.history.release(table, "transaction", "isolation")

    def _reads(self, table: str, rows: Array, writer: Array, total: int) -> Reads:
        def taken(values: Array) -> Array:
            return values if len(rows) == total else values[rows]

        partition = taken(self.history.column(table, "partition"))
        offset = taken(self.history.column(table, "offset"))
        if table == "polls":
            numbers = taken(self.history.column(table, "transaction"))
            transaction = self.transactions.rows_of(numbers)
            is_plain = transaction < 0
            is_ok = is_plain | (self.transactions.outcome[transaction] == OpOutcome.OK)
        else:
            transaction = np.full(len(rows), -1, np.int32)
            is_ok = np.ones(len(rows), bool)
        place = self.places.of(partition, offset)
        return Reads(table, rows, partition, offset, taken(writer), transaction, is_ok, place)

    def padded(self, values: Array, filler: int) -> Array:
        """Append `filler` to a column of sends for each value that was read and never sent."""
        extra = len(self.unknown_values)
        return np.append(values, np.full(extra, filler, values.dtype)) if extra else values

    def find(self, values: Array) -> Array:
        """Return the row of the send of each value, or -1 for a value that was never sent."""
        return RowsByNumber(self.history.column("sends", "value")).of(values)

    @cached_property
    def is_read(self) -> Array:
        """Return for each sent record whether a successful read_committed reader got its value."""
        found = np.zeros(len(self.partition), bool)
        for reads in self.committed:
            found[reads.writer[reads.is_ok]] = True
        return found

    @cached_property
    def is_proven(self) -> Array:
        """Return for each sent record whether it must have been committed."""
        is_read_transaction = np.zeros(self.transactions.count + 1, bool)
        is_read_transaction[self.transaction[self.is_read & (self.transaction >= 0)]] = True
        is_read_transaction[self.transactions.count] = False
        by_others = is_read_transaction[self.transaction] & (self.transaction >= 0)
        is_unknown = self.outcome == OpOutcome.INFO
        return (self.outcome == OpOutcome.OK) | (is_unknown & (self.is_read | by_others))

    @cached_property
    def order(self) -> Order:
        return Order(
            self.places,
            self.partition,
            np.where(self.is_proven, self.send_place, -1),
            [(reads.place, reads.writer) for reads in self.committed],
        )

    @cached_property
    def scanned(self) -> Reads | None:
        """Return the records of the last read_committed reading of all topics, or None without it.

        Recorded end offsets prove a reading up to them, even if it found no record.
        """
        found = next((reads for reads in self.committed if reads.table == "scan"), None)
        if found is None and (self.history.column("ends", "replica") == NONE).any():
            nothing = np.empty(0, np.int32)
            return self._reads("scan", nothing, nothing, self.history.count("scan"))
        return found

    @cached_property
    def is_scanned(self) -> Array:
        """Return for each sent record whether the last reading of all topics found its value."""
        found = np.zeros(len(self.partition), bool)
        if self.scanned is not None:
            found[self.scanned.writer] = True
        return found

    @cached_property
    def scanned_partitions(self) -> Array:
        """Return for each partition, empty or not, whether its last reading reached its end."""
        found = np.zeros(len(self.history.names) + 1, bool)
        if self.scanned is not None:
            found[self.scanned.partition] = True
            ends = self.history.column("ends", "partition")
            found[ends[self.history.column("ends", "replica") == NONE]] = True
        return found

    @cached_property
    def log_start(self) -> Array:
        """Return the log start offset of each partition. Records below it may have been deleted."""
        found = np.zeros(len(self.history.names) + 1, np.int64)
        starts = self.history.column("ends", "log_start_offset")
        np.maximum.at(found, self.history.column("ends", "partition"), starts)
        return found

    @cached_property
    def is_compacted(self) -> Array:
        """Return for each partition whether compaction may remove its records."""
        found = np.zeros(len(self.history.names) + 1, bool)
        is_cleaned = self.history.column("ends", "is_compacted") == 1
        found[self.history.column("ends", "partition")[is_cleaned]] = True
        return found

    def may_be_gone(self, partition: Array, offset: Array) -> Array:
        """Return for each place whether its record may have been deleted or compacted away."""
        return (offset < self.log_start[partition]) | self.is_compacted[partition]

    @cached_property
    def is_expected(self) -> Array:
        """Return for each sent record whether the last reading of all topics covered its place."""
        is_told = self._send_offset >= 0
        may_be_gone = self.may_be_gone(self.partition, self._send_offset)
        is_kept = ~self.is_compacted[self.partition] & ~(is_told & may_be_gone)
        return self.scanned_partitions[self.partition] & (self.partition >= 0) & is_kept

    def value(self, send: int) -> int:
        """Return the value of a sent record, or of a record that was read and never sent."""
        if send >= self.sends:
            return int(self.unknown_values[send - self.sends])
        return int(self.history.column("sends", "value")[send])
