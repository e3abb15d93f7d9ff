"""Snapshots of the transaction shards while they are large."""

import time

from .stage import Stage
from .transactional_ids import ids_of_shards, initialize

SHARDS = 4
STEP = 2_000


def journal(stage: Stage) -> None:
    per_shard = stage.size(100_000, 3_000)
    ids = ids_of_shards(SHARDS, per_shard, "app")
    initialize(stage.cluster, ids)
    with stage.watched(f"the journal rolls with {SHARDS} x {per_shard:,} transactional ids"):
        began_s = time.time()
        rounds = 0
        while not _has_rolled(stage, began_s) and rounds < stage.size(100_000, 0) // STEP + 12:
            first = rounds * STEP % per_shard
            initialize(stage.cluster, [names[first : first + STEP] for names in ids])
            rounds += 1
        stage.require(_has_rolled(stage, began_s), "not every shard wrote a snapshot")
    stage.note(f"{rounds * STEP * SHARDS:,} decisions meanwhile")


def _has_rolled(stage: Stage, since_s: float) -> bool:
    """Whether every shard on every node has a new snapshot."""
    files = [
        stage.cluster.node(node_id).directory / "raft" / f"group-{group}.snapshot"
        for node_id in stage.cluster.node_ids
        for group in range(1, SHARDS + 1)
    ]
    return all(file.exists() and file.stat().st_mtime > since_s for file in files)
