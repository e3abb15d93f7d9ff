"""Test which contents of server.properties are accepted, and the messages of refusals."""

import dataclasses
from pathlib import Path

import pytest

from oncelog.node.config.broker_config import BROKER_KEYS, BrokerConfig
from oncelog.node.config.keys import parse_properties
from oncelog.storage.log_config import LogConfig
from oncelog.storage.topic_configs import TOPIC_CONFIGS
from oncelog.wire.errors import InvalidConfig

REQUIRED = {
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.dirs": "/tmp/data",
    "oncelog.voters": "1,2,3",
    "oncelog.peer.directory": "/tmp/peers",
}


def config(**settings: str) -> BrokerConfig:
    changed = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerConfig.from_properties(REQUIRED | changed)


def refusal(properties: dict[str, str]) -> str:
    with pytest.raises(InvalidConfig) as caught:
        BrokerConfig.from_properties(properties)
    return str(caught.value)


def test_broker_config_of_five_keys_is_complete() -> None:
    found = config()
    assert (found.node_id, found.voter_ids) == (1, (1, 2, 3))
    (listener,) = found.endpoints
    assert listener.bind == listener.advertised == ("127.0.0.1", 9092)
    assert found.log_directory == Path("/tmp/data")
    assert (found.default_replication_factor, found.cluster_defaults["min.insync.replicas"]) == (
        3,
        "2",
    )


def test_broker_config_of_a_single_node_has_replication_factor_one() -> None:
    found = BrokerConfig.from_properties(REQUIRED | {"oncelog.voters": "1"})
    assert found.default_replication_factor == found.offsets_topic_replication_factor == 1
    assert found.cluster_defaults["min.insync.replicas"] == "1"


def test_broker_config_names_all_missing_keys_together() -> None:
    message = refusal({})
    assert all(name in message for name in REQUIRED if name != "listeners")


def test_broker_config_without_listeners_has_the_listener_of_kafka() -> None:
    properties = {name: text for name, text in REQUIRED.items() if name != "listeners"}
    assert "set advertised.listeners" in refusal(properties)
    properties["advertised.listeners"] = "PLAINTEXT://127.0.0.1:9092"
    (listener,) = BrokerConfig.from_properties(properties).endpoints
    assert (listener.name, listener.bind) == ("PLAINTEXT", ("", 9092))


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("broker.session.timeout", "broker.session.timeout.ms"),
        ("replica.lag.max.ms", "replica.lag.time.max.ms"),
        ("log.segment.byte", "log.segment.bytes"),
        ("min.insync.replica", "min.insync.replicas"),
    ],
)
def test_broker_config_with_an_unknown_key_names_the_nearest_known_key(
    name: str, nearest: str
) -> None:
    assert refusal(REQUIRED | {name: "1"}) == (
        f"Unknown configuration {name}. Did you mean {nearest}?"
    )


@pytest.mark.parametrize(
    ("host", "advertised", "level"),
    [
        ("127.0.0.1", "", "batch"),
        ("localhost", "", "batch"),
        ("[::1]", "localhost", "batch"),
        ("127.0.0.1", "broker-1", "skeleton"),  # by a tunnel, or a proxy
        ("10.0.0.7", "", "skeleton"),
        ("0.0.0.0", "127.0.0.1", "skeleton"),
        ("broker-1", "", "skeleton"),
        ("", "127.0.0.1", "skeleton"),
    ],
)
def test_record_validation_level_when_unset_depends_on_the_listener(
    host: str, advertised: str, level: str
) -> None:
    properties = REQUIRED | {"listeners": f"PLAINTEXT://{host}:9092"}
    if advertised:
        properties["advertised.listeners"] = f"PLAINTEXT://{advertised}:9092"
    assert BrokerConfig.from_properties(properties).record_validation == level
    properties["oncelog.record.validation"] = "full"
    assert BrokerConfig.from_properties(properties).record_validation == "full"


def test_broker_config_key_unlike_any_known_key_is_refused_without_a_hint() -> None:
    assert refusal(REQUIRED | {"zzzzzzz": "1"}) == "Unknown configuration zzzzzzz."


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("node.id", "one", "Not a number of type INT"),
        ("node.id", "-1", "at least 0"),
        ("default.replication.factor", "0", "at least 1"),
        ("max.connections", str(2**31), "Not a number of type INT"),
        ("log.retention.ms", "1" * 5000, "Not a number of type LONG"),
        ("auto.create.topics.enable", "yes", "true or false"),
        ("oncelog.record.validation", "some", "batch, skeleton, full"),
        ("log.segment.bytes", "5", "at least 1048576"),
        ("compression.type", "zstd", "as the producer compressed"),
        ("log.dirs", "/a,/b", "exactly one"),
        ("oncelog.voters", "1,2", "no majority"),
        ("oncelog.voters", "1,2,3,4,5,6", "1, 3, 4, or 5"),
        ("oncelog.voters", "2,3,4", "not among"),
        ("oncelog.voters", "1,1,2", "different numbers"),
        ("oncelog.voters", "1,x,2", "different numbers"),
        ("listeners", "FOO://127.0.0.1:9092", "No security protocol defined"),
        ("listeners", "127.0.0.1:9092", "must look like"),
        ("listeners", "PLAINTEXT://127.0.0.1", "must look like"),
        ("listeners", "PLAINTEXT://127.0.0.1:99999", "must look like"),
        ("listeners", "PLAINTEXT://a:1,PLAINTEXT://b:2", "a different name"),
        ("listeners", "PLAINTEXT://0.0.0.0:9092", "set advertised.listeners"),
        ("listeners", "PLAINTEXT://:9092", "set advertised.listeners"),
        ("broker.heartbeat.interval.ms", "1000", "at least twice"),
        ("log.cleaner.min.compaction.lag.ms", str(2**63 - 1), ""),
    ],
)
def test_broker_config_value_is_refused_with_a_clear_message_only_if_it_is_invalid(
    name: str, value: str, says: str
) -> None:
    if says:
        assert says in refusal(REQUIRED | {name: value})
    else:
        BrokerConfig.from_properties(REQUIRED | {name: value})


def test_broker_config_with_contradicting_topic_defaults_is_refused() -> None:
    clash = {
        "log.cleaner.min.compaction.lag.ms": "10",
        "log.cleaner.max.compaction.lag.ms": "5",
    }
    assert "min.compaction.lag.ms" in refusal(REQUIRED | clash)


def test_broker_config_reports_all_invalid_values_together() -> None:
    message = refusal(REQUIRED | {"nope": "1", "node.id": "x", "max.connections": "0"})
    assert len(message.splitlines()) == 3


def test_advertised_listener_address_may_differ_from_the_bound_address() -> None:
    found = config(listeners="PLAINTEXT://0.0.0.0:1", advertised_listeners="PLAINTEXT://[::1]:2")
    (listener,) = found.endpoints
    assert (listener.bind, listener.advertised) == (("0.0.0.0", 1), ("::1", 2))


def test_broker_retention_in_a_finer_unit_overrides_a_coarser_unit() -> None:
    assert config(log_retention_hours="2").topic_defaults["retention.ms"] == "7200000"
    assert config(log_retention_hours="2", log_retention_minutes="3").topic_defaults[
        "retention.ms"
    ] == str(3 * 60_000)
    assert config(log_retention_hours="2", log_retention_ms="5").topic_defaults["retention.ms"] == (
        "5"
    )
    assert config(log_retention_hours="-1").topic_defaults["retention.ms"] == "-1"
    assert config(log_roll_hours="1").topic_defaults["segment.ms"] == "3600000"


def test_topic_defaults_of_the_broker_config_are_used_by_the_log() -> None:
    found = config(log_segment_bytes="2000000", log_cleanup_policy="compact,delete")
    log_config = LogConfig.from_topic_configs({}, found.topic_defaults)
    assert log_config.segment_bytes == 2_000_000
    assert log_config.is_compacted


def test_topic_config_with_a_broker_name_has_a_broker_key() -> None:
    for row in TOPIC_CONFIGS.values():
        if row.broker_name is not None:
            assert BROKER_KEYS[row.broker_name].topic_config == row.name


def test_broker_key_of_each_name_is_documented_with_a_default_within_its_bounds() -> None:
    found = config()
    for name, key in BROKER_KEYS.items():
        assert key.doc.endswith("."), name
        assert key.kafka_default is None or key.kafka_default != key.default, name
        if key.default:
            key.parse(key.default)
        found.text_of(name)


def test_broker_config_is_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().node_id = 2  # type: ignore[misc]


def test_properties_file_is_parsed_like_java_does() -> None:
    text = "# a comment\n! another\n\n a = 1 \nb:2\nc=x=y\nd=one,\\\n   two\nurl=PLAINTEXT://h:1\n"
    assert parse_properties(text) == {
        "a": "1",
        "b": "2",
        "c": "x=y",
        "d": "one,two",
        "url": "PLAINTEXT://h:1",
    }


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (r"a=C:\\data", "C:\\data"),
        (r"a=one\=two\:three", "one=two:three"),
        (r"a=\u00e9t\u00e9", "été"),
        (r"a=x\ty", "x\ty"),
        ("a=ends in two\\\\", "ends in two\\"),
        ("a=ends in one\\", "ends in one"),
        ("a=", ""),
    ],
)
def test_properties_file_escapes_are_read_as_by_java(line: str, value: str) -> None:
    assert parse_properties(line) == {"a": value}


@pytest.mark.parametrize("character", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_properties_file_lines_end_like_those_of_java(character: str) -> None:
    """For Java only LF and CR end a line, so other line ends of Unicode stay in the value."""
    assert parse_properties(f"a=b{character}c=d\ne=f\r\ng=h\ri=j") == {
        "a": f"b{character}c=d", "e": "f", "g": "h", "i": "j",
    }  # fmt: skip


def test_properties_file_escaped_separator_belongs_to_the_key() -> None:
    assert parse_properties(r"a\=b=c") == {"a=b": "c"}


def test_broker_config_accepts_default_values_of_kafka() -> None:
    profile = {
        name: key.kafka_default
        for name, key in BROKER_KEYS.items()
        if key.kafka_default is not None
        and key.not_served is None
        and key.check(key.parse_unchecked(key.kafka_default)) is None
    }
    assert profile["broker.session.timeout.ms"] == "9000"
    assert profile["min.insync.replicas"] == "1"
    assert "queued.max.request.bytes" not in profile  # Kafka's -1 is "no bound"
    found = BrokerConfig.from_properties(REQUIRED | profile)
    assert (found.broker_session_timeout_ms, found.replica_lag_time_max_ms) == (9000, 30_000)


@pytest.mark.parametrize(("text", "says"), [("a=1\nword", "Line 2"), ("a=1\na=2", "second time")])
def test_properties_file_that_is_malformed_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=says):
        parse_properties(text)


def test_properties_file_is_read_to_a_broker_config(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in REQUIRED.items()))
    assert BrokerConfig.from_file(file).node_id == 1
