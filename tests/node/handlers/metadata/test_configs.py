"""Test DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from typing import Any

import pytest

from oncelog.coordinator.metadata.commands import AlterConfigs, ConfigOperation, ResourceConfigs
from oncelog.node.config.broker_config import BROKER_KEYS
from oncelog.node.config.group_configs import GROUP_KEYS
from oncelog.storage.topic_configs import TOPIC_CONFIGS, ConfigType, text_as_parsed
from oncelog.wire.errors import ErrorCode, RequestTimedOut

from ...fake_broker import FakeBroker

DESCRIBE, ALTER, INCREMENTAL, LIST = 32, 33, 44, 74
TOPIC, BROKER, GROUP = 2, 4, 32
SET, UNSET, APPEND, SUBTRACT = 0, 1, 2, 3


def resource(kind: int, name: str, *keys: str) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "configuration_keys": list(keys) or None,
    }


def described(broker: FakeBroker, kind: int, name: str, version: int = 4) -> dict[str, Any]:
    question = {
        "resources": [resource(kind, name)],
        "include_synonyms": True,
        "include_documentation": True,
    }
    (result,) = broker.ask(DESCRIBE, version, question).results
    assert result.error_code == 0, result.error_message
    return {config.name: config for config in result.configs}


def synonyms_of(config: Any) -> list[tuple[str, str, int]]:
    return [(s.name, s.value, s.source) for s in config.synonyms]


def change(kind: int, name: str, *operations: tuple[str, int, str | None]) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "configs": [
            {"name": key, "config_operation": operation, "value": value}
            for key, operation, value in operations
        ],
    }


def alter(broker: FakeBroker, *changes: dict[str, Any], **more: Any) -> list[tuple[int, str]]:
    answer = broker.ask(INCREMENTAL, 1, {"resources": list(changes), **more})
    assert [(r.resource_type, r.resource_name) for r in answer.responses] == [
        (c["resource_type"], c["resource_name"]) for c in changes
    ]
    return [(r.error_code, r.error_message) for r in answer.responses]


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs_of_every_version_shows_a_topic(version: int) -> None:
    broker = FakeBroker(log_segment_bytes="2000000")
    broker.create("a", retention_ms="5")
    configs = described(broker, TOPIC, "a", version)
    assert sorted(configs) == sorted(n for n, row in TOPIC_CONFIGS.items() if not row.is_internal)
    retention, segment = configs["retention.ms"], configs["segment.bytes"]
    assert (retention.value, retention.read_only, retention.config_source) == ("5", False, 1)
    assert synonyms_of(retention) == [("retention.ms", "5", 1)]
    assert segment.value == "2000000"
    assert synonyms_of(segment) == [
        ("log.segment.bytes", "2000000", 4),
        ("log.segment.bytes", "1073741824", 5),
    ]
    if version >= 3:
        assert retention.config_type == ConfigType.LONG
        assert configs["cleanup.policy"].config_type == ConfigType.LIST
        assert retention.documentation


def test_describe_configs_without_the_flags_has_no_synonyms_and_docs(broker: FakeBroker) -> None:
    broker.create("a")
    question = {"resources": [resource(TOPIC, "a", "segment.bytes", "nope")]}
    (result,) = broker.ask(DESCRIBE, 4, question).results
    (config,) = result.configs
    assert (config.synonyms, config.documentation) == ([], None)


def test_describe_configs_of_retention_given_in_hours_names_that_key_as_source() -> None:
    broker = FakeBroker(log_retention_hours="2")
    broker.create("a")
    retention = described(broker, TOPIC, "a")["retention.ms"]
    assert (retention.value, retention.config_source) == ("7200000", 4)
    assert synonyms_of(retention) == [("log.retention.hours", "2", 4)]


def test_describe_configs_prefers_the_cluster_wide_value_to_the_file() -> None:
    broker = FakeBroker(log_segment_bytes="2000000")
    broker.create("a")
    assert alter(broker, change(BROKER, "", ("log.segment.bytes", SET, "3000000")))[0][0] == 0
    segment = described(broker, TOPIC, "a")["segment.bytes"]
    assert (segment.value, segment.config_source) == ("3000000", 3)
    assert [source for _, _, source in synonyms_of(segment)] == [3, 4, 5]
    own = described(broker, BROKER, "1")["log.segment.bytes"]
    assert (own.value, own.config_source, own.read_only) == ("3000000", 3, False)
    cluster = described(broker, BROKER, "")
    assert cluster.keys() == {"log.segment.bytes", "min.insync.replicas"}
    assert cluster["log.segment.bytes"].value == "3000000"


TYPED = {
    "retention.ms": (" 1000 ", "1000"),
    "flush.ms": ("+09", "9"),
    "preallocate": (" TRUE ", "true"),
    "cleanup.policy": (" compact , delete ", "compact,delete"),
    "min.cleanable.dirty.ratio": (" .50 ", "0.5"),
    "delete.retention.ms": ("0012345", "12345"),
    "compression.type": (" producer ", "producer"),
}
"""As a person types a value, and as Apache Kafka 4.4 describes it."""


def test_describe_configs_of_a_topic_shows_values_in_parsed_form(broker: FakeBroker) -> None:
    broker.create("a")
    alterations = [(name, SET, typed) for name, (typed, _) in TYPED.items()]
    assert alter(broker, change(TOPIC, "a", *alterations)) == [(0, None)]
    configs = described(broker, TOPIC, "a")
    assert {name: configs[name].value for name in TYPED} == {
        name: shown for name, (_, shown) in TYPED.items()
    }
    assert synonyms_of(configs["preallocate"])[0] == ("preallocate", "true", 1)


def test_describe_configs_of_all_brokers_shows_values_as_they_were_set() -> None:
    """The configs of a single broker are shown parsed, those of all brokers as they were set."""
    broker = FakeBroker()
    broker.create("a")
    assert alter(broker, change(BROKER, "", ("log.preallocate", SET, " TRUE ")))[0][0] == 0
    cluster = described(broker, BROKER, "")["log.preallocate"]
    assert (cluster.value, synonyms_of(cluster)) == (
        " TRUE ",
        [("log.preallocate", " TRUE ", 3)],
    )
    for kind, name, key in ((BROKER, "1", "log.preallocate"), (TOPIC, "a", "preallocate")):
        config = described(broker, kind, name)[key]
        assert (config.value, config.config_source) == ("true", 3)
        assert synonyms_of(config)[0] == ("log.preallocate", " TRUE ", 3)


def test_create_topics_answers_with_config_values_as_requested() -> None:
    """As in Apache Kafka 4.4, only DescribeConfigs parses the values."""
    answer = FakeBroker().ask(
        19,
        7,
        {
            "topics": [
                {
                    "name": "a",
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "configs": [{"name": "preallocate", "value": "TRUE"}],
                }
            ],
            "timeout": 1000,
        },
    )
    assert {c.name: c.value for c in answer.topics[0].configs}["preallocate"] == "TRUE"


@pytest.mark.parametrize(
    ("typed", "shown"),
    [("0.0001", "1.0E-4"), ("1e-5", "1.0E-5"), ("0.00015", "1.5E-4"), ("0.001", "0.001"),
     ("1", "1.0"), ("0", "0.0"), ("no number", "no number")],
)  # fmt: skip
def test_config_ratio_is_shown_in_the_format_of_java(typed: str, shown: str) -> None:
    assert text_as_parsed(ConfigType.DOUBLE, typed) == shown


@pytest.mark.parametrize("config_type", ConfigType)
def test_config_value_of_each_type_is_shown_parsed_or_as_it_is(
    config_type: ConfigType,
) -> None:
    assert text_as_parsed(config_type, " 1 ") in ("1", "1.0", " 1 ")


def test_describe_configs_of_a_broker_shows_file_values_in_parsed_form() -> None:
    broker = FakeBroker(default_replication_factor=" 1", auto_create_topics_enable="FALSE")
    configs = described(broker, BROKER, "1")
    assert configs["default.replication.factor"].value == "1"
    assert configs["auto.create.topics.enable"].value == "false"


def test_describe_configs_of_a_broker_shows_all_its_keys() -> None:
    configs = described(FakeBroker(cluster_id="c"), BROKER, "1")
    hidden = {name for name, key in BROKER_KEYS.items() if key.shown_unset == "hidden"}
    assert configs.keys() == BROKER_KEYS.keys() - hidden - {"cluster.id"}
    prepares = configs["transaction.two.phase.commit.enable"]
    assert (prepares.value, prepares.config_source) == ("false", 5)
    node_id = configs["node.id"]
    assert (node_id.value, node_id.config_source, node_id.read_only) == ("1", 4, True)
    factor = configs["default.replication.factor"]
    assert (factor.value, factor.config_source) == ("3", 5)
    assert (configs["log.retention.ms"].value, configs["log.retention.hours"].value) == (
        None,
        "168",
    )
    assert configs["min.insync.replicas"].value == "2"
    assert configs["broker.rack"].value is None
    assert all(config.documentation for config in configs.values())


def test_describe_configs_of_a_broker_omits_unset_plugin_keys() -> None:
    """Kafka describes the keys of plug-ins only if they are set."""
    names = {"super.users", "leader.replication.throttled.rate", "plain.sasl.jaas.config"}
    assert not names & described(FakeBroker(), BROKER, "1").keys()
    broker = FakeBroker(super_users="User:admin", plain_sasl_jaas_config='user_a="b"')
    rate = ("leader.replication.throttled.rate", SET, "1000")
    assert alter(broker, change(BROKER, "1", rate)) == [(0, None)]
    configs = described(broker, BROKER, "1")
    assert names <= configs.keys()
    assert configs["super.users"].value == "User:admin"
    assert configs["plain.sasl.jaas.config"].value is None, "a secret"


def test_describe_configs_of_a_broker_shows_an_empty_default_as_text() -> None:
    configs = described(FakeBroker(), BROKER, "1")
    for name in ("authorizer.class.name", "cordoned.log.dirs", "max.connections.per.ip.overrides"):
        assert (configs[name].value, synonyms_of(configs[name])) == ("", [(name, "", 5)])
    for name in ("advertised.listeners", "broker.rack", "create.topic.policy.class.name"):
        assert (configs[name].value, synonyms_of(configs[name])) == (None, [])


def test_describe_configs_shows_min_isr_as_a_dynamic_config_of_the_cluster() -> None:
    """While ELR is enabled, Kafka stores min.insync.replicas as a cluster-wide dynamic config."""
    broker, key = FakeBroker(min_insync_replicas="1"), "min.insync.replicas"
    broker.create("a")
    (of_cluster,) = described(broker, BROKER, "").values()
    assert (of_cluster.name, of_cluster.value, of_cluster.config_source) == (key, "1", 3)
    for kind, name in ((BROKER, "1"), (TOPIC, "a")):
        found = described(broker, kind, name)[key]
        assert synonyms_of(found) == [(key, "1", 3), (key, "1", 4), (key, "2", 5)]
    assert alter(broker, change(BROKER, "", (key, SET, "3"))) == [(0, None)]
    assert described(broker, TOPIC, "a")[key].value == "3"
    assert described(broker, BROKER, "")[key].value == "3"


def test_describe_configs_of_a_key_lists_its_synonyms() -> None:
    broker = FakeBroker(log_retention_minutes="5")
    broker.create("a")
    ms, minutes, hours = (f"log.retention.{unit}" for unit in ("ms", "minutes", "hours"))
    configs = described(broker, BROKER, "1")
    assert (configs[ms].value, synonyms_of(configs[ms])) == (None, [])
    assert synonyms_of(configs[minutes]) == [(minutes, "5", 4), (hours, "168", 5)]
    assert alter(broker, change(BROKER, "1", (ms, SET, "9"))) == [(0, None)]
    configs = described(broker, BROKER, "1")
    every = [(ms, "9", 2), (minutes, "5", 4), (hours, "168", 5)]
    assert [synonyms_of(configs[name]) for name in (ms, minutes, hours)] == [
        every,
        every[1:],
        every[2:],
    ]
    assert synonyms_of(described(broker, TOPIC, "a")["retention.ms"]) == every
    assert synonyms_of(configs["log.flush.interval.ms"]) == []
    flush = described(broker, TOPIC, "a")["flush.ms"]
    assert (flush.value, synonyms_of(flush)) == (str(2**63 - 1), [])


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "no good", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (8, "2", ErrorCode.INVALID_REQUEST),
        (16, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_describe_configs_of_an_invalid_resource_does_not_affect_another(
    broker: FakeBroker, kind: int, name: str, code: int
) -> None:
    broker.create("a")
    question = {"resources": [resource(kind, name), resource(TOPIC, "a")]}
    bad, good = broker.ask(DESCRIBE, 4, question).results
    assert (bad.error_code, bad.configs) == (code, [])
    assert bad.error_message
    assert (good.error_code, bool(good.configs)) == (0, True)


@pytest.mark.parametrize("version", range(2))
def test_incremental_alter_configs_sets_and_unsets_keys(broker: FakeBroker, version: int) -> None:
    broker.create("a", retention_ms="5", segment_ms="7")
    question = {
        "resources": [change(TOPIC, "a", ("retention.ms", SET, "6"), ("segment.ms", UNSET, None))]
    }
    (response,) = broker.ask(INCREMENTAL, version, question).responses
    assert (response.error_code, response.error_message) == (0, None)
    assert broker.state.topics["a"].configs == {"retention.ms": "6"}


def test_incremental_alter_configs_appends_to_and_subtracts_from_lists(broker: FakeBroker) -> None:
    broker.create("a")
    configs = broker.state.topics["a"].configs
    assert alter(broker, change(TOPIC, "a", ("cleanup.policy", APPEND, "compact"))) == [(0, None)]
    configs = broker.state.topics["a"].configs
    assert configs == {"cleanup.policy": "delete,compact"}
    assert alter(broker, change(TOPIC, "a", ("cleanup.policy", SUBTRACT, "delete"))) == [(0, None)]
    assert broker.state.topics["a"].configs == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("operation", "code", "says"),
    [
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST, "Null value"),
        (("retention.ms", APPEND, "5"), ErrorCode.INVALID_CONFIG, "not LIST"),
        (("nope", APPEND, "5"), ErrorCode.INVALID_CONFIG, "not LIST"),
        (("retention.ms", 9, "5"), ErrorCode.INVALID_REQUEST, "operations type 9"),
        (("nope", SET, "5"), ErrorCode.INVALID_CONFIG, "nope"),
        (("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG, "soon"),
        (("remote.storage.enable", SET, "true"), ErrorCode.INVALID_CONFIG, "tiered"),
        (("cleanup.policy", APPEND, "burn"), ErrorCode.INVALID_CONFIG, "compact, delete"),
        (("min.compaction.lag.ms", SET, str(2**63)), ErrorCode.INVALID_CONFIG, "LONG"),
    ],
)
def test_incremental_alter_configs_with_an_invalid_change_is_refused_with_a_message(
    broker: FakeBroker, operation: tuple[str, int, str | None], code: int, says: str
) -> None:
    broker.create("a", retention_ms="7")
    ((found, message),) = alter(broker, change(TOPIC, "a", operation))
    assert found == code
    assert says in message
    assert broker.state.topics["a"].configs == {"retention.ms": "7"}


def test_incremental_alter_configs_that_names_a_resource_or_key_twice_is_refused(
    broker: FakeBroker,
) -> None:
    broker.create("a")
    twice = change(TOPIC, "a", ("retention.ms", SET, "1"))
    assert [code for code, _ in alter(broker, twice, twice)] == [42, 42]
    doubled = change(TOPIC, "a", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    assert alter(broker, doubled) == [(42, "Error due to duplicate config keys")]
    assert broker.state.topics["a"].configs == {}


def test_incremental_alter_configs_validated_only_changes_no_config(broker: FakeBroker) -> None:
    broker.create("a")
    good, bad = change(TOPIC, "a", ("retention.ms", SET, "1")), change(TOPIC, "b")
    assert [c for c, _ in alter(broker, good, bad, validate_only=True)] == [0, 3]
    assert broker.state.topics["a"].configs == {}


@pytest.mark.parametrize(
    ("name", "key", "value", "code"),
    [
        ("", "log.retention.ms", "1000", 0),
        ("", "min.insync.replicas", "1", 0),
        ("", "log.retention.ms", "soon", ErrorCode.INVALID_REQUEST),
        ("", "node.id", "2", ErrorCode.INVALID_REQUEST),
        ("", "no.such.key", "2", ErrorCode.INVALID_CONFIG),
        ("1", "log.retention.ms", "1000", 0),
        ("1", "num.io.threads", "4", 0),
        ("1", "leader.replication.throttled.rate", "1000", 0),
        ("1", "leader.replication.throttled.rate", "-1", ErrorCode.INVALID_REQUEST),
        ("1", "log.retention.ms", "soon", ErrorCode.INVALID_REQUEST),
        ("1", "min.insync.replicas", "1", ErrorCode.INVALID_CONFIG),
        ("1", "node.id", "2", ErrorCode.INVALID_REQUEST),
        ("1", "no.such.key", "2", ErrorCode.INVALID_CONFIG),
        ("2", "log.retention.ms", "1000", ErrorCode.INVALID_REQUEST),
        ("one", "log.retention.ms", "1000", ErrorCode.INVALID_REQUEST),
    ],
)
def test_incremental_alter_configs_of_brokers_accepts_only_valid_values_of_dynamic_keys(
    broker: FakeBroker, name: str, key: str, value: str, code: int
) -> None:
    ((found, message),) = alter(broker, change(BROKER, name, (key, SET, value)))
    assert found == code, message
    assert broker.state.broker_configs == ({name: {key: value}} if code == 0 else {})


@pytest.mark.parametrize("name", ["", "1"])
def test_alter_configs_that_removes_min_isr_of_brokers_is_refused(
    broker: FakeBroker, name: str
) -> None:
    key = "min.insync.replicas"
    assert alter(broker, change(BROKER, "", (key, SET, "1"))) == [(0, None)]
    ((found, message),) = alter(broker, change(BROKER, name, (key, UNSET, None)))
    assert (found, "while ELR is enabled" in message) == (ErrorCode.INVALID_CONFIG, True)
    if name == "":
        other = {"name": "log.retention.ms", "value": "5"}
        question = {"resource_type": BROKER, "resource_name": name, "configs": [other]}
        (response,) = broker.ask(ALTER, 2, {"resources": [question]}).responses
        assert response.error_code == ErrorCode.INVALID_CONFIG, "to omit the key removes it, too"
    assert broker.state.broker_configs == {"": {key: "1"}}


def test_broker_config_of_one_broker_overrides_the_config_of_all_brokers(
    broker: FakeBroker,
) -> None:
    broker.create("a")
    key = "log.retention.ms"
    for name, value in (("", "1000"), ("1", "500")):
        assert alter(broker, change(BROKER, name, (key, SET, value))) == [(0, None)]
    broker.controller.apply(
        AlterConfigs((ResourceConfigs(BROKER, "2", (ConfigOperation(key, SET, "9"),)),))
    )
    shown = described(broker, BROKER, "1")[key]
    assert (shown.value, shown.config_source, shown.read_only) == ("500", 2, False)
    hours = ("log.retention.hours", "168", 5)
    assert synonyms_of(shown) == [(key, "500", 2), (key, "1000", 3), hours]
    of_topic = described(broker, TOPIC, "a")["retention.ms"]
    assert (of_topic.value, of_topic.config_source) == ("500", 2)
    assert described(broker, BROKER, "").keys() == {key, "min.insync.replicas"}
    assert alter(broker, change(BROKER, "1", (key, UNSET, None))) == [(0, None)]
    assert described(broker, BROKER, "1")[key].value == "1000"


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_of_the_old_api_replaces_all_values(broker: FakeBroker, version: int) -> None:
    broker.create("a", retention_ms="5")

    def ask(*configs: tuple[str, str | None]) -> tuple[int, str]:
        listed = [{"name": name, "value": value} for name, value in configs]
        question = {
            "resources": [{"resource_type": TOPIC, "resource_name": "a", "configs": listed}]
        }
        (response,) = broker.ask(ALTER, version, question).responses
        return response.error_code, response.error_message

    assert ask(("segment.ms", "100"))[0] == 0
    assert broker.state.topics["a"].configs == {"segment.ms": "100"}
    assert ask(("segment.ms", None)) == (42, "Null value not supported for : segment.ms")
    assert ask(("nope", "1"))[0] == ErrorCode.INVALID_CONFIG
    assert ask()[0] == 0
    assert broker.state.topics["a"].configs == {}


def test_incremental_alter_configs_of_an_unknown_resource_type_is_refused() -> None:
    assert alter(FakeBroker(), change(3, "x")) == [(42, "Unknown resource type 3")]


def test_incremental_alter_configs_with_a_silent_controller_fails_every_resource(
    broker: FakeBroker,
) -> None:
    broker.controller.failure = RequestTimedOut()
    changes = [change(TOPIC, name, ("retention.ms", SET, "1")) for name in ("a", "b")]
    assert [code for code, _ in alter(broker, *changes)] == [7, 7]


@pytest.mark.parametrize(
    ("kind", "name"),
    [(TOPIC, "a"), (BROKER, "1"), (BROKER, "")],
    ids=["topic", "broker", "cluster"],
)
def test_incremental_alter_configs_that_deletes_an_unset_key_succeeds(
    broker: FakeBroker, kind: int, name: str
) -> None:
    """kafka-reassign-partitions.sh deletes the throttles at its end, even if none were set."""
    broker.create("a")
    keys = (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.replicas",
        "retention.ms",
        "process.roles",
        "no.such.key",
    )
    assert alter(broker, change(kind, name, *((key, UNSET, "") for key in keys))) == [(0, None)]


@pytest.mark.parametrize("name", ["x", "9" * 5_000], ids=["letter", "digits"])
async def test_describe_configs_of_an_invalid_node_number_is_refused_and_others_answered(
    broker: FakeBroker, name: str
) -> None:
    question = {"resources": [resource(BROKER, name), resource(BROKER, "1")]}
    refused, answered = (await broker.request(DESCRIBE, 4, question).value()).results
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert answered.error_code == ErrorCode.NONE


def test_describe_configs_of_a_group_shows_all_keys_and_their_sources() -> None:
    session = "consumer.session.timeout.ms"
    broker = FakeBroker(group_consumer_heartbeat_interval_ms="6000")
    assert alter(broker, change(GROUP, "g", (session, SET, "50000"))) == [(0, None)]
    shown = described(broker, GROUP, "g")
    assert shown.keys() == GROUP_KEYS.keys()
    assert (shown[session].value, shown[session].config_source) == ("50000", 8)
    default = (f"group.{session}", "45000", 5)
    assert synonyms_of(shown[session]) == [(session, "50000", 8), default]
    heartbeat = shown["consumer.heartbeat.interval.ms"]
    assert (heartbeat.value, heartbeat.config_source) == ("6000", 4)
    share = shown["share.session.timeout.ms"]
    assert synonyms_of(share) == [("group.share.session.timeout.ms", "45000", 5)]
    other = described(broker, GROUP, "other")[session]
    assert (other.value, other.config_source, other.read_only) == ("45000", 5, False)


def test_incremental_alter_configs_of_a_group_validates_all_keys_together(
    broker: FakeBroker,
) -> None:
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    (low, unknown, empty, null) = alter(
        broker,
        change(GROUP, "low", (session, SET, "6000")),
        change(GROUP, "unknown", ("nonsense", SET, "1")),
        change(GROUP, "", (session, SET, "50000")),
        change(GROUP, "null", (session, SET, None)),
    )
    assert low[0] == unknown[0] == ErrorCode.INVALID_CONFIG
    assert unknown[1] == "Unknown group config name: nonsense"
    assert empty == (ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    assert null[0] == ErrorCode.INVALID_REQUEST
    both = change(GROUP, "g", (session, SET, "50000"), (heartbeat, SET, "7000"))
    assert alter(broker, both, change(GROUP, "h", ("nonsense", UNSET, None))) == [(0, None)] * 2
    assert alter(broker, change(GROUP, "g", (session, UNSET, None))) == [(0, None)]
    assert broker.state.group_configs == {"g": {heartbeat: "7000"}}


def test_describe_configs_of_a_group_without_a_name_is_refused(broker: FakeBroker) -> None:
    question = {"resources": [resource(GROUP, "")]}
    (result,) = broker.ask(DESCRIBE, 4, question).results
    assert (result.error_code, result.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Group name must not be empty",
    )


def test_list_config_resources_lists_groups_with_configs(broker: FakeBroker) -> None:
    alter(broker, change(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")))
    for asked in ([], [GROUP]):
        answer = broker.ask(LIST, 1, {"resource_types": asked})
        listed = [(r.resource_type, r.resource_name) for r in answer.config_resources]
        assert (GROUP, "g") in listed
    assert listed == [(GROUP, "g")]
