"""Records the operations of a client as they happen.

    recorder = Recorder.open(run_directory)
    process = recorder.new_process()
    transaction = recorder.begin(process, "payments-1", producer_id, epoch)
    send = recorder.send_invoked(process, "orders/3", value, transaction)
    recorder.send_ended(send, OpOutcome.OK, offset=17)
    recorder.commit_invoked(transaction)
    recorder.transaction_ended(transaction, OpOutcome.OK)
    recorder.close()

Any number of operating-system processes may record into one run at the same time. Each recorder
gets its own number, and with it ranges of process, transaction and value numbers. The recorder
needs only the standard library, and threads may share a recorder. `invoked` methods are called
before the request is sent, the others after its answer. If the process is killed in between, the
operation stays INFO. `add` adds a row to any table at once.
"""

import json
import os
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import NamedTuple

from .rows import Handle, RecordedRows
from .schema import FOLDER, FORMAT_VERSION, NONE, TABLES, Isolation, OpOutcome

RECORDERS_MAX = 10_000
NUMBER_BITS, PROCESS_BITS = 40, 16  # of a recorder's own counters within the global numbers
NAME_CHARACTERS_MAX = 1_000


class Begun(NamedTuple):
    """A transaction that was recorded as begun. Other rows refer to it by `number`."""

    number: int
    handle: Handle


class Recorder:
    def __init__(
        self, number: int, folder: Path | None, clock_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.number, self.folder, self._clock_ns = number, folder, clock_ns
        self.names: list[str] = []
        self._name_ids: dict[str, int] = {}
        self._rows = {
            name: RecordedRows(table, None if folder is None else folder / f"{name}.rows")
            for name, table in TABLES.items()
        }
        self._numbers = {what: count() for what in ("process", "transaction", "value", "call")}
        self._lock = threading.Lock()
        self._names_file = -1
        if folder is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            self._names_file = os.open(folder / "names.jsonl", flags, 0o600)

    @classmethod
    def open(cls, run: Path, clock_ns: Callable[[], int] = time.monotonic_ns) -> "Recorder":
        """Open a recorder in a run's directory, under the first free number."""
        for number in range(RECORDERS_MAX):
            folder = run / FOLDER / f"{number:04d}"
            try:
                folder.mkdir(mode=0o700, parents=True)
            except FileExistsError:
                continue
            about = {"format": FORMAT_VERSION, "recorder": number, "pid": os.getpid()}
            (folder / "recorder.json").write_text(json.dumps(about), encoding="utf-8")
            return cls(number, folder, clock_ns)
        raise RuntimeError(f"{run} has {RECORDERS_MAX} recorders already")

    @classmethod
    def in_memory(cls, clock_ns: Callable[[], int] = time.monotonic_ns) -> "Recorder":
        """Return a recorder without files, for simulations and tests. `History.of` reads it."""
        return cls(0, None, clock_ns)

    def now_ns(self) -> int:
        """Return the current time of this history's clock, for rows of `add`."""
        return self._clock_ns()

    def new_process(self) -> int:
        """Return a new process number, which stands for one client object."""
        return (self.number << PROCESS_BITS) + next(self._numbers["process"])

    def new_value(self) -> int:
        """Return a value unique in the run, small enough for a client's 64-bit integers."""
        return (self.number << NUMBER_BITS) + next(self._numbers["value"])

    def begin(
        self, process: int, transactional_id: str, producer_id: int = NONE, epoch: int = NONE
    ) -> Begun:
        """Record the begin of a transaction, with producer id and epoch if reported."""
        number = (self.number << NUMBER_BITS) + next(self._numbers["transaction"])
        identity = (process, transactional_id, producer_id, epoch)
        times = (self._clock_ns(), NONE, NONE)
        handle = self.add("transactions", number, *identity, *times, OpOutcome.INFO, 0, None)
        return Begun(number, handle)

    def commit_invoked(self, transaction: Begun) -> None:
        """Record a commit call. Call this again before each further attempt."""
        rows, handle = self._rows["transactions"], transaction.handle
        attempts = rows.read(handle, "attempts") + 1
        if attempts == 1:
            rows.change(handle, commit_invoked_ns=self._clock_ns())
        rows.change(handle, attempts=min(attempts, 2**15 - 1))

    def transaction_ended(
        self, transaction: Begun, outcome: OpOutcome, error: str | None = None
    ) -> None:
        """Record the return of the commit or abort call, or that the client gave up."""
        self._rows["transactions"].change(
            transaction.handle, ended_ns=self._clock_ns(), error=self.name(error), outcome=outcome
        )

    def initialize_invoked(self, process: int, transactional_id: str) -> Handle:
        row = (process, transactional_id, NONE, NONE, self._clock_ns(), NONE, OpOutcome.INFO, None)
        return self.add("initializations", *row)

    def initialize_ended(
        self,
        handle: Handle,
        outcome: OpOutcome,
        *,
        producer_id: int = NONE,
        epoch: int = NONE,
        error: str | None = None,
    ) -> None:
        self._rows["initializations"].change(
            handle,
            producer_id=producer_id,
            producer_epoch=epoch,
            error=self.name(error),
            returned_ns=self._clock_ns(),
            outcome=outcome,
        )

    def send_invoked(
        self,
        process: int,
        partition: str | None,
        value: int,
        transaction: Begun | None = None,
        *,
        session: int = 0,
    ) -> Handle:
        """Record a send call. If `partition` is None, the history does not know the partition."""
        times = (NONE, self._clock_ns(), NONE, OpOutcome.INFO)
        return self.add(
            "sends", _number(transaction), process, session, partition, value, *times, None
        )

    def send_ended(
        self,
        handle: Handle,
        outcome: OpOutcome,
        *,
        offset: int = NONE,
        error: str | None = None,
    ) -> None:
        self._rows["sends"].change(
            handle,
            offset=offset,
            error=self.name(error),
            acknowledged_ns=self._clock_ns() if outcome is OpOutcome.OK else NONE,
            outcome=outcome,
        )

    def poll_invoked(self, process: int, transaction: Begun | None = None) -> tuple[int, Handle]:
        """Record a poll call. Return the number of the call, for `polled`, and its handle."""
        call = next(self._numbers["call"])
        row = (_number(transaction), process, call, self._clock_ns(), NONE)
        return call, self.add("poll_calls", *row)

    def poll_returned(self, handle: Handle) -> int:
        """Record that a poll returned, and return the time, for `polled`."""
        now_ns = self._clock_ns()
        self._rows["poll_calls"].change(handle, returned_ns=now_ns)
        return now_ns

    def polled(
        self,
        process: int,
        call: int,
        partition: str,
        offset: int,
        value: int,
        *,
        returned_ns: int,
        transaction: Begun | None = None,
        session: int = 0,
    ) -> None:
        """Record one record of a read_committed poll. Records of a poll are recorded in order."""
        row = (process, session, call, partition, offset, value, returned_ns)
        self.add("polls", _number(transaction), *row, Isolation.READ_COMMITTED)

    def assigned(self, process: int, session: int, partition: str, start_offset: int) -> Handle:
        """Record that the process reads this partition from now on."""
        row = (process, session, partition, start_offset, self._clock_ns(), NONE)
        return self.add("assignments", *row)

    def revoked(self, handle: Handle) -> None:
        self._rows["assignments"].change(handle, revoked_ns=self._clock_ns())

    def group_commit_invoked(
        self, process: int, group: str, generation: int, partition: str, offset: int
    ) -> Handle:
        """Record a member's commit of an offset, outside of transactions."""
        row = (process, group, generation, partition, offset, self._clock_ns())
        return self.add("group_commits", *row, NONE, 0, OpOutcome.INFO, None)

    def group_commit_ended(
        self, handle: Handle, outcome: OpOutcome, attempts: int, error: str | None = None
    ) -> None:
        self._rows["group_commits"].change(
            handle,
            returned_ns=self._clock_ns(),
            attempts=attempts,
            error=self.name(error),
            outcome=outcome,
        )

    def tenure_begun(
        self,
        process: int,
        group: str,
        partition: str,
        owner: str,
        epoch: int,
        given: tuple[int, int],
    ) -> Handle:
        """Record that a member of a consumer group takes a partition.

        given: when the heartbeat that assigned the partition began, and when it was answered.
        """
        row = (process, group, partition, owner, epoch, *given, NONE, NONE)
        return self.add("tenures", *row)

    def tenure_confirmed(self, handle: Handle, said_ns: int) -> None:
        """Record a successful heartbeat, begun at `said_ns`, while the member had the partition."""
        self._rows["tenures"].change(handle, confirmed_ns=said_ns)

    def tenure_ended(self, handle: Handle) -> None:
        self._rows["tenures"].change(handle, ended_ns=self._clock_ns())

    def reconciliation_begun(self, process: int, group: str) -> Handle:
        """Record that a member's new assignment differs from its partitions."""
        now_ns = self._clock_ns()
        return self.add("reconciliations", process, group, now_ns, now_ns)

    def reconciliation_confirmed(self, handle: Handle, said_ns: int) -> None:
        """Record a successful heartbeat, begun at `said_ns`, before the member had its target."""
        self._rows["reconciliations"].change(handle, until_ns=said_ns)

    def add(self, table: str, *values: int | str | None) -> Handle:
        """Add a row of any table, with values in the order of columns.

        Names are strings or None.
        """
        numbers = [
            value if isinstance(value, int) else self.name(value)  # an int may be an enum's, too
            for value in values
        ]
        with self._lock:
            return self._rows[table].append(*numbers)

    def name(self, text: str | None) -> int:
        """Return the number of a string. A new string is recorded first."""
        if text is None:
            return NONE
        if (known := self._name_ids.get(text)) is not None:
            return known
        kept = text[:NAME_CHARACTERS_MAX]
        with self._lock:
            if text not in self._name_ids:
                if self._names_file >= 0:
                    os.write(self._names_file, json.dumps(kept).encode() + b"\n")
                self.names.append(kept)
                self._name_ids[text] = len(self.names) - 1
            return self._name_ids[text]

    def content(self, table: str) -> bytes:
        """Return the bytes of a table's rows, for a recorder in memory."""
        return self._rows[table].content()

    def close(self) -> None:
        """Close the files. `files.seal` converts them to Parquet."""
        with self._lock:
            for rows in self._rows.values():
                rows.close()
            if self._names_file >= 0:
                os.close(self._names_file)
                self._names_file = -1


def _number(transaction: Begun | None) -> int:
    return NONE if transaction is None else transaction.number
