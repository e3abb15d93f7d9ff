"""The configuration of one partition's log, typed."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from .topic_configs import (
    INT_MAX,
    LONG_MAX,
    TOPIC_CONFIGS,
    ConfigType,
    TopicConfig,
    parse_topic_configs,
    validate_topic_configs,
)

__all__ = [
    "INT_MAX",
    "LONG_MAX",
    "TOPIC_CONFIGS",
    "ConfigType",
    "LogConfig",
    "TopicConfig",
    "parse_topic_configs",
    "validate_topic_configs",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """A topic's configs as the storage needs them; names and defaults are Kafka's.

    Sizes in bytes, times in milliseconds, -1 = no bound for the two retentions.
    `validates_every_record` (broker key oncelog.record.validation=full) makes the leader decode
    each batch before it takes it; on compacted topics that happens always.
    """

    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    preallocate: bool = False
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    file_delete_delay_ms: int = 60_000
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    is_compacted: bool = False
    is_deleted_by_retention: bool = True
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    min_cleanable_dirty_ratio: float = 0.5
    max_message_bytes: int = 1_048_588
    uses_append_time: bool = False
    timestamp_before_max_ms: int = LONG_MAX
    timestamp_after_max_ms: int = 3_600_000
    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
    validates_every_record: bool = False

    @classmethod
    def from_topic_configs(
        cls,
        configs: Mapping[str, str],
        broker_defaults: Mapping[str, str] | None = None,
        *,
        validates_every_record: bool = False,
    ) -> "LogConfig":
        """The config of a topic: what it sets, else the broker's defaults, else Kafka's.

        Both mappings are keyed by topic config names. Raises InvalidConfig.
        """
        merged = {**(broker_defaults or {}), **configs}
        return _parsed(tuple(sorted(merged.items())), validates_every_record)

    @property
    def needs_every_record(self) -> bool:
        """Whether the leader must look into the records of a batch before it appends it."""
        return self.is_compacted or self.validates_every_record


@lru_cache(maxsize=1024)
def _parsed(configs: tuple[tuple[str, str], ...], validates_every_record: bool) -> LogConfig:
    """Thousands of partitions share a few configurations."""
    values = parse_topic_configs(dict(configs))
    return LogConfig(
        segment_bytes=values["internal.segment.bytes"] or values["segment.bytes"],
        segment_ms=values["segment.ms"],
        segment_jitter_ms=values["segment.jitter.ms"],
        segment_index_bytes=values["segment.index.bytes"],
        index_interval_bytes=values["index.interval.bytes"],
        preallocate=values["preallocate"],
        flush_messages=values["flush.messages"],
        flush_ms=values["flush.ms"],
        file_delete_delay_ms=values["file.delete.delay.ms"],
        retention_bytes=values["retention.bytes"],
        retention_ms=values["retention.ms"],
        is_compacted="compact" in values["cleanup.policy"],
        is_deleted_by_retention="delete" in values["cleanup.policy"],
        delete_retention_ms=values["delete.retention.ms"],
        min_compaction_lag_ms=values["min.compaction.lag.ms"],
        max_compaction_lag_ms=values["max.compaction.lag.ms"],
        min_cleanable_dirty_ratio=values["min.cleanable.dirty.ratio"],
        max_message_bytes=values["max.message.bytes"],
        uses_append_time=values["message.timestamp.type"] == "LogAppendTime",
        timestamp_before_max_ms=values["message.timestamp.before.max.ms"],
        timestamp_after_max_ms=values["message.timestamp.after.max.ms"],
        min_insync_replicas=values["min.insync.replicas"],
        unclean_leader_election=values["unclean.leader.election.enable"],
        validates_every_record=validates_every_record,
    )
