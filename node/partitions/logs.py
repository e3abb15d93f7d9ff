"""The logs of this broker's replicas, with their configurations and directories.

The jobs on directories run in a thread of their own, one after the other (`run_jobs`). So a slow
disk blocks neither the event loop nor the syncs of other logs. The thread gets values and returns
values. Only the event loop changes the tables.
"""

import asyncio
import errno
import logging
import resource
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import NamedTuple

from ...coordinator.metadata.cluster_model import Topic
from ...coordinator.metadata.cluster_state import ClusterState
from ...runtime.fault_point import FaultPoint
from ...runtime.steps import run_to_end
from ...storage.compaction.log_cleaner import LogCleaner
from ...storage.corrupt_file import UNREADABLE
from ...storage.directory.log_directory import LogDirectory
from ...storage.disk_guard import OUT_OF_RESOURCES
from ...storage.log_config import LogConfig, RecordCheck
from ...storage.log_opening import LogOpening
from ...storage.partition_log import PartitionLog
from ...wire.errors import InvalidConfig, KafkaError, KafkaStorageError
from ...wire.identifiers import TopicPartition
from ..clock import Clock
from ..config.broker_config import BrokerConfig
from ..config.dynamic import topic_defaults_in_force
from .damaged_logs import DamagedLogs

logger = logging.getLogger(__name__)
SYNCED_AT_ONCE = 64


class DirectoryJob(NamedTuple):
    """A job on a partition's directory, which removes a log, opens a log, or does both."""

    key: TopicPartition
    is_removed: bool
    opening: LogOpening | None
    broken: PartitionLog | LogOpening | bool = False  # the result of DamagedLogs.take


class DirectoryOutcome(NamedTuple):
    """The result of a job that opens a log, with the log or an error."""

    key: TopicPartition
    topic_id: bytes
    opened: PartitionLog | KafkaError
    # A damaged log whose repair failed, or that could not be opened after its repair.
    again: PartitionLog | LogOpening | None = None


class Logs:
    """The logs of one broker's replicas."""

    def __init__(
        self,
        directory: LogDirectory,
        config: BrokerConfig,
        state: ClusterState,
        clock: Clock,
        fault_point: FaultPoint,
    ) -> None:
        self.directory = directory
        self._config = config
        self._state = state
        self._clock = clock
        self._configs: dict[str, LogConfig] = {}
        self.cleaner = LogCleaner(fault_point=fault_point)
        self.damaged = DamagedLogs(directory)

    # -- configurations

    def config_of(self, topic: Topic) -> LogConfig:
        """Return a topic's log configuration, from the configs of topic, broker and cluster."""
        config = self._configs.get(topic.name)
        if config is None:
            config = self._configs[topic.name] = self._read_config(topic)
        return config

    def configs_changed(self, names: Iterable[str] | None = None) -> None:
        """Drop the cached configurations of these topics, or of all topics."""
        if names is None:
            self._configs.clear()
        else:
            for name in names:
                self._configs.pop(name, None)

    def _read_config(self, topic: Topic) -> LogConfig:
        validation = RecordCheck[self._config.record_validation.upper()]
        defaults = topic_defaults_in_force(self._config, self._state.broker_configs)
        # Each part was validated before it was decided, but two parts may contradict each other
        # later, such as a changed default and a topic's own value. Metadata must be applied, so the
        # error is logged and the defaults of Kafka replace the conflicting defaults.
        for configs, below in ((topic.configs, defaults), (topic.configs, {})):
            try:
                return LogConfig.from_topic_configs(configs, below, record_validation=validation)
            except InvalidConfig as error:
                logger.error("the configuration of %s is inconsistent: %s", topic.name, error)
        return LogConfig(record_validation=validation)

    # -- on the loop

    def job(
        self,
        key: TopicPartition,
        topic: Topic | None,
        *,
        is_removed: bool,
        is_led_elsewhere: bool = False,
    ) -> DirectoryJob:
        """Return a job that removes a partition's log (`is_removed`), or opens it, or does both.

        A job that does both removes the log first. The log is opened if `topic` is given. A damaged
        log is repaired before it is opened, if another replica leads.
        """
        if is_removed:
            self.damaged.forget(key)
        if topic is None:
            return DirectoryJob(key, is_removed, None)
        broken = self.damaged.take(key, is_led_elsewhere=is_led_elsewhere)
        opening = self.directory.opening(
            *key, topic.topic_id, self.config_of(topic), self._clock.wall_ms()
        )
        return DirectoryJob(key, is_removed, opening, broken)

    def opened(self, log: PartitionLog, topic: Topic) -> None:
        """Start to serve a log."""
        log.config = self.config_of(topic)
        # A clock without advances is not asked for each batch. The clock is set here and not when
        # the file is opened, so that an advance in between is not missed.
        if self._state.clock_advances.steps:
            log.local.advanced_since_ms = self._clock.advanced_since_ms
        self.directory.opened(log)

    def remove_partition(self, key: TopicPartition) -> None:
        """Stop serving a log. A job removes its directory later (`run_jobs`)."""
        self.directory.remove_partition(*key)

    def metrics(self) -> dict[str, dict[str, str]]:
        """Return the logs that cannot be compacted, and the damaged logs, with reasons.

        A damaged log that is being copied is included until it is in sync.
        """
        logs = self.directory.logs.values()
        served = {log.directory.name: log.damage.words for log in logs if log.damage.words}
        copied = {f"{topic}-{n}": at for (topic, n), at in self.damaged.words.items()}
        return {
            "uncleanable": {log.directory.name: log.uncleanable for log in logs if log.uncleanable},
            "damaged": served | copied,
        }

    async def close(
        self, cleaner: Executor, syncs: Executor | None, directories: Executor, *, broker_epoch: int
    ) -> None:
        """Sync all logs and close the directory, or raise KafkaStorageError if a log fails.

        `syncs` syncs several logs at the same time, which share one commit of the file system. The
        running jobs of `cleaner` and `directories` must end first, so that no checkpoint is written
        twice.
        """
        loop, directory = asyncio.get_running_loop(), self.directory
        logs = [log for log in directory.logs.values() if not log.is_failed]
        await loop.run_in_executor(cleaner, directory.write_last)
        for start in range(0, len(logs), SYNCED_AT_ONCE):
            some = logs[start : start + SYNCED_AT_ONCE]
            syncing = (loop.run_in_executor(syncs, log.flushing.sync_last) for log in some)
            await asyncio.gather(*syncing, return_exceptions=True)  # `close` retries a failed sync
        await loop.run_in_executor(directories, directory.close, broker_epoch)
        for log in logs:
            log.local.disk.check()

    # -- in the thread

    def run_jobs(self, jobs: Iterable[DirectoryJob]) -> list[DirectoryOutcome]:
        """Run jobs on the directories of partitions, and return their outcomes. This blocks."""
        outcomes: list[DirectoryOutcome] = []
        for key, is_removed, opening, broken in jobs:
            if is_removed:
                self.directory.remove(*key)
            if opening is not None:
                again = None if isinstance(broken, bool) else broken
                ready = opening
                try:
                    if broken:
                        ready = again = self.damaged.repaired(opening, broken)
                    opened = self._open(ready)
                except KafkaStorageError as problem:
                    opened = problem
                outcomes.append(DirectoryOutcome(key, opening.topic_id, opened, again))
        logs = [each.opened for each in outcomes if isinstance(each.opened, PartitionLog)]
        try:
            self.directory.lower_offsets(logs)
        except KafkaStorageError as problem:
            return [
                each._replace(opened=problem) if isinstance(each.opened, PartitionLog) else each
                for each in outcomes
            ]
        return outcomes

    def _open(self, opening: LogOpening) -> PartitionLog:
        begun_ms = self._clock.monotonic_ms()
        log = run_to_end(self.directory.open(opening))
        if log.log_end_offset:
            logger.info(
                "%s-%d: the log with %d segments and offsets %d to %d was loaded in %d ms",
                log.topic,
                log.partition,
                len(log.segments),
                log.log_start_offset,
                log.log_end_offset,
                self._clock.monotonic_ms() - begun_ms,
            )
        return log

    def remove_unplaced(self, keys: Iterable[TopicPartition]) -> None:
        """Rename logs that are not assigned to this broker (see LogDirectory). This blocks."""
        for key in keys:
            try:
                self.directory.remove_unplaced(*key)
            except KafkaStorageError as problem:
                logger.error("the directory of %s-%d cannot be renamed: %s", *key, problem)


def is_damage(problem: KafkaError) -> bool:
    """Return whether a log could not be opened because of a damaged file."""
    return isinstance(problem.__cause__, UNREADABLE)


def is_temporary(problem: KafkaError) -> bool:
    """Return whether a log could not be opened for a temporary lack of space or descriptors."""
    cause = problem.__cause__
    return isinstance(cause, OSError) and cause.errno in OUT_OF_RESOURCES


def in_words(problem: KafkaError) -> str:
    """Return the reason why a log cannot be opened."""
    cause = problem.__cause__
    if isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE):
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return (
            f"there are too many open files ({cause.strerror}); this process may have {limit}, and "
            "needs one for each segment of each partition, and one for each connection. Raise the "
            "hard limit (ulimit -Hn, LimitNOFILE= of a service) and restart the node"
        )
    return str(problem)
