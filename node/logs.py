"""Opens the logs of this broker with the configuration their topics have now."""

import logging
from collections.abc import Callable

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

    def open_ahead(self, topic: Topic, index: int) -> None:
        """Recover a log before it is needed; safe in an executor while nothing else opens logs."""
        try:
            self._ahead[topic.name, index] = self._open(topic, index)
        except KafkaStorageError:
            logger.exception("%s-%d cannot be opened", topic.name, index)

    def open_partition(self, topic: Topic, index: int) -> PartitionLog:
        """The log, created if it is new. Raises KafkaStorageError."""
        log = self._ahead.pop((topic.name, index), None)
        if log is None or log.topic_id != topic.topic_id:
            log = self._open(topic, index)
        log.config = self.config_of(topic)
        return log

    def delete_partition(self, topic: str, index: int) -> None:
        """Set the files aside for removal."""
        self._directory.delete_partition(topic, index)
        self.cleaner.forget(topic, index)

    def _open(self, topic: Topic, index: int) -> PartitionLog:
        return self._directory.open_partition(
            topic.name, index, topic.topic_id, self.config_of(topic), self._clock.wall_ms()
        )
