"""Test the names, bounds and error messages of topic configs as in Kafka."""

import pytest

from oncelog.storage.log_config import LogConfig, RecordCheck
from oncelog.storage.topic_configs import LONG_MAX, TOPIC_CONFIGS, parse_topic_configs
from oncelog.wire.errors import InvalidConfig

SIDES = ("leader", "follower")


def test_log_config_defaults_equal_the_defaults_of_the_config_table():
    assert LogConfig.from_topic_configs({}) == LogConfig()


def test_log_config_default_passes_its_own_validation():
    parse_topic_configs({name: row.default for name, row in TOPIC_CONFIGS.items()})


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("segment.bytes", "14", "Value must be at least 1048576"),
        ("segment.bytes", "abc", "Not a number of type INT"),
        ("segment.bytes", "2147483648", "Not a number of type INT"),
        ("segment.bytes", "9" * 5000, "Not a number of type INT"),
        ("segment.bytes", "١٢٣٤٥٦٧", "Not a number of type INT"),
        ("retention.ms", "-2", "Value must be at least -1"),
        ("retention.ms", str(LONG_MAX + 1), "Not a number of type LONG"),
        ("cleanup.policy", "compact,burn", "String must be one of: compact, delete"),
        ("message.timestamp.type", "Now", "String must be one of: CreateTime, LogAppendTime"),
        ("min.cleanable.dirty.ratio", "1.5", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "nan", "Value must be at least 0"),
        ("preallocate", "yes", "Expected value to be either true or false"),
        ("compression.type", "gzip", "stored as the producer compressed them"),
        ("compression.type", "brotli", "String must be one of"),
        ("remote.storage.enable", "true", "there is no tiered storage"),
        ("leader.replication.throttled.replicas", "x", "must be the literal"),
        ("follower.replication.throttled.replicas", "0:1,*", "must be the literal"),
        ("follower.replication.throttled.replicas", "0:1:2", "must be the literal"),
    ],
)
def test_log_config_out_of_range_or_unsupported_is_refused(name, value, complaint):
    with pytest.raises(InvalidConfig, match=complaint) as caught:
        parse_topic_configs({name: value})
    text = str(caught.value)  # a long one is cut in its midst
    assert text.startswith(f"Invalid value {value}"[:400])
    assert f" for configuration {name}: " in text


@pytest.mark.parametrize("value", ["", "*", "0:1", "0:1,12:3", " 0:1 , 1:2 "])
def test_log_config_with_lists_of_throttled_replicas_is_accepted(value):
    parse_topic_configs({f"{side}.replication.throttled.replicas": value for side in SIDES})


def test_log_config_with_an_unknown_name_or_a_null_is_refused():
    with pytest.raises(InvalidConfig, match=r"Unknown topic config name: segment\.size"):
        parse_topic_configs({"segment.size": "1"})
    with pytest.raises(InvalidConfig, match="Null value not supported"):
        parse_topic_configs({"segment.ms": None})


def test_log_config_with_min_above_max_compaction_lag_is_refused():
    parse_topic_configs({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
    with pytest.raises(InvalidConfig, match="conflict"):
        parse_topic_configs({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})


def test_topic_config_overrides_the_broker_default():
    config = LogConfig.from_topic_configs(
        {"retention.ms": "5", "cleanup.policy": "compact, delete", "preallocate": "TRUE"},
        {"retention.ms": "7", "segment.ms": "9", "message.timestamp.type": "LogAppendTime"},
    )
    assert (config.retention_ms, config.segment_ms) == (5, 9)
    assert config.is_compacted and config.is_deleted_by_retention and config.preallocate
    assert config.uses_append_time and config.record_check == RecordCheck.KEYS
    assert not LogConfig.from_topic_configs({"cleanup.policy": "compact"}).is_deleted_by_retention


def test_internal_segment_bytes_allows_small_segments_in_tests():
    assert LogConfig.from_topic_configs({"internal.segment.bytes": "200"}).segment_bytes == 200
    assert TOPIC_CONFIGS["internal.segment.bytes"].is_internal
    with pytest.raises(InvalidConfig):
        parse_topic_configs({"internal.segment.bytes": "13"})
