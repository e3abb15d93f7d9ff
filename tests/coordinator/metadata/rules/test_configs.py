"""Test commands that change configs, the resources that have configs, and immediate effects."""

import pytest

from oncelog.coordinator.metadata.commands import (
    APPEND,
    BROKER_RESOURCE,
    DELETE,
    GROUP_RESOURCE,
    SET,
    SUBTRACT,
    TOPIC_RESOURCE,
    AlterConfigs,
    ConfigOperation,
    ResourceConfigs,
)
from oncelog.coordinator.metadata.results import Item
from oncelog.coordinator.metadata.rules.configs import (
    CONFIGURED_MAX,
    NAME_BYTES_MAX,
)
from oncelog.wire.errors import ErrorCode

from ..metadata_cluster import MetadataCluster


@pytest.fixture
def cluster() -> MetadataCluster:
    cluster = MetadataCluster()
    cluster.topic(configs={"retention.ms": "5", "cleanup.policy": "delete"})
    return cluster


def alter(
    cluster: MetadataCluster,
    *operations: ConfigOperation,
    name: str = "t",
    kind: int = TOPIC_RESOURCE,
    replaces_all: bool = False,
    validate_only: bool = False,
) -> Item:
    resource = ResourceConfigs(kind, name, operations, replaces_all)
    (item,) = cluster.do(AlterConfigs((resource,), validate_only)).items
    assert (item.name, item.resource_type) == (name, kind)
    assert (item.error == 0) != bool(item.message)
    return item


def test_topic_config_keys_are_set_and_deleted(cluster: MetadataCluster) -> None:
    alter(
        cluster,
        ConfigOperation("retention.ms", DELETE),
        ConfigOperation("segment.bytes", SET, "1000000"),
    )
    configs = cluster.state.topics["t"].configs
    assert configs == {"segment.bytes": "1000000", "cleanup.policy": "delete"}


def test_topic_config_lists_are_appended_to_and_subtracted_from(cluster: MetadataCluster) -> None:
    alter(cluster, ConfigOperation("cleanup.policy", APPEND, "compact,delete"))
    assert cluster.state.topics["t"].configs["cleanup.policy"] == "delete,compact"
    alter(cluster, ConfigOperation("cleanup.policy", SUBTRACT, "delete"))
    assert cluster.state.topics["t"].configs["cleanup.policy"] == "compact"
    alter(cluster, ConfigOperation("cleanup.policy", DELETE))
    alter(cluster, ConfigOperation("cleanup.policy", APPEND, "compact", "delete"))
    assert cluster.state.topics["t"].configs["cleanup.policy"] == "delete,compact"


def test_topic_config_alteration_with_replaces_all_removes_other_keys(
    cluster: MetadataCluster,
) -> None:
    alter(cluster, ConfigOperation("segment.bytes", SET, "1000000"), replaces_all=True)
    assert cluster.state.topics["t"].configs == {"segment.bytes": "1000000"}


def test_topic_config_alteration_with_validate_only_or_equal_values_changes_no_metadata(
    cluster: MetadataCluster,
) -> None:
    before = cluster.state.snapshot()
    alter(cluster, ConfigOperation("segment.bytes", SET, "9"), validate_only=True)
    alter(cluster, ConfigOperation("retention.ms", SET, "5"))
    assert cluster.state.snapshot() == before


def test_broker_configs_are_set_for_one_broker_and_for_all(cluster: MetadataCluster) -> None:
    operation = ConfigOperation("log.cleaner.threads", SET, "2")
    alter(cluster, operation, name="1", kind=BROKER_RESOURCE)
    alter(cluster, operation, name="", kind=BROKER_RESOURCE)
    assert cluster.state.broker_configs == {
        "1": {"log.cleaner.threads": "2"},
        "": {"log.cleaner.threads": "2"},
    }
    remove = ConfigOperation("log.cleaner.threads", DELETE)
    alter(cluster, remove, name="1", kind=BROKER_RESOURCE)
    assert list(cluster.state.broker_configs) == [""]


@pytest.mark.parametrize(
    ("name", "kind", "key", "error"),
    [
        ("none", TOPIC_RESOURCE, "a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("9", BROKER_RESOURCE, "a", ErrorCode.BROKER_ID_NOT_REGISTERED),
        ("01", BROKER_RESOURCE, "a", ErrorCode.BROKER_ID_NOT_REGISTERED),
        ("one", BROKER_RESOURCE, "a", ErrorCode.INVALID_REQUEST),
        ("-1", BROKER_RESOURCE, "a", ErrorCode.INVALID_REQUEST),
        ("²", BROKER_RESOURCE, "a", ErrorCode.INVALID_REQUEST),
        ("9" * 5000, BROKER_RESOURCE, "a", ErrorCode.INVALID_REQUEST),
        ("1", BROKER_RESOURCE, "min.insync.replicas", ErrorCode.INVALID_CONFIG),
        ("1", BROKER_RESOURCE, "unclean.leader.election.enable", ErrorCode.INVALID_CONFIG),
        ("t", 8, "a", ErrorCode.UNSUPPORTED_VERSION),
        ("t", 0, "a", ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_config_alteration_with_an_invalid_resource_or_key_is_refused(
    cluster: MetadataCluster, name: str, kind: int, key: str, error: ErrorCode
) -> None:
    before = cluster.state.snapshot()
    assert alter(cluster, ConfigOperation(key, SET, "1"), name=name, kind=kind).error == error
    assert cluster.state.snapshot() == before


def test_config_alteration_that_names_a_resource_twice_is_refused(cluster: MetadataCluster) -> None:
    resource = ResourceConfigs(TOPIC_RESOURCE, "t", (ConfigOperation("a", SET, "1"),))
    items = cluster.do(AlterConfigs((resource, resource))).items
    assert [item.error for item in items] == [ErrorCode.INVALID_REQUEST] * 2


@pytest.mark.parametrize(("name", "kind"), [("t", TOPIC_RESOURCE), ("", BROKER_RESOURCE)])
def test_min_isr_that_is_lowered_empties_the_elr_immediately(
    cluster: MetadataCluster, name: str, kind: int
) -> None:
    cluster.die(3, 2)
    assert cluster.partition().elr == (2,)
    alter(cluster, ConfigOperation("min.insync.replicas", SET, "1"), name=name, kind=kind)
    partition = cluster.partition()
    assert partition.elr == () and partition.leader_epoch == 0
    assert cluster.state.min_insync_replicas(cluster.state.topics["t"]) == 1


@pytest.mark.parametrize(("name", "kind"), [("t", TOPIC_RESOURCE), ("", BROKER_RESOURCE)])
def test_unclean_leader_election_enable_elects_a_leader_immediately(
    cluster: MetadataCluster, name: str, kind: int
) -> None:
    cluster.die(3, 2, 1)
    cluster.start(3)
    assert cluster.partition().leader == -1
    key = "unclean.leader.election.enable"
    alter(cluster, ConfigOperation(key, SET, "true"), name=name, kind=kind)
    assert (cluster.partition().leader, cluster.partition().isr) == (3, (3,))


def test_election_with_a_lowered_min_isr_empties_the_elr(
    cluster: MetadataCluster,
) -> None:
    cluster.die(3, 2, 1)
    assert cluster.partition().elr == (1, 2)
    alter(cluster, ConfigOperation("min.insync.replicas", SET, "1"))
    assert cluster.partition().elr == (1, 2)
    cluster.start(2)  # may now commit alone
    assert (cluster.partition().isr, cluster.partition().elr) == ((2,), ())


def test_min_isr_of_a_topic_overrides_the_cluster_default(cluster: MetadataCluster) -> None:
    topic = cluster.state.topics["t"]
    assert cluster.state.min_insync_replicas(topic) == 2
    operation = ConfigOperation("min.insync.replicas", SET, "3")
    alter(cluster, operation, name="", kind=BROKER_RESOURCE)
    assert cluster.state.min_insync_replicas(topic) == 3
    alter(cluster, ConfigOperation("min.insync.replicas", SET, "1"))
    assert cluster.state.min_insync_replicas(topic) == 1
    alter(cluster, ConfigOperation("min.insync.replicas", SET, "nonsense"))
    assert cluster.state.min_insync_replicas(topic) == 1


def test_group_config_may_be_set_for_an_unknown_group(cluster: MetadataCluster) -> None:
    key = "consumer.session.timeout.ms"
    assert not alter(cluster, ConfigOperation(key, SET, "50000"), name="g", kind=32).error
    assert cluster.state.group_configs == {"g": {key: "50000"}}
    assert not alter(cluster, ConfigOperation(key, DELETE), name="g", kind=GROUP_RESOURCE).error
    assert cluster.state.group_configs == {}


def test_group_config_alteration_with_validate_only_or_equal_values_changes_no_metadata(
    cluster: MetadataCluster,
) -> None:
    operation = ConfigOperation("consumer.session.timeout.ms", SET, "50000")
    alter(cluster, operation, name="g", kind=GROUP_RESOURCE, validate_only=True)
    assert cluster.state.group_configs == {}
    alter(cluster, operation, name="g", kind=GROUP_RESOURCE)
    revision = cluster.state.revision
    alter(cluster, operation, name="g", kind=GROUP_RESOURCE)
    assert cluster.state.revision == revision


def test_group_config_of_an_empty_or_too_long_group_id_is_refused(cluster: MetadataCluster) -> None:
    operation = ConfigOperation("consumer.session.timeout.ms", SET, "50000")
    for name in ("", "g" * (NAME_BYTES_MAX + 1)):
        item = alter(cluster, operation, name=name, kind=GROUP_RESOURCE)
        assert item.error == ErrorCode.INVALID_REQUEST
    assert cluster.state.group_configs == {}


def test_group_configs_beyond_the_maximum_of_groups_are_refused(cluster: MetadataCluster) -> None:
    operation = ConfigOperation("consumer.session.timeout.ms", SET, "50000")
    cluster.state.group_configs = {f"g{i}": {"k": "v"} for i in range(CONFIGURED_MAX)}
    item = alter(cluster, operation, name="one-more", kind=GROUP_RESOURCE)
    assert item.error == ErrorCode.POLICY_VIOLATION
    assert not alter(cluster, operation, name="g0", kind=GROUP_RESOURCE).error
    assert not alter(cluster, ConfigOperation("k", DELETE), name="g1", kind=GROUP_RESOURCE).error
    assert not alter(cluster, operation, name="one-more", kind=GROUP_RESOURCE).error


def test_metadata_snapshot_stores_group_configs_and_has_the_older_format_if_there_are_none(
    cluster: MetadataCluster,
) -> None:
    without = cluster.state.snapshot()
    assert without[:2] == b"\x9a\x01"  # ten parts of version 1, unchanged
    operation = ConfigOperation("consumer.session.timeout.ms", SET, "50000")
    alter(cluster, operation, name="g", kind=GROUP_RESOURCE)
    assert cluster.state.snapshot()[:2] == b"\x9c\x03"
    restored = MetadataCluster().state
    restored.restore(cluster.state.snapshot())
    assert restored.group_configs == {"g": {"consumer.session.timeout.ms": "50000"}}
    assert restored.snapshot() == cluster.state.snapshot()
    heard: list[bool] = []
    restored.on_change(lambda changes: heard.append(changes.others_changed))
    restored.restore(without)
    assert restored.group_configs == {} and heard == [True]
