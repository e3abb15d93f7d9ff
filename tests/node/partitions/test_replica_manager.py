"""Test the table of the partitions that a broker hosts."""

from types import SimpleNamespace
from typing import Any

from oncelog.node.clock import SystemClock
from oncelog.node.partitions.hosted_partition import HostedPartition
from oncelog.node.partitions.replica_manager import ReplicaManager
from oncelog.storage.segments.recent_writes import NO_RECENT_WRITES

from ..counted_lines import Lines

PARTITIONS = 500
TOPIC_ID = bytes(range(16))


class Segments:
    """The segments of a log, which count how often their cached reads are dropped."""

    recent: Any = None
    dropped = 0

    def drop_cached_reads(self) -> None:
        self.dropped += 1


async def test_deleted_topic_of_very_many_partitions_is_hidden_immediately() -> None:
    """The logs are released in later steps, since 10,000 in one step would take 80 ms."""
    replicas = ReplicaManager(clock=SystemClock(), partition_exists=lambda topic, index: False)
    for index in range(PARTITIONS):
        disk = SimpleNamespace(on_failure=None)
        damage = SimpleNamespace(on_found=None)
        local = SimpleNamespace(disk=disk)
        aborted = SimpleNamespace(on_damaged=None)
        log: Any = SimpleNamespace(
            local=local, segments=Segments(), damage=damage, aborted_transactions=aborted
        )
        replicas.add(HostedPartition("t", index, TOPIC_ID, log))
    replicas.written.clear()
    lines = Lines()
    with lines.counted():
        gone = replicas.remove_topic(TOPIC_ID)
    assert lines.count < 6 * PARTITIONS
    assert [hosted.index for hosted in gone] == list(range(PARTITIONS))
    assert not len(replicas) and not replicas.remove_topic(TOPIC_ID)
    assert replicas.get("t", 7) is replicas.get_by_id((TOPIC_ID, 7)) is None
    assert not any(hosted.log.segments.dropped for hosted in gone)  # type: ignore[attr-defined]
    for hosted in gone:
        replicas.let_go(hosted)
        assert hosted.log.segments.recent is NO_RECENT_WRITES
    assert replicas.written == set(gone)
