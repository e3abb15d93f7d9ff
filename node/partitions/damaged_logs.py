"""The damaged logs of one broker, and their repair.

A log is repaired while another replica leads. An opened log whose batches are not known to be
damaged is first read completely. If all its batches are intact, its indexes are rebuilt. Otherwise
its directory is renamed, and an empty log replaces it and follows the leader. The renamed directory
is deleted when the new log is in sync. If the new log is elected before it is in sync, the renamed
directory is kept for the operator.
"""

import logging
from dataclasses import replace

from ...storage.directory.log_directory import LogDirectory
from ...storage.disk_guard import disk_errors
from ...storage.log_opening import LogOpening
from ...storage.partition_log import PartitionLog
from ...storage.segments.damage import find_damage, remove_derived_files
from ...wire.identifiers import TopicPartition

logger = logging.getLogger(__name__)


class DamagedLogs:
    """The damaged logs of one broker.

    `repaired` blocks, and runs in the thread that opens logs.
    """

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        # Descriptions of the damage, until the replica is in sync again.
        self.words = dict.fromkeys(directory.set_aside_partitions, "it is copied from its leader")
        self.unusable: set[TopicPartition] = set()  # logs that cannot be opened
        # Logs that are no longer served, and wait for their repair.
        self.stopped_logs: dict[TopicPartition, PartitionLog] = {}
        # Openings of repaired logs that have failed.
        self._unopened: dict[TopicPartition, LogOpening] = {}

    def stopped(self, key: TopicPartition, log: PartitionLog) -> None:
        """Keep a damaged log that is no longer served until it is repaired."""
        self.words[key] = log.damage.words or str(log.disk_failure)
        self.stopped_logs[key] = log

    def cannot_open(self, key: TopicPartition, words: str) -> None:
        self.words[key] = words
        self.unusable.add(key)

    def take(
        self, key: TopicPartition, *, is_led_elsewhere: bool
    ) -> PartitionLog | LogOpening | bool:
        """Return a log to repair and forget it, or return False if there is none.

        Returns the stopped log, or True for a log that could not be opened. For a log that was
        repaired but could not be opened afterwards, returns its opening. Except for the last case,
        a log is repaired only while another replica leads, because the repair may empty the log.
        """
        if (unopened := self._unopened.pop(key, None)) is not None:
            return unopened
        if not is_led_elsewhere:
            return False
        broken = self.stopped_logs.pop(key, None)
        if broken is not None:
            return broken
        if key not in self.unusable:
            return False
        self.unusable.discard(key)
        return True

    def try_again(self, key: TopicPartition, again: PartitionLog | LogOpening) -> None:
        """Keep a log for a further try, since its repair or the opening afterwards has failed.

        again: the damaged log, or the opening of the repaired log. The directory alone shows
        neither the damage nor the log's offsets. The caller keeps no log whose opening failed
        because of damage.
        """
        if isinstance(again, PartitionLog):
            self.stopped_logs[key] = again
        else:
            self._unopened[key] = again

    def give_back(self, key: TopicPartition) -> PartitionLog | None:
        """Return the stopped log if there is one, to be served again without a repair."""
        return self.stopped_logs.pop(key, None)

    def forget(self, key: TopicPartition) -> None:
        """Forget a partition that this broker no longer hosts, and delete its damaged log."""
        self.words.pop(key, None)
        self._directory.release_set_aside(*key)
        self.unusable.discard(key)
        self.stopped_logs.pop(key, None)
        self._unopened.pop(key, None)

    def in_sync(self, key: TopicPartition, log: PartitionLog) -> None:
        """Note that a log is in sync. If it was repaired, delete the damaged log's directory."""
        if key in self.words and not log.damage.words:
            del self.words[key]
            self._directory.release_set_aside(*key)
            logger.warning("%s-%d is repaired and in sync", *key)

    def leads_alone(self, key: TopicPartition) -> None:
        """Keep the directory of the damaged log for the operator if the new log leads out of sync.

        After an unclean election only that directory may have some of the records. Replicas that
        are in sync with the new log do not have them either.
        """
        if key in self.words and key in self._directory.set_aside_partitions:
            del self.words[key]
            self._directory.keep_set_aside(*key)
            logger.error(
                "%s-%d leads alone, because this replica became the whole ISR before it was in "
                "sync. It may lack records of its damaged log, which is kept as "
                "%s-%d.<hex>-stray. Delete it if its records are not needed.",
                *key,
                *key,
            )

    def repaired(self, opening: LogOpening, broken: PartitionLog | LogOpening | bool) -> LogOpening:
        """Repair a damaged log, and return how to open it. This blocks.

        broken: the result of `take`. Raises KafkaStorageError.
        """
        if isinstance(broken, LogOpening):
            return replace(broken, config=opening.config, now_ms=opening.now_ms)
        name = opening.directory.name
        problem = "it cannot be opened"
        if isinstance(broken, PartitionLog) and broken.damage.is_in_batches:
            problem = broken.damage.words
        elif isinstance(broken, PartitionLog):
            with disk_errors(f"The damaged log {name}"):
                problem = find_damage(broken.segments, broken.leader_epochs, broken.log_end_offset)
                if not problem:
                    remove_derived_files(opening.directory)
            if not problem:
                logger.warning(
                    "%s: all batches are intact, and the other files are rebuilt from them", name
                )
                return replace(
                    opening,
                    log_start_offset=broken.log_start_offset,
                    recovery_point=broken.flushing.recovery_point,
                    high_watermark=broken.high_watermark,
                    cleaned_offset=broken.local.cleaned_offset,
                    clean_shutdown=False,
                )
        kept = self._directory.set_aside(opening.topic, opening.partition)
        logger.error(
            "%s is copied again from its leader, and the damaged log is kept as %s: %s",
            name,
            kept,
            problem,
        )
        return opening.as_new()
