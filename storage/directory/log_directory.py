"""A broker's data directory, with its owner, its partitions, and the state after the last run.

    .lock                            held while a broker runs on the directory
    meta.properties                  cluster, node, directory id, and the boot of the machine
    <topic>-<partition>/             a partition's log
    <topic>-<partition>.<hex>-delete/    a deleted partition, still to be removed
    <topic>-<partition>.<hex>-stray/     a partition of an unknown topic, which is not served
    <topic>-<partition>.<hex>-damaged/   a damaged log, kept until its new copy is in sync
    four checkpoints                 high watermarks, recovery points, log starts, cleaned offsets
    .kafka_cleanshutdown             all logs were closed and synced; missing while a broker runs
    unrecovered-logs-checkpoint      logs not opened since an unclean shutdown

All names but "-damaged" and the last are Kafka's. Kafka opens every log at its start, so it needs
no file of unopened logs. This broker opens only the logs in its metadata, and may end before it has
the metadata of all logs.

The checkpoints may lag behind, since they are written periodically. An old high watermark is raised
again by the leader, an old recovery point costs reading, an old cleaned offset costs compaction,
and an old log start may bring back records that DeleteRecords removed just before all replicas
died. No checkpoint may be ahead of its log. Before a log is truncated, or its name is reused, its
offsets on the disk are lowered.
"""

import contextlib
import json
import logging
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from ...runtime.fault_point import FaultPoint, no_fault_point
from ...runtime.steps import Steps, run_to_end
from ...wire.errors import InconsistentTopicId, KafkaError, KafkaStorageError
from ...wire.identifiers import TopicPartition
from ..checkpoint import (
    CLEANED_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    MetaProperties,
    OffsetCheckpoint,
    PartitionMetadata,
    sync_directory,
    write_atomically,
)
from ..corrupt_file import CorruptFile
from ..disk_guard import disk_errors
from ..log_config import LogConfig
from ..log_opening import LogOpening
from ..partition_log import PartitionLog
from .lock import LOCK, close_to_others, is_open_to_others, make_directory, take_lock
from .partition_offsets import CHECKPOINTS, PartitionOffsets
from .removed_partitions import RemovedPartitions

logger = logging.getLogger(__name__)
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
UNRECOVERED = "unrecovered-logs-checkpoint"
AFTER_A_KILL, AFTER_A_POWER_CUT = 0, 1
RESTARTED = "+"  # between the id of the machine's boot and random digits
_PARTITION_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)")


class WrongCluster(CorruptFile):
    """The error of a directory that a broker of another cluster, or another node, has written."""


class LogDirectory:
    """The logs of one broker. Methods raise KafkaStorageError if the disk fails.

    The directory stays in use after such an error, because each checkpoint is rewritten as a whole,
    and a failed rename or removal is retried. A failed log does not affect others.

    `logs` are the open logs. `found` are the partitions that were in the directory at the start and
    are not opened yet. `clean_shutdown_epoch` is the broker epoch of the previous run if it ended
    cleanly, else None.
    """

    def __init__(
        self,
        path: Path,
        *,
        cluster_id: str,
        node_id: int,
        boot_id: str,
        new_directory_id: bytes,
        fault_point: FaultPoint = no_fault_point,
    ) -> None:
        """Lock the directory, check that it is this broker's, and list its partitions.

        `boot_id` is the machine's, and `meta.boot_id` is new whenever the logs are recovered as
        after a power failure. `new_directory_id` is 16 random bytes for a new directory. Raises
        DirectoryInUse, DirectoryOfAnother, WrongCluster, CorruptCheckpoint (for meta.properties).
        """
        self.path = path
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self._fault_point = fault_point
        self._removed = RemovedPartitions(path, fault_point)
        # Ids of topics that are deleted, or assigned to other brokers; see `remove_unplaced`.
        self.known_elsewhere: set[bytes] = set()
        with self._disk():
            make_directory(path)
            self._lock = take_lock(path)
        try:
            with self._disk():
                self.meta = self._check_meta(cluster_id, node_id, boot_id, new_directory_id)
                self.clean_shutdown_epoch = self._take_clean_shutdown_mark()
                self.offsets = PartitionOffsets(path, fault_point)
                self.found = self._scan()
                self._unrecovered = self._read_unrecovered()
        except BaseException:
            os.close(self._lock)
            raise

    # -- partitions --------------------------------------------------------------------------

    def opening(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig, now_ms: int
    ) -> LogOpening:
        """Return the parameters with which another thread opens a partition's log.

        Call `opening`, `opened` and `remove_partition` on the thread that serves the logs. The
        other methods for single partitions block, and need their own thread.
        """
        key = (topic, partition)
        was_here = key in self.found
        is_recovered = key not in self._unrecovered
        return LogOpening(
            self.path / f"{topic}-{partition}",
            topic,
            partition,
            topic_id,
            config,
            log_start_offset=self.offsets.of(LOG_START_OFFSETS, key) if was_here else 0,
            recovery_point=self.offsets.of(RECOVERY_POINTS, key) if was_here else 0,
            high_watermark=self.offsets.of(HIGH_WATERMARKS, key) if was_here else 0,
            cleaned_offset=self.offsets.of(CLEANED_OFFSETS, key) if was_here else 0,
            clean_shutdown=was_here and self.clean_shutdown_epoch is not None and is_recovered,
            machine_restarted=self.machine_restarted
            or self._unrecovered.get(key) == AFTER_A_POWER_CUT,
            now_ms=now_ms,
            fault_point=self._fault_point,
        )

    def open(self, opening: LogOpening) -> Steps[PartitionLog]:
        """Open a partition's log, and create or recover it first if needed (blocks).

        No other thread may use the log meanwhile. A directory of the same name with another topic
        id belongs to an older topic, and is renamed (see `remove_unplaced`).
        """
        topic, partition = opening.topic, opening.partition
        if (topic, partition) in self._removed.waiting:
            with self._disk():
                self._removed.delete(topic, partition)
        try:
            return (yield from opening.open())
        except InconsistentTopicId:
            self.remove_unplaced(topic, partition)
            return (yield from opening.as_new().open())

    def opened(self, log: PartitionLog) -> None:
        """Add an opened log to the logs that the broker serves."""
        key = (log.topic, log.partition)
        self.found.discard(key)
        self.logs[key] = log

    def remove_partition(self, topic: str, partition: int) -> None:
        """Stop serving a log. `remove` then renames its directory."""
        key = (topic, partition)
        log = self.logs.pop(key, None)
        if log is not None:
            log.local.retire()
        self.found.discard(key)
        self.offsets.remove_partition(key)

    def remove(self, topic: str, partition: int) -> None:
        """Rename a partition's directory for removal (blocks). `purge_deleted` frees the space.

        This method never raises, because `retry_renames` renames a directory that cannot be renamed
        now.
        """
        with contextlib.suppress(OSError):
            self._removed.delete(topic, partition)

    def remove_unplaced(self, topic: str, partition: int) -> None:
        """Rename a directory that the metadata does not assign to this broker (blocks).

        The directory will be deleted if its topic was deleted or moved. The directory of an unknown
        topic (the cluster's metadata may have been lost) is kept for the operator, as in Kafka. The
        kept directories of a damaged partition are treated in the same way. `found` and the offsets
        remain until `remove_partition`.
        """
        kept = self._removed.damaged.get((topic, partition), [])
        if all(self._topic_in(each) in self.known_elsewhere for each in kept):
            self._removed.release(topic, partition)
        else:
            self._removed.keep(topic, partition)
            with self._disk():
                self._removed.rename_strays()
            logger.warning(
                "The damaged logs of %s-%d belong to no topic of this cluster. They were renamed "
                "to %s-%d.<hex>-stray. Delete them if their records are not needed.",
                *(topic, partition) * 2,
            )
        path = self.path / f"{topic}-{partition}"
        topic_id = self._topic_in(path)
        if topic_id in self.known_elsewhere:
            return self.remove(topic, partition)
        with self._disk():
            stray = self._removed.rename(topic, partition, "stray")
        if stray is not None:
            logger.warning(
                "The directory %s belongs to no topic of this cluster%s. It was "
                "renamed to %s. Delete it if its records are not needed.",
                path,
                ", because its topic id was lost before the first sync" if topic_id is None else "",
                stray.name,
            )

    @property
    def set_aside_partitions(self) -> frozenset[TopicPartition]:
        """Return the partitions with kept directories of damaged logs."""
        return frozenset(self._removed.damaged)

    def set_aside(self, topic: str, partition: int) -> str:
        """Rename a damaged partition's directory, which is kept (blocks).

        Returns its new name, or "nothing" if there is no directory.
        """
        with self._disk():
            target = self._removed.set_aside(topic, partition)
        return "nothing" if target is None else target.name

    def release_set_aside(self, topic: str, partition: int) -> None:
        """Let `purge_deleted` remove the kept directories of a damaged partition."""
        self._removed.release(topic, partition)

    def keep_set_aside(self, topic: str, partition: int) -> None:
        """Keep the damaged directories of a partition until an operator deletes them."""
        self._removed.keep(topic, partition)

    def retry_renames(self) -> None:
        """Retry the failed renames of directories of deleted partitions.

        Call it in the thread that opens logs.
        """
        with self._disk():
            self._removed.retry()

    def purge_deleted(self, now_ms: int) -> int:
        """Remove deleted partitions, and removed segments after their delay (blocks).

        Returns the number of partitions. The method may run in an executor. A directory that cannot
        be removed does not stop the others, and the first error is raised at the end.
        """
        problem: KafkaError | None = None
        for log in list(self.logs.values()):
            if log.retention.has_deleted_files and not log.is_failed:
                try:
                    log.retention.purge_deleted_files(now_ms)
                except KafkaStorageError as error:
                    problem = problem or error
        with self._disk():
            count = self._removed.purge()
        if problem is not None:
            raise problem
        return count

    def note_recovered(self) -> None:
        """Write the boot id once all logs assigned to this broker are open and recovered.

        If the process is killed before this call, the next start again assumes a power failure. For
        logs that were never opened the assumption remains.
        """
        with self._disk():
            self._note_unrecovered()
            if self._written_boot_id != self.meta.boot_id:
                self._write_meta(self.meta)

    # -- checkpoints and the end ---------------------------------------------------------------

    def collect_offsets(self, name: str) -> Steps[dict[TopicPartition, int]]:
        """Collect the offsets for the checkpoint `name`, also of partitions not opened yet.

        Offsets may change between the steps.
        """
        return self.offsets.collect(name, self.logs)

    def write_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Write offsets to the checkpoint `name` (blocks), in the thread that opens logs."""
        with self._disk():
            self.offsets.write(name, offsets)

    def lower_offsets(self, logs: Iterable[PartitionLog]) -> None:
        """Lower checkpoints that are ahead of these logs, before the logs are served (blocks).

        A checkpoint may be ahead of a log that a power failure has shortened, or have an offset of
        a deleted topic. If a checkpoint is ahead, a restart would treat newer records as synced,
        committed, or deleted.
        """
        with self._disk():
            self.offsets.lower({(log.topic, log.partition): log for log in logs})

    def write_last(self) -> None:
        """Write the state that logs keep only in memory to their files, before a sync (blocks)."""
        for log in self.logs.values():
            with contextlib.suppress(KafkaStorageError):  # the log has failed; `close` reports it
                log.flushing.write_last()

    def close(self, broker_epoch: int) -> None:
        """Close and sync all logs, write the checkpoints, and release the lock (blocks).

        The shutdown is marked as clean if all logs were closed. A log that cannot be closed does
        not stop the others, and the first error is raised at the end.
        """
        problem: KafkaError | None = None
        try:
            for log in self.logs.values():
                try:
                    log.close()
                except KafkaStorageError as error:
                    problem = problem or error
            for name in CHECKPOINTS:
                self.write_offsets(name, run_to_end(self.collect_offsets(name)))
            with self._disk():
                self._note_unrecovered()
            if problem is not None:
                raise problem
            if not any(log.is_failed for log in self.logs.values()):
                mark = json.dumps({"version": 0, "brokerEpoch": broker_epoch})
                with self._disk():
                    write_atomically(
                        self.path / CLEAN_SHUTDOWN, mark.encode(), fault_point=self._fault_point
                    )
        finally:
            self.release()

    def release(self) -> None:
        """Release the lock without closing the logs, so that the next start recovers them."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # -- parts -------------------------------------------------------------------------------

    def _check_meta(
        self, cluster_id: str, node_id: int, boot_id: str, new_directory_id: bytes
    ) -> MetaProperties:
        """Check that the directory is of this cluster and node, and return its properties.

        A new directory gets a file with the properties. Other users lose their access to the
        directory. Raises WrongCluster for the directory of another cluster or node.
        """
        meta = MetaProperties.read(self.path)
        if meta is not None and (meta.cluster_id, meta.node_id) != (cluster_id, node_id):
            raise WrongCluster(
                self.path,
                f"it belongs to node {meta.node_id} of cluster {meta.cluster_id}, this is node "
                f"{node_id} of cluster {cluster_id}",
                "Give this node the directory that is its own, or an empty one",
            )
        is_ours = meta is not None or os.listdir(self.path) == [LOCK]
        # A directory with other files, but without properties, may belong to another program.
        if is_ours and is_open_to_others(self.path):
            is_closed = close_to_others(self.path)
            now = (
                "Now only its owner has access." if is_closed else "Their access cannot be removed."
            )
            logger.warning("Other users had access to %s. %s", self.path, now)
        is_new = meta is None
        if meta is None:
            meta = MetaProperties(
                cluster_id=cluster_id,
                node_id=node_id,
                directory_id=new_directory_id,
                boot_id=boot_id,
            )
        self._written_boot_id = meta.boot_id
        self.machine_restarted = meta.boot_id.partition(RESTARTED)[0] != boot_id
        if self.machine_restarted:
            # A damaged byte of the file looks like a restart of the machine, and the recovery may
            # remove records. Then the controller, too, must not take the boot for the same one.
            meta = replace(meta, boot_id=f"{boot_id}{RESTARTED}{new_directory_id.hex()}")
        if is_new:
            self._write_meta(meta)  # from here on a new directory belongs to this broker
        return meta

    def _write_meta(self, meta: MetaProperties) -> None:
        meta.write(self.path, self._fault_point)
        self._written_boot_id = meta.boot_id

    def _take_clean_shutdown_mark(self) -> int | None:
        """Remove the mark of a clean shutdown, and return its broker epoch, or None without a mark.

        An empty mark of an old Kafka has epoch -1. Only `close` writes the mark again.
        """
        mark = self.path / CLEAN_SHUTDOWN
        try:
            content = mark.read_bytes()
        except FileNotFoundError:
            return None
        mark.unlink()
        sync_directory(self.path)
        try:
            return int(json.loads(content)["brokerEpoch"])
        except (ValueError, KeyError, TypeError):
            return -1  # Kafka before 3.8 wrote an empty file

    def _scan(self) -> set[TopicPartition]:
        return {
            (match[1], int(match[2]))
            for entry in os.scandir(self.path)
            if entry.is_dir()
            and not self._removed.found(Path(entry.path))
            and (match := _PARTITION_DIRECTORY.fullmatch(entry.name))
        }

    def _topic_in(self, path: Path) -> bytes | None:
        """Return the topic id in a partition's directory, or None if it cannot be read."""
        with contextlib.suppress(CorruptCheckpoint), self._disk():
            meta = PartitionMetadata.read(path)
            return None if meta is None else meta.topic_id
        return None

    def _disk(self) -> AbstractContextManager[None]:
        return disk_errors(f"The data directory {self.path}")

    def _checkpoint(self, name: str) -> OffsetCheckpoint:
        return OffsetCheckpoint(self.path / name, self._fault_point)

    def _read_unrecovered(self) -> dict[TopicPartition, int]:
        try:
            return self._checkpoint(UNRECOVERED).read()
        except CorruptCheckpoint:
            return dict.fromkeys(self.found, AFTER_A_POWER_CUT)

    def _note_unrecovered(self) -> None:
        """Write the partitions that were not opened since an unclean shutdown to a checkpoint.

        The next start recovers them, even after a clean shutdown.
        """
        worst = AFTER_A_POWER_CUT if self.machine_restarted else AFTER_A_KILL
        left = {
            key: max(worst, self._unrecovered.get(key, AFTER_A_KILL))
            for key in sorted(self.found)
            if self.clean_shutdown_epoch is None or key in self._unrecovered
        }
        if left != self._unrecovered:
            self._checkpoint(UNRECOVERED).write(left)
            self._unrecovered = left
