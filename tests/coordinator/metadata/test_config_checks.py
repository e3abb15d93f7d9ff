"""Test how a node checks configs before it forwards them, while its metadata is outdated."""

from collections.abc import Mapping

import pytest

from oncelog.coordinator.metadata.commands import (
    SET,
    TOPIC_RESOURCE,
    AlterConfigs,
    ConfigOperation,
    CreateTopics,
    NewTopic,
    ResourceConfigs,
)
from oncelog.coordinator.metadata.config_checks import ConfigValidators, refuse_invalid_configs
from oncelog.runtime.steps import run_to_end
from oncelog.wire.errors import ErrorCode, InvalidConfig

from .metadata_cluster import MetadataCluster, topic_id


def _judge(configs: Mapping[str, str]) -> None:
    if "bad" in configs:
        raise InvalidConfig("bad is no config")


JUDGES = ConfigValidators(_judge, _judge, _judge, _judge)


@pytest.fixture
def cluster() -> MetadataCluster:
    cluster = MetadataCluster()
    cluster.topic("known")
    return cluster


def _altered(name: str, key: str) -> ResourceConfigs:
    return ResourceConfigs(TOPIC_RESOURCE, name, (ConfigOperation(key, SET, "1"),))


def test_config_alteration_of_a_topic_not_known_yet_never_forwards_an_unknown_key(
    cluster: MetadataCluster,
) -> None:
    """The controller already knows the topic, and does not check the key again."""
    command = AlterConfigs((_altered("new", "bad"), _altered("new", "good")))
    allowed, refused = run_to_end(refuse_invalid_configs(cluster.state, command, JUDGES))
    assert isinstance(allowed, AlterConfigs) and allowed.resources == ()
    (item,) = refused.values()
    assert item.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    command = AlterConfigs((_altered("new", "good"), _altered("known", "bad")))
    allowed, refused = run_to_end(refuse_invalid_configs(cluster.state, command, JUDGES))
    assert isinstance(allowed, AlterConfigs) and allowed.resources == (_altered("new", "good"),)
    assert [item.error for item in refused.values()] == [ErrorCode.INVALID_CONFIG]


def test_topic_creation_of_a_topic_still_known_never_forwards_an_unknown_config(
    cluster: MetadataCluster,
) -> None:
    """The controller has already deleted the topic, and does not check the config again."""
    topics = tuple(
        NewTopic(name, topic_id(name), 1, 1, configs={"bad": "1"}) for name in ("known", "new", "!")
    )
    allowed, refused = run_to_end(
        refuse_invalid_configs(cluster.state, CreateTopics(topics), JUDGES)
    )
    assert isinstance(allowed, CreateTopics) and allowed.topics == topics[2:]
    assert [item.error for item in refused.values()] == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_CONFIG,
    ]
