"""The configs of a topic, with Kafka's names, types, defaults, and bounds.

This table is used wherever topic configs are needed. CreateTopics and AlterConfigs validate against
the table, DescribeConfigs lists it, and LogConfig is filled from it. The rows and the error
messages are those of Apache Kafka 4.4 (LogConfig's ConfigDef).

The row of a config that this broker does not support has the reason in `not_served`, and accepts
only the default value. Only local.retention.* is accepted without an effect, as in Kafka without
tiered storage.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from typing import Any

from ..wire.errors import InvalidConfig, KafkaError

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class ConfigType(IntEnum):
    """The type codes of DescribeConfigs v3 (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One config of a topic.

    `default` is text, as in the protocol. `broker_name` is the broker key that gives the default of
    topics without the config, or None.
    """

    name: str
    type: ConfigType
    default: str
    check: Callable[[Any], str | None]  # returns the error in a parsed value, or None
    broker_name: str | None
    doc: str
    not_served: str | None = None
    is_internal: bool = False  # accepted, but not listed by DescribeConfigs

    def parse(self, text: str | None) -> Any:
        """Return the typed value, or raise InvalidConfig with Kafka's message if it is invalid."""
        if text is None:
            raise InvalidConfig(f"Null value not supported for topic configs: {self.name}")
        try:
            value = _PARSERS[self.type](text.strip())
        except ValueError as problem:
            raise self._invalid(text, str(problem)) from None
        if complaint := self.check(value):
            raise self._invalid(text, complaint)
        if self.not_served and value != _PARSERS[self.type](self.default):
            raise self._invalid(text, self.not_served)
        return value

    def _invalid(self, text: str, complaint: str) -> KafkaError:
        return InvalidConfig(f"Invalid value {text} for configuration {self.name}: {complaint}")


def parse_topic_configs(configs: Mapping[str, str | None]) -> dict[str, Any]:
    """Return all configs of a topic as typed values, with defaults for those not set.

    Raises InvalidConfig for an unknown name, a value out of bounds, or two contradictory values.
    """
    for name in configs:
        if name not in TOPIC_CONFIGS:
            raise InvalidConfig(f"Unknown topic config name: {name}")
    values = {
        name: row.parse(configs.get(name, row.default)) for name, row in TOPIC_CONFIGS.items()
    }
    shortest, longest = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if shortest > longest:
        raise InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > "
            f"max.compaction.lag.ms ({longest})"
        )
    return values


def text_as_parsed(config_type: ConfigType, text: str) -> str:
    """Return a value in the form in which Kafka's DescribeConfigs prints it.

    A value that cannot be parsed is returned unchanged.
    """
    try:
        value = _PARSERS[config_type](text.strip())
    except ValueError:
        return text
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _java_double(value)
    return ",".join(value) if config_type is ConfigType.LIST else str(value)


def _java_double(value: float) -> str:
    """Return a number in the format of Java's Double.toString."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = f"{Decimal(repr(value)).normalize():E}".partition("E")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def _whole_number(bits: int, name: str) -> Callable[[str], int]:
    def parse(text: str) -> int:
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdigit()):
            raise ValueError(f"Not a number of type {name}")
        value = int(text) if len(digits) <= 20 else 1 << bits
        if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise ValueError(f"Not a number of type {name}")
        return value

    return parse


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("Expected value to be either true or false")
    return text.lower() == "true"


def _double(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("Not a number of type DOUBLE") from None


def _list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")] if text else []


_PARSERS: dict[ConfigType, Callable[[str], Any]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: str,
    ConfigType.PASSWORD: str,
    ConfigType.SHORT: _whole_number(16, "SHORT"),
    ConfigType.INT: _whole_number(32, "INT"),
    ConfigType.LONG: _whole_number(64, "LONG"),
    ConfigType.DOUBLE: _double,
    ConfigType.LIST: _list,
}


def _anything(value: Any) -> str | None:
    return None


def _at_least(least: float) -> Callable[[Any], str | None]:
    return lambda value: None if value >= least else f"Value must be at least {least}"


def _between(least: float, most: float) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        if value > most:
            return f"Value must be no more than {most}"
        return None if value >= least else f"Value must be at least {least}"

    return check


def _none_or_at_least_14(value: int) -> str | None:
    return None if value == 0 or value >= 14 else "Value must be at least 14"


def _gzip_level(value: int) -> str | None:
    level = value == -1 or 1 <= value <= 9
    return None if level else "Value must be between 1 and 9 or equal to -1"


def _one_of(*allowed: str) -> Callable[[Any], str | None]:
    listed = ", ".join(allowed)
    return lambda value: None if value in allowed else f"String must be one of: {listed}"


def _throttled_replicas(value: list[str]) -> str | None:
    if value == ["*"] or all(map(_THROTTLED.fullmatch, value)):
        return None
    return (
        "It must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


def _cleanup_policy(value: list[str]) -> str | None:
    unknown = [item for item in value if item not in ("compact", "delete")]
    if unknown or len(set(value)) != len(value):
        return "String must be one of: compact, delete"
    return None


_B, _S, _I = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_L, _D, _LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST
_AS_SENT = "batches are stored as the producer compressed them"
_NO_TIERS = "there is no tiered storage"
_THROTTLED = re.compile(r"([0-9]{1,10}:[0-9]{1,10})?")
_PRODUCER_OR_NONE = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

# The fields of a TopicConfig.
_ROWS: list[tuple[Any, ...]] = [
    ("cleanup.policy", _LIST, "delete", _cleanup_policy, "log.cleanup.policy",
     '"delete" removes segments by retention, "compact" keeps the last record of each key.'),
    ("compression.gzip.level", _I, "-1", _gzip_level, "compression.gzip.level",
     "The level if compression.type is gzip.", _AS_SENT),
    ("compression.lz4.level", _I, "9", _between(1, 17), "compression.lz4.level",
     "The level if compression.type is lz4.", _AS_SENT),
    ("compression.type", _S, "producer", _one_of(*_PRODUCER_OR_NONE), "compression.type",
     "The codec of stored batches. With producer, they keep the producer's codec.", _AS_SENT),
    ("compression.zstd.level", _I, "3", _between(-131072, 22), "compression.zstd.level",
     "The level if compression.type is zstd.", _AS_SENT),
    ("delete.retention.ms", _L, "86400000", _at_least(0), "log.cleaner.delete.retention.ms",
     "How long a compacted topic keeps tombstones and transaction markers."),
    ("errors.deadletterqueue.group.enable", _B, "false", _anything, None,
     "Whether share groups may use the topic as their dead letter queue.",
     "share groups are not served"),
    ("file.delete.delay.ms", _L, "60000", _at_least(0), "log.segment.delete.delay.ms",
     "The time between removing a segment from the log and deleting its files."),
    ("flush.messages", _L, str(LONG_MAX), _at_least(1), "log.flush.interval.messages",
     "The number of records after which the log is flushed to disk. With 1, each batch is "
     "flushed before it is acknowledged."),
    ("flush.ms", _L, str(LONG_MAX), _at_least(0), "log.flush.interval.ms",
     "The maximum time before a record is flushed to disk."),
    ("follower.replication.throttled.replicas", _LIST, "", _throttled_replicas, None,
     "The followers with throttled replication, as PARTITION:BROKER,..., or * for all."),
    ("index.interval.bytes", _I, "4096", _at_least(0), "log.index.interval.bytes",
     "The minimum bytes between two index entries."),
    ("leader.replication.throttled.replicas", _LIST, "", _throttled_replicas, None,
     "The leaders with throttled replication, as PARTITION:BROKER,..., or * for all."),
    ("local.retention.bytes", _L, "-2", _at_least(-2), "log.local.retention.bytes",
     "No effect without tiered storage, like in Kafka."),
    ("local.retention.ms", _L, "-2", _at_least(-2), "log.local.retention.ms",
     "No effect without tiered storage, like in Kafka."),
    ("max.compaction.lag.ms", _L, str(LONG_MAX), _at_least(1), "log.cleaner.max.compaction.lag.ms",
     "The maximum time before a record is compacted."),
    ("max.decompressed.message.bytes", _I, "2147483639", _at_least(0),
     "max.decompressed.message.bytes", "The maximum size of a decompressed batch.",
     "a batch that unfolds to more than 64 MiB is refused, whatever is set"),
    ("max.message.bytes", _I, "1048588", _at_least(0), "message.max.bytes",
     "The maximum size of a batch, after compression by the producer."),
    ("message.timestamp.after.max.ms", _L, "3600000", _at_least(0),
     "log.message.timestamp.after.max.ms",
     "The maximum time that a record's timestamp may be later than the broker's clock (KIP-937)."),
    ("message.timestamp.before.max.ms", _L, str(LONG_MAX), _at_least(0),
     "log.message.timestamp.before.max.ms",
     "The maximum time that a record's timestamp may be earlier than the broker's clock "
     "(KIP-937)."),
    ("message.timestamp.type", _S, "CreateTime", _one_of("CreateTime", "LogAppendTime"),
     "log.message.timestamp.type",
     "Whether a record's timestamp is set by the producer (CreateTime) or by the broker "
     "(LogAppendTime)."),
    ("min.cleanable.dirty.ratio", _D, "0.5", _between(0, 1), "log.cleaner.min.cleanable.ratio",
     "The minimum ratio of uncompacted bytes at which a log is compacted."),
    ("min.compaction.lag.ms", _L, "0", _at_least(0), "log.cleaner.min.compaction.lag.ms",
     "The minimum time before a record is compacted."),
    ("min.insync.replicas", _I, "1", _at_least(1), "min.insync.replicas",
     "The minimum number of in-sync replicas for a produce request with acks=all."),
    ("preallocate", _B, "false", _anything, "log.preallocate",
     "Whether the whole file of a new segment is preallocated on disk."),
    ("remote.copy.lag.bytes", _L, "-1", _at_least(-2), "log.remote.copy.lag.bytes",
     "The maximum bytes that tiered storage may be behind.", _NO_TIERS),
    ("remote.copy.lag.ms", _L, "0", _at_least(-2), "log.remote.copy.lag.ms",
     "The maximum time that tiered storage may be behind.", _NO_TIERS),
    ("remote.log.copy.disable", _B, "false", _anything, None,
     "Whether copying to tiered storage is stopped.", _NO_TIERS),
    ("remote.log.delete.on.disable", _B, "false", _anything, None,
     "Whether disabling tiered storage deletes the remote data.", _NO_TIERS),
    ("remote.storage.enable", _B, "false", _anything, None,
     "Whether old segments move to remote storage.", _NO_TIERS),
    ("retention.bytes", _L, "-1", _anything, "log.retention.bytes",
     "The size of a partition above which the oldest segments are deleted. -1 means no limit."),
    ("retention.ms", _L, "604800000", _at_least(-1), "log.retention.ms",
     "The age at which segments are deleted. -1 means no limit."),
    ("segment.bytes", _I, "1073741824", _at_least(1048576), "log.segment.bytes",
     "The maximum size of a segment file."),
    ("segment.index.bytes", _I, "10485760", _at_least(4), "log.index.size.max.bytes",
     "The size of an index at which a new segment is rolled."),
    ("segment.jitter.ms", _L, "0", _at_least(0), "log.roll.jitter.ms",
     "The maximum random time by which the roll of a segment is earlier than segment.ms, so "
     "that partitions do not roll together."),
    ("segment.ms", _L, "604800000", _at_least(1), "log.roll.ms",
     "The age at which a non-empty segment is rolled."),
    ("unclean.leader.election.enable", _B, "false", _anything, "unclean.leader.election.enable",
     "Whether a replica that is not in sync may become leader, which can lose acknowledged "
     "records."),
    # In Kafka this allows tests to use segments below the 1 MiB of segment.bytes (KIP-1161).
    ("internal.segment.bytes", _I, "0", _none_or_at_least_14, None,
     "The maximum size of a segment file, without the minimum of segment.bytes.", None, True),
]  # fmt: skip

TOPIC_CONFIGS: Mapping[str, TopicConfig] = {row[0]: TopicConfig(*row) for row in _ROWS}
