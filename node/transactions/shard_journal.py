"""A reader of a transaction shard's journal on a node's disk.

The reader works beside the running node or without it, and changes nothing. It returns the records
of the snapshot, and then every later entry of the Raft journal. Entries are replayed as in the
node, so that a refused write (a late command of a deposed leader) is shown as refused. Records have
Kafka's formats TransactionLogKey and TransactionLogValue, which are the contents of
__transaction_state.

The node may write meanwhile. Its journal may end in an incomplete frame, which is skipped. It may
also lose a segment between two reads, which are then repeated. One disk does not show whether the
last entries are committed, which requires a majority.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...coordinator.raft.library import COMMAND
from ...coordinator.raft.outcomes import CorruptJournal, ForeignJournal
from ...coordinator.raft.wal.disk import DirectoryDisk
from ...coordinator.raft.wal.records import RaftSnapshot, decode_snapshot
from ...coordinator.raft.wal.recovery import RecoveredGroup, recover
from ...coordinator.transactions.commands import (
    MalformedTransactionCommand,
    SetShardCount,
    decode_transaction_command,
)
from ...coordinator.transactions.record import TransactionRecord, encode_record
from ...coordinator.transactions.shard import TransactionShard, UnreadableShard
from ...wire.messages.transaction_log import TransactionLogValue, decode_transaction_log_value
from .coordinator_side import FIRST_RAFT_GROUP

ATTEMPTS_MAX = 5


class UnreadableJournal(Exception):
    """The error of a journal that cannot be read. `str()` is a sentence for users."""


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """A record of a transactional id in the journal. `value` is None if the id was removed.

    `note` is a remark for the reader, for example that a write was refused.
    """

    index: int
    term: int  # -1 for a record of the snapshot, which does not store it
    transactional_id: str | None
    value: TransactionLogValue | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class ShardJournal:
    """One node's copy of a transaction shard, with its records.

    terms: the terms of the entries after the snapshot, by index.
    """

    node_id: int
    snapshot_index: int
    entries: tuple[ShardEntry, ...]
    terms: dict[int, int] = field(default_factory=dict[int, int])

    @property
    def end(self) -> tuple[int, int]:
        """Return the term and index of the last entry, by which copies are compared.

        The term is 0 if there is no entry after the snapshot.
        """
        last = max(self.terms, default=self.snapshot_index)
        return self.terms.get(last, 0), last

    def has(self, index: int, term: int) -> bool:
        """Return whether this copy has the entry, or a snapshot that includes the entry."""
        return index <= self.snapshot_index or self.terms.get(index) == term


def read_shard(directory: Path, *, node_id: int, voters: Sequence[int], shard: int) -> ShardJournal:
    """Read a shard's copy from the `raft` directory of a node, or raise UnreadableJournal."""
    group_id = FIRST_RAFT_GROUP + shard
    group, data = _read(_ReadOnlyDisk(directory), node_id, voters, group_id)
    if group is None:
        raise UnreadableJournal(f"{directory} has no transaction shard {shard}.")
    snapshot = None if data is None else decode_snapshot(group_id, data)
    if data is not None and snapshot is None:
        raise UnreadableJournal(f"The snapshot of shard {shard} in {directory} is damaged.")
    return _replay(node_id, group, snapshot)


def _read(
    disk: DirectoryDisk, node_id: int, voters: Sequence[int], group_id: int
) -> tuple[RecoveredGroup | None, bytes | None]:
    """Return a shard's recovered journal and its snapshot, each None if missing.

    The snapshot is read last, so it is never too old. Raises UnreadableJournal.
    """
    for _ in range(ATTEMPTS_MAX):
        try:
            group = recover(disk, node_id=node_id, voters=voters).groups.get(group_id)
            return group, disk.read_snapshot(group_id)
        except FileNotFoundError:
            continue  # a segment was deleted between two reads
        except (CorruptJournal, ForeignJournal) as problem:
            raise UnreadableJournal(f"{problem}.") from problem
    raise UnreadableJournal("The journal changes while it is read.")


class _ReadOnlyDisk(DirectoryDisk):
    """A read-only disk for recovery, which ignores the removal of incomplete writes."""

    def write(self, number: int, position: int, data: bytes) -> None:
        pass

    def sync(self, number: int) -> None:
        pass

    def delete_segment(self, number: int) -> None:
        pass


def _replay(node_id: int, group: RecoveredGroup, snapshot: RaftSnapshot | None) -> ShardJournal:
    machine, start = TransactionShard(), 0
    entries: list[ShardEntry] = []
    if snapshot is not None:
        start = snapshot.last_index
        try:
            machine.restore(snapshot.payload)
        except UnreadableShard as problem:
            raise UnreadableJournal(f"Node {node_id}: {problem}.") from problem
        for name, record in sorted(machine.records.items(), key=lambda item: item[1].version):
            entries.append(ShardEntry(record.version, -1, name, _value(record)))
    terms: dict[int, int] = {}
    for index in sorted(i for i in group.entries if start < i <= group.state.end_index):
        command, term = group.entries[index]
        terms[index] = term
        if command[:1] == COMMAND:
            entries += _entries(machine, command[1:], index, term)
    return ShardJournal(node_id, start, tuple(entries), terms)


def _entries(machine: TransactionShard, command: bytes, index: int, term: int) -> list[ShardEntry]:
    try:
        wanted = decode_transaction_command(command)
    except MalformedTransactionCommand as problem:
        return [ShardEntry(index, term, None, None, str(problem))]
    applied = machine.apply(command, index, term)
    if isinstance(wanted, SetShardCount):
        return [ShardEntry(index, term, None, None, f"the cluster has {wanted.count} shards")]
    refusals = applied.refusals or [applied.reason] * len(wanted.writes)
    return [
        ShardEntry(
            index,
            term,
            write.transactional_id,
            None if write.record is None else _value(write.record),
            f"refused: {refusal}" if refusal else "forgotten" if write.record is None else "",
        )
        for write, refusal in zip(wanted.writes, refusals, strict=True)
    ]


def _value(record: TransactionRecord) -> TransactionLogValue:
    """Return a record's value, decoded from its bytes in the log."""
    return decode_transaction_log_value(encode_record(record))
