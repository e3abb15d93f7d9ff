"""A case in which transaction shards with many transactional ids write snapshots."""

import time
from pathlib import Path

from .stage import Stage
from .transactional_ids import ids_of_shards, initialize

SHARDS = 4
STEP = 2_000
QUIET_S = 3.0


def journal(stage: Stage) -> None:
    per_shard = stage.size(100_000, 3_000)
    ids = ids_of_shards(SHARDS, per_shard, "app")
    initialize(stage.cluster, ids)
    last_s = 0.0
    while (newest_s := max((f.stat().st_mtime for f in _snapshots(stage)), default=0)) != last_s:
        last_s = newest_s
        time.sleep(QUIET_S)  # writes that are still pending do not count in the watched time
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
    """Return whether every shard on every node has a snapshot that is newer than this time."""
    new = [file for file in _snapshots(stage) if file.stat().st_mtime > since_s]
    return len(new) == SHARDS * len(stage.cluster.node_ids)


def _snapshots(stage: Stage) -> list[Path]:
    """Return the snapshot files of the transaction shards.

    Those of the metadata group, number 0, are left out.
    """
    directories = [stage.cluster.node(i).directory / "raft" for i in stage.cluster.node_ids]
    files = [d / f"group-{group}.snapshot" for d in directories for group in range(1, SHARDS + 1)]
    return [file for file in files if file.exists()]
