"""Test the broker keys that only tune Kafka. They are accepted, described, and have no effect."""

import pytest

from oncelog.node.config.broker_config import BROKER_KEYS, BrokerConfig
from oncelog.node.config.dynamic import judge_dynamic_configs
from oncelog.node.config.tuning_keys import TUNING_KEYS, without_effect
from oncelog.storage.topic_configs import ConfigType
from oncelog.wire.errors import InvalidConfig, InvalidRequest

from .test_broker_config import REQUIRED


def test_tuning_key_of_each_name_is_accepted_with_its_default_and_shown() -> None:
    given = {name: key.default for name, key in TUNING_KEYS.items() if key.default}
    config = BrokerConfig.from_properties(REQUIRED | given)
    assert {name: config.text_of(name) for name in given} == given
    unset = BrokerConfig.from_properties(REQUIRED)
    assert {name: unset.text_of(name) for name in given} == given


def test_tuning_key_value_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"num\.io\.threads: Not a number of type INT"):
        BrokerConfig.from_properties(REQUIRED | {"num.io.threads": "many"})
    with pytest.raises(InvalidRequest, match="at least 1"):
        judge_dynamic_configs({"num.io.threads": "0"})


def test_tuning_key_is_dynamic_only_where_kafka_allows_dynamic_changes() -> None:
    judge_dynamic_configs({"num.io.threads": "16", "log.cleaner.threads": "2"})
    with pytest.raises(InvalidConfig, match="dynamically"):
        judge_dynamic_configs({"queued.max.requests": "5"})


def test_tuning_keys_without_effect_are_named_only_if_set() -> None:
    assert without_effect(["node.id", "log.dirs"]) is None
    words = without_effect(["num.network.threads", "node.id", "background.threads"])
    assert words is not None and words.startswith("background.threads, num.network.threads: ")


def test_tuning_keys_have_no_entry_in_the_effective_tables() -> None:
    """An entry in a table of effective keys would take precedence over the entry in TUNING_KEYS."""
    assert all(BROKER_KEYS[name] is key for name, key in TUNING_KEYS.items())
    assert all(key.topic_config is None and not key.not_served for key in TUNING_KEYS.values())


@pytest.mark.parametrize(
    ("name", "other", "reason"),
    [
        ("log.dir", "/data", "one data directory, that of log.dirs"),
        ("cordoned.log.dirs", "/data", "one data directory, that of log.dirs"),
        ("config.providers", "env", "classes of Java"),
        ("create.topic.policy.class.name", "a.Policy", "classes of Java"),
        ("alter.config.policy.class.name", "a.Policy", "classes of Java"),
        ("security.inter.broker.protocol", "SSL", "links of their own"),
        ("sasl.kerberos.service.name", "kafka", "there is no Kerberos"),
        ("ssl.keystore.password", "secret", "PEM"),
    ],
)
def test_key_of_kafka_that_is_not_served_is_accepted_only_with_its_default(
    name: str, other: str, reason: str
) -> None:
    default = BROKER_KEYS[name].default
    assert default is not None
    config = BrokerConfig.from_properties(REQUIRED | {name: default})
    if BROKER_KEYS[name].type != ConfigType.PASSWORD:
        assert config.text_of(name) == (default or None)
    with pytest.raises(InvalidConfig, match=reason):
        BrokerConfig.from_properties(REQUIRED | {name: other})
