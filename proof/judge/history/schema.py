"""The schema of a history: operations of clients, contents of logs, faults.

A history is a set of tables of fixed-width rows. All times are nanoseconds of one clock
(CLOCK_MONOTONIC is common to all processes of a machine; a simulation has its own), in columns that
end in `_ns`. -1 means "none", "never" or "unknown". A column of the type NAME is a string, stored
as a number in the rows. A partition is the name `topic/number`.

Rules that recorders follow and checks rely on:
  * A *process* is one client object (a producer, a consumer, or both in turn). It does one thing
    after another, and its rows are in that order.
  * A row is written before its request is sent, with the outcome INFO, and completed in place. So
    the last operation of a killed process is in the history, with its outcome unknown.
  * A *value* is an integer that is sent once in a history. An application that repeats a failed
    transaction sends new values.
  * A *session* numbers the periods in which order is promised. A consumer begins a new one when it
    is assigned, subscribed, rebalanced or sought to another offset, except when it seeks back to
    the start of its own failed transaction. A producer begins a new one when it is created, and
    after a failed send.
  * `commit_invoked_ns` is taken before the commit call, `returned_ns` after the poll call.
docs/judge.md has more details, and the tables that each check needs.
"""

import struct
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

FOLDER, FORMAT_VERSION = "history", 1
NONE = -1


class OpOutcome(IntEnum):
    """The outcome of an operation.

    OK means that the operation happened, FAIL that it certainly did not, and INFO that its outcome
    is unknown.
    """

    OK = 0
    FAIL = 1
    INFO = 2


class Isolation(IntEnum):
    """Kafka's isolation levels, by their numbers in the protocol."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Marker(IntEnum):
    """The kind of marker in a control batch. NONE is a data batch."""

    NONE = -1
    ABORT = 0
    COMMIT = 1


class Column(NamedTuple):
    """A column of a table.

    `kind` is i1, i2, i4, i8 (signed integers of that many bytes) or name.
    """

    name: str
    kind: str

    @property
    def is_name(self) -> bool:
        """Return whether the numbers of this column stand for strings."""
        return self.kind == "name"

    @property
    def dtype(self) -> str:
        """Return numpy's name for the type of this column."""
        return "<i4" if self.is_name else f"<{self.kind}"


_CODES = {"i1": "b", "i2": "h", "i4": "i", "i8": "q", "name": "i"}


class Table:
    """The columns of a table and the layout of its rows.

    Rows are little endian, packed, and end with a byte 1. That byte is written last, so a row that
    a dying writer left incomplete does not count.
    """

    def __init__(self, name: str, what: str, columns: str) -> None:
        self.name, self.what = name, what
        self.columns = tuple(Column(*text.split(":")) for text in columns.split())

    @cached_property
    def row(self) -> struct.Struct:
        """Return the `struct.Struct` that packs a whole row."""
        return struct.Struct("<" + "".join(_CODES[c.kind] for c in self.columns) + "B")

    @cached_property
    def places(self) -> dict[str, tuple[int, struct.Struct]]:
        """Return the position in a row and the `struct.Struct` of each column."""
        found: dict[str, tuple[int, struct.Struct]] = {}
        at = 0
        for column in self.columns:
            packer = struct.Struct("<" + _CODES[column.kind])
            found[column.name] = (at, packer)
            at += packer.size
        return found

    @property
    def dtype(self) -> list[tuple[str, str]]:
        return [(c.name, c.dtype) for c in self.columns] + [("is_set", "u1")]


TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table(
            "transactions",
            "one for each transaction of a client",
            "transaction:i8 process:i4 transactional_id:name producer_id:i8 producer_epoch:i2 "
            "begun_ns:i8 commit_invoked_ns:i8 ended_ns:i8 outcome:i1 attempts:i2 error:name",
        ),
        Table(
            "initializations",
            "one for each call of init_transactions (InitProducerId), with its result",
            "process:i4 transactional_id:name producer_id:i8 producer_epoch:i2 invoked_ns:i8 "
            "returned_ns:i8 outcome:i1 error:name",
        ),
        Table(
            "sends",
            "one for each record that a producer got; transaction -1: sent outside of transactions",
            "transaction:i8 process:i4 session:i4 partition:name value:i8 offset:i8 invoked_ns:i8 "
            "acknowledged_ns:i8 outcome:i1 error:name",
        ),
        Table(
            "polls",
            "one for each record that a consumer got; transaction: the one in which it was polled",
            "transaction:i8 process:i4 session:i4 call:i8 partition:name offset:i8 value:i8 "
            "returned_ns:i8 isolation:i1",
        ),
        Table(
            "poll_calls",
            "one for each poll call, empty ones included",
            "transaction:i8 process:i4 call:i8 invoked_ns:i8 returned_ns:i8",
        ),
        Table(
            "assignments",
            "one for each period in which a consumer reads a partition; start_offset: the first "
            "offset of the period",
            "process:i4 session:i4 partition:name start_offset:i8 assigned_ns:i8 revoked_ns:i8",
        ),
        Table(
            "offset_commits",
            "offsets committed in a transaction or outside: [from_offset, to_offset) is processed",
            "transaction:i8 process:i4 group:name partition:name from_offset:i8 to_offset:i8 "
            "invoked_ns:i8 outcome:i1",
        ),
        Table(
            "group_commits",
            "offsets that a member of a group committed outside of transactions; generation: in a "
            "consumer group the epoch with which the member got the partition; attempts: the "
            "number of its requests",
            "process:i4 group:name generation:i4 partition:name offset:i8 invoked_ns:i8 "
            "returned_ns:i8 attempts:i2 outcome:i1 error:name",
        ),
        Table(
            "ownerships",
            "a partition that was assigned to a member of a group in a generation; owner: its "
            "group.instance.id, else its member id",
            "process:i4 group:name generation:i4 partition:name owner:name seen_ns:i8",
        ),
        Table(
            "tenures",
            "a period in which a member of a consumer group (KIP-848) had a partition; epoch: "
            "the member's epoch at its beginning; asked_ns: the start of the heartbeat whose "
            "answer assigned the partition; taken_ns: the time of that answer; confirmed_ns: the "
            "start of the last successful heartbeat of the period",
            "process:i4 group:name partition:name owner:name epoch:i4 asked_ns:i8 taken_ns:i8 "
            "confirmed_ns:i8 ended_ns:i8",
        ),
        Table(
            "member_epochs",
            "one for each new epoch that a member of a consumer group got; said: the epoch in its "
            "heartbeat, 0 to join",
            "process:i4 group:name owner:name said:i4 epoch:i4 invoked_ns:i8 returned_ns:i8",
        ),
        Table(
            "reconciliations",
            "a period in which a member of a consumer group did not yet have its assigned "
            "partitions; begun_ns: the time of the answer with the assignment; until_ns: the "
            "start of the last successful heartbeat, up to the one that reports the partitions",
            "process:i4 group:name begun_ns:i8 until_ns:i8",
        ),
        Table(
            "derivations",
            "the input record from which a read-process-write job made a sent value",
            "value:i8 group:name partition:name offset:i8",
        ),
        Table(
            "scan",
            "the last reading of every partition from its start to its end, after the repair",
            "isolation:i1 partition:name offset:i8 value:i8 scanned_ns:i8",
        ),
        Table(
            "ends",
            "one for each partition at the end; replica -1: its leader's answer over the protocol",
            "replica:i4 partition:name log_start_offset:i8 last_stable_offset:i8 "
            "high_watermark:i8 log_end_offset:i8 leader:i4 leader_epoch:i4 replicas:i2 in_sync:i2 "
            "is_compacted:i1 taken_ns:i8",
        ),
        Table(
            "batches",
            "the headers of the batches of each replica's log, control batches included; "
            "replica -1: fetched from the leader; marker: -1 data, 0 abort, 1 commit",
            "replica:i4 partition:name base_offset:i8 last_offset:i8 leader_epoch:i4 crc:i8 "
            "size_bytes:i4 attributes:i2 producer_id:i8 producer_epoch:i2 base_sequence:i4 "
            "last_sequence:i4 records:i4 max_timestamp_ms:i8 marker:i1 coordinator_epoch:i4",
        ),
        Table(
            "survivors",
            "the newest record of each key in a replica of a compacted partition",
            "replica:i4 partition:name offset:i8 digest:i8",
        ),
        Table(
            "committed",
            "the committed offsets of each group at the end",
            "group:name partition:name offset:i8 taken_ns:i8",
        ),
        Table(
            "decisions",
            "the records of the transaction coordinators' log, in their order",
            "transactional_id:name producer_id:i8 producer_epoch:i2 state:name timeout_ms:i4 "
            "started_ns:i8 updated_ns:i8",
        ),
        Table(
            "probes",
            "one produce, commit or consume through each broker after the repair",
            "kind:name broker:i4 invoked_ns:i8 returned_ns:i8 outcome:i1 error:name",
        ),
        Table(
            "faults",
            "one for each fault of the cluster or its clients; ended_ns -1: it lasted to the end",
            "kind:name target:name started_ns:i8 ended_ns:i8 seed:i8",
        ),
        Table(
            "file_findings",
            "files beside a log that contradict the log (check W3)",
            "replica:i4 partition:name file:name problem:name found_ns:i8",
        ),
    )
}
