"""The configuration of one partition's log, as typed values."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import lru_cache

from .topic_configs import LONG_MAX, parse_topic_configs


class RecordCheck(IntEnum):
    """The extent to which the leader checks a client's batch. Each level includes the previous.

    The first three are the values of oncelog.record.validation. BATCH checks the header, and the
    records only if the header is implausible. SKELETON checks the lengths of records, their offsets
    and timestamps. FULL checks every field. KEYS also requires a key for each record, on compacted
    topics.
    """

    BATCH = 0
    SKELETON = 1
    FULL = 2
    KEYS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """A topic's configs for the storage, with Kafka's names and defaults.

    Sizes are in bytes, times in milliseconds, and -1 stands for no limit in the two retentions.
    `record_validation` is the broker key oncelog.record.validation. Batches of compacted topics are
    checked further (RecordCheck.KEYS).
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
    record_validation: RecordCheck = RecordCheck.SKELETON
    record_check: RecordCheck = field(init=False, compare=False)

    def __post_init__(self) -> None:
        check = RecordCheck.KEYS if self.is_compacted else self.record_validation
        object.__setattr__(self, "record_check", check)

    @classmethod
    def from_topic_configs(
        cls,
        configs: Mapping[str, str],
        broker_defaults: Mapping[str, str] | None = None,
        *,
        record_validation: RecordCheck = RecordCheck.SKELETON,
    ) -> "LogConfig":
        """Return a topic's config from its own values, the broker's defaults, and Kafka's.

        Both mappings have topic config names. Raises InvalidConfig.
        """
        merged = {**(broker_defaults or {}), **configs}
        return _parsed(tuple(sorted(merged.items())), record_validation)


@lru_cache(maxsize=1024)
def _parsed(configs: tuple[tuple[str, str], ...], record_validation: RecordCheck) -> LogConfig:
    """Return the config of these values from a cache, since many partitions share a few configs."""
    values = parse_topic_configs(dict(configs))
    derived = {
        "segment_bytes": values["internal.segment.bytes"] or values["segment.bytes"],
        "is_compacted": "compact" in values["cleanup.policy"],
        "is_deleted_by_retention": "delete" in values["cleanup.policy"],
        "uses_append_time": values["message.timestamp.type"] == "LogAppendTime",
        "timestamp_before_max_ms": values["message.timestamp.before.max.ms"],
        "timestamp_after_max_ms": values["message.timestamp.after.max.ms"],
        "record_validation": record_validation,
    }
    names = [field.name for field in fields(LogConfig) if field.init]
    names = [name for name in names if name not in derived]
    return LogConfig(**derived, **{name: values[name.replace("_", ".")] for name in names})
