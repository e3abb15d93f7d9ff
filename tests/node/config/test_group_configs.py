"""Test the validation of group configs as in Kafka, and the values that take effect."""

import pytest

from oncelog.coordinator.groups.consumer.settings import ConsumerGroupSettings
from oncelog.node.config.broker_config import BROKER_KEYS, BrokerConfig
from oncelog.node.config.group_configs import (
    GROUP_KEYS,
    HEARTBEAT,
    INTERVAL,
    SESSION,
    VALUE_CHARACTERS_MAX,
    consumer_group_settings,
    judge_group_configs,
)
from oncelog.wire.errors import InvalidConfig

from ..fake_broker import broker_config

LOW = {
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "20",
}


def config(**keys: str) -> BrokerConfig:
    return broker_config(1, "1", **keys)


def settings(session_ms: int, heartbeat_ms: int, interval_ms: int) -> ConsumerGroupSettings:
    return ConsumerGroupSettings(
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=heartbeat_ms,
        assignment_interval_ms=interval_ms,
    )


def test_group_without_own_configs_has_the_settings_of_its_broker() -> None:
    assert consumer_group_settings(broker_config(), {}) == settings(45_000, 5_000, 1_000)
    low = config(**LOW, **{"group.consumer.session.timeout.ms": "6000"})
    assert consumer_group_settings(low, {}) == settings(6_000, 5_000, 1_000)


def test_group_config_values_are_limited_to_the_current_broker_bounds() -> None:
    own = {SESSION: "50000", HEARTBEAT: " 6000 ", INTERVAL: "0"}
    assert consumer_group_settings(broker_config(), own) == settings(50_000, 6_000, 0)
    own = {SESSION: "500", HEARTBEAT: "99999", INTERVAL: "99999"}
    assert consumer_group_settings(broker_config(), own) == settings(45_000, 15_000, 15_000)


@pytest.mark.parametrize(
    "configs",
    [{}, {SESSION: "45000"}, {SESSION: "60000", HEARTBEAT: "15000", INTERVAL: "15000"},
     {INTERVAL: "0"}, {"share.session.timeout.ms": "45000"},
     {"consumer.assignor.offload.enable": "true"}],
)  # fmt: skip
def test_group_configs_within_the_broker_bounds_are_accepted(configs: dict[str, str]) -> None:
    judge_group_configs(broker_config(), configs)


@pytest.mark.parametrize(
    "configs, sentence",
    [
        ({"nonsense": "1"}, "Unknown group config name: nonsense"),
        ({SESSION: "x"}, f"Invalid value x for configuration {SESSION}: Not a number of type INT"),
        ({SESSION: "0"}, f"Invalid value 0 for configuration {SESSION}: Value must be at least 1"),
        ({SESSION: "44999"},
         f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms"),
        ({SESSION: "60001"},
         f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms"),
        ({HEARTBEAT: "4999"},
         f"{HEARTBEAT} must be greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        ({HEARTBEAT: "15001"},
         f"{HEARTBEAT} must be less than or equal to group.consumer.max.heartbeat.interval.ms"),
        ({INTERVAL: "15001"},
         f"{INTERVAL} must be less than or equal to group.consumer.max.assignment.interval.ms"),
        ({"share.session.timeout.ms": "50000"}, "share groups are not served"),
        ({"streams.num.standby.replicas": "1"}, "streams groups are not served"),
        ({SESSION: "45000" + " " * VALUE_CHARACTERS_MAX}, "is longer than"),
    ],
)  # fmt: skip
def test_group_configs_outside_the_broker_bounds_are_refused(
    configs: dict[str, str], sentence: str
) -> None:
    with pytest.raises(InvalidConfig) as refused:
        judge_group_configs(broker_config(), configs)
    assert sentence in str(refused.value)


def test_group_session_timeout_must_exceed_its_heartbeat_interval() -> None:
    with pytest.raises(InvalidConfig, match=f"{SESSION} must be greater than {HEARTBEAT}"):
        judge_group_configs(config(**LOW), {SESSION: "5000"})
    judge_group_configs(config(**LOW), {SESSION: "5000", HEARTBEAT: "4999"})


@pytest.mark.parametrize(
    "name, value, sentence",
    [
        ("session.timeout.ms", "44999", "session.timeout.ms must be greater than or equal to "
         "group.consumer.min.session.timeout.ms"),
        ("max.session.timeout.ms", "44999", "max.session.timeout.ms must be greater than or equal "
         "to group.consumer.min.session.timeout.ms"),
        ("heartbeat.interval.ms", "15001", "heartbeat.interval.ms must be less than or equal to "
         "group.consumer.max.heartbeat.interval.ms"),
        ("assignment.interval.ms", "15001", "assignment.interval.ms must be less than or equal to "
         "group.consumer.max.assignment.interval.ms"),
        ("assignors", "uniform,sticky", "Must be different names of: uniform, range"),
        ("assignors", "range,range", "Must be different names of"),
        ("assignors", "", "Must be different names of"),
        ("migration.policy", "both", "String must be one of (case insensitive): disabled, "),
    ],
)  # fmt: skip
def test_broker_group_keys_outside_their_bounds_are_refused(
    name: str, value: str, sentence: str
) -> None:
    with pytest.raises(InvalidConfig) as refused:
        config(**{f"group.consumer.{name}": value})
    assert sentence in str(refused.value)


def test_broker_group_session_timeout_must_exceed_its_heartbeat_interval() -> None:
    with pytest.raises(InvalidConfig, match=r"heartbeat\.interval\.ms must be less than"):
        config(**LOW, **{"group.consumer.session.timeout.ms": "5000"})


def test_group_config_defaults_equal_the_defaults_of_the_broker_keys() -> None:
    both = {name: row for name, row in GROUP_KEYS.items() if row.broker_name in BROKER_KEYS}
    assert both.keys() == {SESSION, HEARTBEAT, INTERVAL}
    for row in both.values():
        assert row.broker_name and BROKER_KEYS[row.broker_name].default == row.key.default
