"""`oncelog txn log` reads a shard of the transaction coordinator from its nodes' disks."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ...node.transactions.shard_journal import (
    ShardEntry,
    ShardJournal,
    UnreadableJournal,
    read_shard,
)
from ..cluster import layout
from ..cluster.failure import Failure

# Kafka's names of the states, by the number in a TransactionLogValue.
STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
SHARDS_KEY, SHARDS_DEFAULT = "transaction.state.log.num.partitions", 4
UNDECIDED = "not decided yet"


@dataclass(frozen=True, slots=True)
class ShardLog:
    """The journal of a shard that is shown (`chosen`), and the journals on all readable nodes.

    The journals of all nodes show which entries are committed.
    """

    chosen: ShardJournal
    copies: Sequence[ShardJournal]
    voters: int

    def is_decided(self, entry: ShardEntry) -> bool:
        """Return whether an entry is committed, in a snapshot or on a majority of nodes."""
        having = sum(copy.has(entry.index, entry.term) for copy in self.copies)
        return entry.index <= self.chosen.snapshot_index or having > self.voters // 2

    def rows(self) -> list[dict[str, Any]]:
        return [self._row(entry) for entry in self.chosen.entries]

    @property
    def summary(self) -> str:
        """Return text with the journal's node, its last entry, and the end of its snapshot."""
        copy = self.chosen
        older = f", snapshot up to {copy.snapshot_index}" if copy.snapshot_index else ""
        return f"node {copy.node_id}'s copy: up to entry {copy.end[1]}{older}"

    def _row(self, entry: ShardEntry) -> dict[str, Any]:
        value = entry.value
        note = entry.note if self.is_decided(entry) else UNDECIDED
        row: dict[str, Any] = {
            "index": entry.index,
            "term": entry.term if entry.term >= 0 else None,
            "id": entry.transactional_id,
            "note": note or None,
        }
        if value is None:
            return row
        return row | {
            "state": STATES[value.state] if value.state < len(STATES) else value.state,
            "producer": value.producer_id,
            "epoch": value.producer_epoch,
            "timeout_ms": value.timeout_ms,
            "partitions": [f"{t}/{i}" for t, indexes in value.partitions or () for i in indexes],
            "started": _time(value.start_ms),
            "updated": _time(value.last_update_ms),
            "previous_producer": value.previous_producer_id,
            "next_producer": value.next_producer_id,
            "last_epoch": value.last_producer_epoch,
            "transaction_version": value.client_transaction_version,
        }


def shard_log(data: Path, shard: int, node_id: int | None) -> ShardLog:
    """Read the journals of a shard, and choose that of `node_id`, or the one with the newest end.

    Raises Failure if the shard, the node or the cluster does not exist, or no journal can be read.
    """
    file = layout.existing(data)
    count = int(file.settings.get(SHARDS_KEY, SHARDS_DEFAULT))
    if not 0 <= shard < count:
        raise Failure(f"The cluster has transaction shards 0 to {count - 1}, and no {shard}.")
    if node_id is not None:
        file.entry(node_id)  # Failure when there is no such node
    copies: list[ShardJournal] = []
    problems: list[str] = []
    for each in file.node_ids:
        directory = layout.node_directory(data, each) / "raft"
        try:
            copies.append(read_shard(directory, node_id=each, voters=file.node_ids, shard=shard))
        except UnreadableJournal as problem:
            problems.append(f"node {each}: {problem}")
    fitting = [c for c in copies if node_id in (None, c.node_id)]
    if not fitting:
        raise Failure(f"No copy can be read: {' '.join(problems)}")
    chosen = max(fitting, key=lambda copy: copy.end)
    return ShardLog(chosen, copies, len(file.node_ids))


def _time(wall_ms: int) -> str | None:
    if wall_ms < 0:
        return None
    return datetime.fromtimestamp(wall_ms / 1000).isoformat(" ", "milliseconds")
