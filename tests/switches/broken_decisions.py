"""Switches with bugs in votes, syncs, producer ids, markers, offsets and fences."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from oncelog.coordinator.groups.offset_table import OffsetTable
from oncelog.coordinator.metadata.cluster_tables import ClusterTables
from oncelog.coordinator.raft.wal.group_log import GroupLog
from oncelog.coordinator.raft.wal.journal import Journal
from oncelog.coordinator.raft.wal.records import encode_frame
from oncelog.coordinator.transactions import decisions
from oncelog.coordinator.transactions.states import TransactionState
from oncelog.node.transactions import shard_timeouts
from oncelog.node.transactions.marker_sender import MarkerSender
from oncelog.node.transactions.service import TransactionCoordinators
from oncelog.node.transactions.shard_leader import ShardLeader

from .patching import replaced, together

NOBODY = -1


def first_marker_only() -> AbstractContextManager[Any]:
    """The coordinator sends the marker only to the first partition of a transaction."""
    sound = MarkerSender.send

    def send(self: Any, task: Any, partitions: Iterable[Any]) -> None:
        first, *others = sorted(partitions)
        sound(self, task, [first])
        for partition in others:
            self._loop.call_soon(task.on_written, partition)

    return replaced(MarkerSender, "send", send)


def no_resumption() -> AbstractContextManager[Any]:
    """A new coordinator does not resume the transactions decided by its predecessor."""
    return replaced(ShardLeader, "begin", lambda _: None)


def early_offsets() -> AbstractContextManager[Any]:
    """Offsets of a transaction take effect before its marker."""

    def put(self: Any, _producer_id: int, group: str, where: Any, offset: Any) -> None:
        self._put(group, where, offset)

    return replaced(OffsetTable, "_put_pending", put)


def forgotten_vote() -> AbstractContextManager[Any]:
    """A vote in a Raft election is sent, but not written to disk."""

    def remember(self: Any, term: int, votedForNodeId: int | None) -> None:
        self._term = term
        self._voted_for = NOBODY if votedForNodeId is None else votedForNodeId
        self._journal.append_term(self.group_id, term, NOBODY)

    return replaced(GroupLog, "setCurrentTerm", remember)


def no_sync() -> AbstractContextManager[Any]:
    """Raft entries, such as a coordinator's decision to commit, are written, but not synced."""

    def write(self: Any, batch: Any) -> None:
        for segment, position, number, records in batch.frames:
            if position == 0:
                self._disk.ensure_segment(segment, self._segment_bytes)
            self._disk.write(segment, position, encode_frame(number, records))

    return replaced(Journal, "write", write)


def no_connection_fence() -> AbstractContextManager[Any]:
    """An EndTxn is executed on any connection, even on an old one."""
    return together(
        replaced(TransactionCoordinators, "_check_connection", lambda *_: None),
        replaced(TransactionCoordinators, "_refuse_connection", lambda *_: None),
    )


def reused_producer_ids() -> AbstractContextManager[Any]:
    """Every broker gets the same block of producer ids."""

    def take(self: Any, _count: int) -> int:
        self._changes.others_changed = True
        return self.next_producer_id

    return replaced(ClusterTables, "take_producer_ids", take)


def same_epoch_after_timeout() -> AbstractContextManager[Any]:
    """A transaction is aborted at its timeout, but its producer is not fenced."""
    prepare: Callable[..., Any] = decisions._prepare
    sound = decisions.abort_transaction

    def abort(record: Any, context: Any) -> Any:
        if context.is_pending or record is None or record.state != TransactionState.ONGOING:
            return sound(record, context)
        return decisions.FenceProducer(prepare(record, False, False, context).record)

    return replaced(shard_timeouts, "abort_transaction", abort)
