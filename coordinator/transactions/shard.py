"""One shard of the transaction state log, as a replicated state machine.

`apply` is total and deterministic. Any command, in any state, has the same result on every node and
raises no exception. Bytes that this release cannot decode raise MalformedTransactionCommand. The
node must then end, or its state would differ from nodes that can decode the command. A write has an
effect only if the record is still the one that the write was based on, and the new record may
follow it. The late command of a deposed leader therefore changes nothing.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgpack

from ...runtime.sliced_work import Steps, run_to_end
from ...wire.messages.transaction_log import decode_transaction_log_key
from ...wire.primitives import MalformedFrame
from ..snapshot_reader import SnapshotReader
from .commands import (
    CHAINED,
    SetShardCount,
    Write,
    decode_transaction_command,
)
from .record import TransactionRecord, check_transition, decode_record
from .states import MAY_EXPIRE, PREPARED, TransactionState

SNAPSHOT_FORMAT = 1
SLICE_RECORDS = 32  # in one step, which takes less than half a millisecond
_pack = msgpack.Packer().pack


class UnreadableShard(Exception):
    """The error of a snapshot that this version cannot decode."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of a command.

    refusals: for each write the reason of its refusal, or None if it was done. reason: the reason
    of the refusal of the whole command.
    """

    refusals: tuple[str | None, ...] = ()
    reason: str | None = None

    @property
    def is_done(self) -> bool:
        return self.reason is None and not any(self.refusals)


class TransactionShard:
    """The transactional ids of one shard. Readers must not change the records."""

    def __init__(self) -> None:
        # The cluster's number of shards; 0 until it is set, and always in shards other than 0.
        self.shard_count = 0
        self._records: dict[str, TransactionRecord] = {}
        self._packed: dict[str, bytes] = {}  # the bytes of each record in a snapshot
        # Ids that are checked regularly, as ordered sets, so that no scan reads all records.
        self._open: dict[str, None] = {}
        self._prepared: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._records)

    @property
    def records(self) -> Mapping[str, TransactionRecord]:
        return self._records

    @property
    def open_ids(self) -> Collection[str]:
        """Return the ids of ongoing transactions."""
        return self._open.keys()

    @property
    def prepared_ids(self) -> Collection[str]:
        """Return the ids of prepared transactions, which have markers still to be written."""
        return self._prepared.keys()

    def get(self, transactional_id: str) -> TransactionRecord | None:
        """Return the record of a transactional id, or None if the id is unknown."""
        return self._records.get(transactional_id)

    # -- the state machine

    def apply(self, command: bytes, index: int, term: int) -> Applied:
        """Apply the command at `index`, or raise MalformedTransactionCommand without any change."""
        wanted = decode_transaction_command(command, index)
        if wanted.term != term:
            return Applied(reason=f"it was decided in term {wanted.term}, and this is {term}")
        if isinstance(wanted, SetShardCount):
            return self._set_shard_count(wanted.count)
        done: set[str] = set()
        refusals: list[str | None] = []
        for write in wanted.writes:
            refusal = self._refusal(write, done)
            refusals.append(refusal)
            if refusal is None:
                done.add(write.transactional_id)
                self._put(write)
            else:
                done.discard(write.transactional_id)
        return Applied(tuple(refusals))

    def snapshot_steps(self) -> Steps[list[bytes]]:
        """Encode a snapshot of the present state. All replicas return equal bytes.

        The bytes of each record are kept, so a snapshot is the copy of a list.
        """
        packer = msgpack.Packer()
        head = packer.pack_array_header(3) + packer.pack(SNAPSHOT_FORMAT)
        head += packer.pack(self.shard_count) + packer.pack_array_header(len(self._packed))
        return _no_steps([head, *self._packed.values()])

    def snapshot(self) -> bytes:
        return b"".join(run_to_end(self.snapshot_steps()))

    def restore(self, snapshot: bytes | memoryview) -> None:
        """Replace the state by the snapshot's in one step (see `restore_steps`)."""
        run_to_end(self.restore_steps(snapshot))

    def restore_steps(self, snapshot: bytes | memoryview) -> Steps[None]:
        """Replace the state by the snapshot's, in one step.

        No command may be applied before that step. Later steps only free the old state. Raises
        UnreadableShard without any change.
        """
        new = TransactionShard()
        try:
            reader = SnapshotReader(snapshot)
            count, snapshot_format = reader.array(), reader.value()
            if count != 3 or snapshot_format != SNAPSHOT_FORMAT:
                raise UnreadableShard(f"snapshot format {snapshot_format} is not known")
            new.shard_count = int(reader.value())
            for number in range(reader.array()):
                key, value, version = reader.value()
                record = decode_record(value, int(version))
                new._set(decode_transaction_log_key(key), record, key, value)
                if number % SLICE_RECORDS == 0:
                    yield
            reader.end()
        except (ValueError, TypeError, msgpack.UnpackException, MalformedFrame) as error:
            raise UnreadableShard(f"a snapshot of transactions makes no sense: {error}") from error
        old = dict(vars(self))
        vars(self).update(vars(new))
        yield from _empty(old["_records"], old["_packed"])

    # -- inside

    def _set(
        self, transactional_id: str, record: TransactionRecord, key: bytes, value: bytes
    ) -> None:
        """Store a record, and its bytes for a snapshot."""
        self._records[transactional_id] = record
        self._packed[transactional_id] = _pack([key, value, record.version])
        if record.state == TransactionState.ONGOING:
            self._open[transactional_id] = None
        elif record.state in PREPARED:
            self._prepared[transactional_id] = None

    def _set_shard_count(self, count: int) -> Applied:
        if self.shard_count and self.shard_count != count:
            return Applied(reason=f"the cluster has {self.shard_count} transaction shards")
        self.shard_count = count
        return Applied()

    def _refusal(self, write: Write, done: set[str]) -> str | None:
        old = self._records.get(write.transactional_id)
        if write.expected_version == CHAINED:
            if write.transactional_id not in done:
                return "what comes before it was not done"
        elif write.expected_version != (0 if old is None else old.version):
            return "the record has changed"
        if not write.is_expected(old):
            return "the record is not the expected one"
        if write.record is not None:
            return check_transition(old, write.record)
        if old is None or old.state not in MAY_EXPIRE:
            return "only an id without a transaction is forgotten"
        return None

    def _put(self, write: Write) -> None:
        name = write.transactional_id
        self._open.pop(name, None)
        self._prepared.pop(name, None)
        if write.record is None:
            del self._records[name], self._packed[name]
        else:
            self._set(name, write.record, write.key, write.value)


def _no_steps(pieces: list[bytes]) -> Steps[list[bytes]]:
    yield from ()
    return pieces


def _empty(*tables: dict[str, Any]) -> Steps[None]:
    """Remove all entries of the tables, a slice in each step."""
    for table in tables:
        while table:
            for name in tuple(islice(table, SLICE_RECORDS)):
                del table[name]
            yield
