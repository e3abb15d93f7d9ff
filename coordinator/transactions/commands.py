"""The commands that a coordinator proposes to its shard's Raft group, as values and as bytes.

A `Write` is a compare-and-set, with the next record of an id and the properties of the record that
it replaces. Where the command is applied, every node checks that the record is unchanged and that
the new record may follow it. Each write of a command succeeds or fails independently, except for a
CHAINED write, which follows another write of its id and succeeds only with it.

Bytes: msgpack [type, term, writes]. A write is [key, value or nil, expected version, and the
producer id, epoch and state of that version]. Key and value are Kafka's, see
wire.messages.transaction_log. Types and orders never change, because they are stored in journals.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, cast

import msgpack

from ...wire.errors import InvalidRequest
from ...wire.messages.transaction_log import (
    decode_transaction_log_key,
    encode_transaction_log_key,
)
from ...wire.primitives import MalformedFrame
from .record import (
    NEVER,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TransactionRecord,
    decode_record,
    encode_record,
)

CHAINED = -1
NO_STATE = -1
WRITES_MAX = 10_000  # the limit of one command


class CommandKind(IntEnum):
    """The types of commands: WRITE for records, SHARD_COUNT for the cluster's number of shards."""

    WRITE = 1
    SHARD_COUNT = 2


class MalformedTransactionCommand(InvalidRequest):
    """The error of bytes that are not a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """The next record of a transactional id, or None to remove the id.

    It is written only if the current record has the properties `expected_*`. key, value: the bytes
    of the id and the record. They are set only if the command was decoded from bytes.
    """

    transactional_id: str
    record: TransactionRecord | None
    expected_version: int
    expected_producer_id: int = NO_PRODUCER_ID
    expected_producer_epoch: int = NO_EPOCH
    expected_state: int = NO_STATE
    key: bytes = field(default=b"", compare=False, repr=False)
    value: bytes = field(default=b"", compare=False, repr=False)

    @classmethod
    def after(
        cls, transactional_id: str, old: TransactionRecord | None, new: TransactionRecord | None
    ) -> "Write":
        """Return the write that replaces `old` by `new`."""
        if old is None:
            return cls(transactional_id=transactional_id, record=new, expected_version=NEVER)
        return cls(
            transactional_id=transactional_id,
            record=new,
            expected_version=old.version,
            expected_producer_id=old.producer_id,
            expected_producer_epoch=old.producer_epoch,
            expected_state=old.state,
        )

    @classmethod
    def chained(
        cls, transactional_id: str, old: TransactionRecord, new: TransactionRecord
    ) -> "Write":
        """Return the write of `new` after `old`, which the same command has written just before."""
        return cls(
            transactional_id=transactional_id,
            record=new,
            expected_version=CHAINED,
            expected_producer_id=old.producer_id,
            expected_producer_epoch=old.producer_epoch,
            expected_state=old.state,
        )

    def is_expected(self, record: TransactionRecord | None) -> bool:
        """Return whether the record has the expected properties, apart from its version."""
        if record is None:
            return self.expected_state == NO_STATE
        return (
            self.expected_producer_id == record.producer_id
            and self.expected_producer_epoch == record.producer_epoch
            and self.expected_state == record.state
        )


@dataclass(frozen=True, slots=True)
class WriteRecords:
    """Write these records.

    term: the coordinator epoch in which the command was decided.
    """

    term: int
    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class SetShardCount:
    """Set the number of shards.

    The first leader of shard 0 proposes this command once, and the number never changes.
    """

    term: int
    count: int


Command = WriteRecords | SetShardCount


def encode_transaction_command(command: Command) -> bytes:
    """Encode a command."""
    if isinstance(command, SetShardCount):
        values: list[object] = [CommandKind.SHARD_COUNT, command.term, command.count]
    else:
        values = [CommandKind.WRITE, command.term, [_plain(write) for write in command.writes]]
    return msgpack.packb(values)


def decode_transaction_command(data: bytes, version: int = NEVER) -> Command:
    """Decode a command with records of this version, or raise MalformedTransactionCommand."""
    try:
        values: object = msgpack.unpackb(data, max_array_len=WRITES_MAX, max_map_len=0)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise MalformedTransactionCommand(f"not msgpack: {error}") from error
    kind, term, wanted = _list_of(values, 3, "expected a kind, a term, and what is wanted")
    if type(term) is not int:
        raise MalformedTransactionCommand("expected a kind, a term, and what is wanted")
    if kind == CommandKind.SHARD_COUNT and type(wanted) is int and wanted > 0:
        return SetShardCount(term, wanted)
    if kind == CommandKind.WRITE and type(wanted) is list:
        return WriteRecords(
            term, tuple([_write(each, version) for each in cast(list[object], wanted)])
        )
    raise MalformedTransactionCommand(f"kind {kind} is not known, or its content is not its own")


def _list_of(value: object, length: int, wanted: str) -> list[Any]:
    if type(value) is not list or len(found := cast(list[Any], value)) != length:
        raise MalformedTransactionCommand(wanted)
    return found


def _plain(write: Write) -> list[object]:
    return [
        encode_transaction_log_key(write.transactional_id),
        None if write.record is None else encode_record(write.record),
        write.expected_version,
        write.expected_producer_id,
        write.expected_producer_epoch,
        write.expected_state,
    ]


def _write(fields: object, version: int) -> Write:
    key, value, *expected = _list_of(fields, 6, "a write has six fields")
    if type(key) is not bytes or not isinstance(value, bytes | None):
        raise MalformedTransactionCommand("a key is bytes, a value bytes or nil")
    if set(map(type, expected)) != {int}:
        raise MalformedTransactionCommand("what is expected is said in whole numbers")
    try:
        return Write(
            transactional_id=decode_transaction_log_key(key),
            record=None if value is None else decode_record(value, version),
            expected_version=expected[0],
            expected_producer_id=expected[1],
            expected_producer_epoch=expected[2],
            expected_state=expected[3],
            key=key,
            value=value or b"",
        )
    except MalformedFrame as error:
        raise MalformedTransactionCommand(str(error)) from error
