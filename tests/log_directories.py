"""Open or delete the log of a partition in one call. A broker does that in steps in a thread."""

from oncelog.runtime.steps import run_to_end
from oncelog.storage.directory.log_directory import LogDirectory
from oncelog.storage.log_config import LogConfig
from oncelog.storage.partition_log import PartitionLog


def open_partition(
    directory: LogDirectory,
    topic: str,
    partition: int,
    topic_id: bytes,
    config: LogConfig,
    now_ms: int,
) -> PartitionLog:
    """Open the log of a partition, and register it in the directory as open."""
    opening = directory.opening(topic, partition, topic_id, config, now_ms)
    log = run_to_end(directory.open(opening))
    directory.lower_offsets([log])
    directory.opened(log)
    return log


def delete_partition(directory: LogDirectory, topic: str, partition: int) -> None:
    """Close the log of a partition, and remove its files."""
    directory.remove_partition(topic, partition)
    directory.remove(topic, partition)
