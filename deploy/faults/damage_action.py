"""The fault that changes one byte of a replica's log or index files.

The byte is changed while the node runs or before a start. Before the change, every partition must
have all of its replicas in sync. Only one node at a time is damaged, because a cluster may lose a
record that is damaged on all replicas. If the file still has the changed byte at the end, the byte
is restored, so that another node may be damaged next.
"""

from pathlib import Path
from typing import NamedTuple

from ..cluster.failure import Failure
from .engine import EffectNotSeen
from .faulty_cluster import FaultyCluster
from .node_actions import IN_SYNC_WITHIN_S, LEVEL_S, NodeContext
from .schedule import Fault

SUFFIXES = ("log", "index", "timeindex", "txnindex")
REPAIRED_WITHIN_S = 60.0


class DamagedByte(NamedTuple):
    """A byte that was changed, and its former value."""

    path: Path
    inode: int
    position: int
    was: int
    now: int

    def put_back(self) -> bool:
        """Restore the byte. Return whether the same file still had the changed byte."""
        try:
            with self.path.open("r+b", buffering=0) as file:
                file.seek(self.position)
                if self.path.stat().st_ino != self.inode or file.read(1) != bytes([self.now]):
                    return False
                file.seek(self.position)
                file.write(bytes([self.was]))
        except OSError:
            return False
        return True


def damage(directory: Path, fault: Fault) -> DamagedByte:
    """Change one bit of a log or index file in a node's directory.

    The fault's random numbers choose the file, the byte and the bit. Raises Failure if there is no
    such file.
    """
    files = sorted(
        path
        for suffix in SUFFIXES
        for path in directory.glob(f"*-*[0-9]/*.{suffix}")
        if path.stat().st_size
    )
    if not files:
        raise Failure(f"there is nothing in {directory}")
    path = fault.pick(1, files)
    with path.open("r+b", buffering=0) as file:
        size = path.stat().st_size
        position = fault.pick(2, range(size))
        file.seek(position)
        was = file.read(1)[0]
        now = was ^ 1 << fault.pick(3, range(8))
        file.seek(position)
        file.write(bytes([now]))
    return DamagedByte(path, path.stat().st_ino, position, was, now)


def damage_a_replica(context: NodeContext, fault: Fault) -> None:
    """Damage a file of a random node, restore the byte, and wait until all replicas are in sync.

    The node is recorded as broken if they are not in sync after a minute.
    """
    cluster: FaultyCluster = context.cluster
    node_id = fault.pick(0, cluster.node_ids)
    is_before_a_start = fault.numbers[1] * 1_000 % 1 < 0.5

    def is_whole() -> bool:
        return not cluster.missing_replicas()

    with context.links_in_use:
        context.until(is_whole, IN_SYNC_WITHIN_S, "all replicas in sync")
        if is_before_a_start:
            context.sleep(LEVEL_S)
            cluster.kill(str(node_id))
        try:
            byte = damage(cluster.node(node_id).directory, fault)
        finally:
            if is_before_a_start:
                cluster.start(node_id)
        where = f"{byte.path.parent.name}/{byte.path.name}"
        context.hit(fault, f"node {node_id}, {where} at {byte.position}", LEVEL_S)
        byte.put_back()
        try:
            context.until(is_whole, REPAIRED_WITHIN_S, f"{where} whole and in sync", mends=True)
        except EffectNotSeen as why:
            context.broken.append(f"node {node_id} was damaged: {why}")
