"""Hosted partitions with real logs, and their maintenance, without a broker."""

from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from oncelog.node.partitions.hosted_partition import HostedPartition
from oncelog.node.partitions.log_maintenance import LogMaintenance
from oncelog.node.partitions.ports import FailedLogs
from oncelog.node.partitions.replica_manager import ReplicaManager
from oncelog.storage.directory.log_directory import LogDirectory
from oncelog.storage.log_config import LogConfig
from oncelog.storage.partition_log import PartitionLog

TOPIC_ID = bytes(range(16))


def open_hosted(
    directory: Path, index: int = 0, *, topic: str = "t", now_ms: int = 1, **config: Any
) -> HostedPartition:
    """Open the log of a partition, and return a hosted partition with this log.

    `config` has fields of LogConfig.
    """
    log = PartitionLog.open(
        directory / f"{topic}-{index}",
        topic=topic,
        partition=index,
        topic_id=TOPIC_ID,
        config=LogConfig(**config),
        now_ms=now_ms,
    )
    return HostedPartition(topic, index, TOPIC_ID, log)


def data_directory(
    tmp_path: Path, *, boot_id: str = "b", fault_point: Callable[[str], None] = lambda _: None
) -> LogDirectory:
    """Return the data directory of a broker, with the files that it has from an earlier use."""
    return LogDirectory(
        tmp_path / "data",
        cluster_id="c",
        node_id=1,
        boot_id=boot_id,
        new_directory_id=bytes(16),
        fault_point=fault_point,
    )


@asynccontextmanager
async def maintaining(
    replicas: ReplicaManager, directory: LogDirectory, **changed_ms: int
) -> AsyncIterator[LogMaintenance]:
    """Run the log maintenance while the context is open, and then release the directory.

    `changed_ms` sets intervals by their config name. All other intervals are a minute.
    """
    names = (
        "replica_high_watermark_checkpoint_interval_ms",
        "log_flush_offset_checkpoint_interval_ms",
        "log_flush_start_offset_checkpoint_interval_ms",
        "log_retention_check_interval_ms",
    )
    config: Any = SimpleNamespace(**(dict.fromkeys(names, 60_000) | changed_ms))
    with ThreadPoolExecutor(1) as executor:
        maintenance = LogMaintenance(replicas, directory, config, executor, executor)
        yield maintenance
        await maintenance.stop()
    directory.release()


class RecordedFailures(FailedLogs):
    """The partitions with a reported failure, and those with a withdrawn report."""

    def __init__(self) -> None:
        self.reported: list[tuple[bytes, int]] = []
        self.withdrawn: list[tuple[bytes, int]] = []

    def report(self, topic_id: bytes, index: int) -> None:
        self.reported.append((topic_id, index))

    def withdraw(self, topic_id: bytes, index: int) -> None:
        self.withdrawn.append((topic_id, index))
