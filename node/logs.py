"""Opens the logs of this broker with the configuration their topics have now."""

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..coordinator.cluster_model import Topic
from ..coordinator.cluster_state import ClusterState
from ..storage.log_cleaner import LogCleaner
from ..storage.log_config import LogConfig
from ..storage.log_directory import LogDirectory
from ..storage.partition_log import PartitionLog
from ..wire.errors import InvalidConfig, KafkaStorageError
from .clock import Clock
from .config import BrokerConfig
from .handlers.config_entries import topic_defaults_in_force

logger = logging.getLogger(__name__)


class KnownLog(NamedTuple):
    """A log that the metadata places here."""

    topic: str
    index: int
    topic_id: bytes
    config: LogConfig


class Logs:
    """What the metadata says of a topic, and what lies on the disk, brought together."""

    def __init__(
        self,
        directory: LogDirectory,
        config: BrokerConfig,
        state: ClusterState,
        clock: Clock,
        fault_point: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._config = config
        self._state = state
        self._clock = clock
        self._ahead: dict[tuple[str, int], PartitionLog] = {}
        self.cleaner = LogCleaner(directory.path, fault_point=fault_point)

    def config_of(self, topic: Topic) -> LogConfig:
        """The log configuration of a topic: its own, this broker's, the cluster's defaults."""
        full = self._config.record_validation == "full"
        defaults = topic_defaults_in_force(self._config, self._state.broker_configs)
        # Each part was judged before it was decided, but two parts may clash later on (a changed
        # default against a topic's own value). Metadata must be applied, so the nearest that
        # makes sense is taken, and said.
        for configs, below in ((topic.configs, defaults), (topic.configs, {})):
            try:
                return LogConfig.from_topic_configs(configs, below, validates_every_record=full)
            except InvalidConfig as error:
                logger.error("the configuration of %s does not fit: %s", topic.name, error)
        return LogConfig(validates_every_record=full)

    def known_to_be_held(self, node_id: int) -> list[KnownLog]:
        """What the metadata places on a node now, as values that do not change any more."""
        known = []
        for name, index in self._state.partitions_held_by(node_id):
            topic = self._state.topics[name]
            known.append(KnownLog(name, index, topic.topic_id, self.config_of(topic)))
        return known

    def open_ahead(self, known: Iterable[KnownLog]) -> None:
        """Recover logs before they are needed (blocks); in an executor, while nobody else opens."""
        for topic, index, topic_id, config in known:
            try:
                self._ahead[topic, index] = self._directory.open_partition(
                    topic, index, topic_id, config, self._clock.wall_ms()
                )
            except KafkaStorageError:
                logger.exception("%s-%d cannot be opened", topic, index)
        self._directory.note_recovered()

    def drop_unused(self) -> None:
        """Set aside what was opened ahead and belongs to a topic that has gone meanwhile."""
        unused, self._ahead = self._ahead, {}
        for topic, index in unused:
            self.delete_partition(topic, index)

    def open_partition(self, topic: Topic, index: int) -> PartitionLog:
        """The log, created if it is new. Raises KafkaStorageError."""
        log = self._ahead.pop((topic.name, index), None)
        if log is None or log.topic_id != topic.topic_id:
            log = self._directory.open_partition(
                topic.name, index, topic.topic_id, self.config_of(topic), self._clock.wall_ms()
            )
        log.config = self.config_of(topic)
        return log

    def delete_partition(self, topic: str, index: int) -> None:
        """Set the files aside for removal."""
        self._directory.delete_partition(topic, index)
        self.cleaner.forget(topic, index)
