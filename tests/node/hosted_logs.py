"""Partitions on a disk, and what looks after them, without a broker around."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from oncelog.node.partitions.hosted_partition import HostedPartition
from oncelog.storage.directory.log_directory import LogDirectory
from oncelog.storage.log_config import LogConfig
from oncelog.storage.partition_log import PartitionLog

TOPIC_ID = bytes(range(16))


def open_hosted(
    directory: Path, index: int = 0, *, now_ms: int = 1, **config: Any
) -> HostedPartition:
    """Partition `index` of the topic "t"; config: of its log."""
    log = PartitionLog.open(
        directory / f"t-{index}",
        topic="t",
        partition=index,
        topic_id=TOPIC_ID,
        config=LogConfig(**config),
        now_ms=now_ms,
    )
    return HostedPartition("t", index, TOPIC_ID, log)


def data_directory(tmp_path: Path) -> LogDirectory:
    """A broker's, with nothing in it."""
    return LogDirectory(
        tmp_path / "data", cluster_id="c", node_id=1, boot_id="b", new_directory_id=bytes(16)
    )


def maintenance_intervals(**changed_ms: int) -> Any:
    """What `LogMaintenance` reads of a broker's config: nothing is due soon but what is given."""
    names = (
        "replica_high_watermark_checkpoint_interval_ms",
        "log_flush_offset_checkpoint_interval_ms",
        "log_flush_start_offset_checkpoint_interval_ms",
        "log_retention_check_interval_ms",
    )
    return SimpleNamespace(**(dict.fromkeys(names, 60_000) | changed_ms))
