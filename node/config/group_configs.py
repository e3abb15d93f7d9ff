"""The configurations of groups (resource type GROUP), with their validation and effective values.

The replicated metadata stores them by group id, even for a group that does not exist. The values of
consumer groups must be within the bounds of the broker's `group.consumer.*` keys. Configs of group
types that are not supported can be described, but not changed.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ...coordinator.groups.consumer.settings import ConsumerGroupSettings
from ...storage.topic_configs import ConfigType
from ...wire.errors import InvalidConfig
from .broker_config import BrokerConfig
from .keys import BOOLEAN, INT, LIST, LONG, STRING, BrokerKey, Check, anything, at_least

SESSION, HEARTBEAT, INTERVAL = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)
VALUE_CHARACTERS_MAX = 100
_NO_SHARE = "share groups are not served"
_NO_STREAMS = "streams groups are not served"


class GroupConfigRow(NamedTuple):
    """A config of groups, and the broker key of its default if there is one."""

    key: BrokerKey
    broker_name: str | None


def _rows() -> Iterator[GroupConfigRow]:
    def row(
        name: str,
        config_type: ConfigType,
        default: str,
        doc: str = "",
        check: Check = anything,
        not_served: str | None = None,
        broker_name: str | None = None,
    ) -> GroupConfigRow:
        key = BrokerKey(
            name=name,
            type=config_type,
            default=default,
            doc=doc or f"Not honoured: {not_served}.",
            check=check,
            not_served=not_served,
        )
        return GroupConfigRow(key, broker_name)

    def inherited(
        name: str,
        config_type: ConfigType,
        default: str,
        doc: str = "",
        check: Check = anything,
        not_served: str | None = None,
    ) -> GroupConfigRow:
        return row(name, config_type, default, doc, check, not_served, f"group.{name}")

    yield inherited(
        SESSION, INT, "45000", "The session timeout of the group's members.", at_least(1)
    )
    yield inherited(
        HEARTBEAT, INT, "5000", "The heartbeat interval of the group's members.", at_least(1)
    )
    yield inherited(INTERVAL, INT, "1000", "The minimum time between two assignments.", at_least(0))
    sliced = "assignments are made in slices of the event loop"
    yield inherited("consumer.assignor.offload.enable", BOOLEAN, "true", not_served=sliced)
    for name, config_type, default in (
        ("session.timeout.ms", INT, "45000"),
        ("heartbeat.interval.ms", INT, "5000"),
        ("record.lock.duration.ms", INT, "30000"),
        ("delivery.count.limit", INT, "5"),
        ("partition.max.record.locks", INT, "2000"),
        ("assignment.interval.ms", INT, "1000"),
        ("assignor.offload.enable", BOOLEAN, "true"),
    ):
        yield inherited(f"share.{name}", config_type, default, not_served=_NO_SHARE)
    for name, config_type, default in (
        ("share.auto.offset.reset", STRING, "latest"),
        ("share.isolation.level", STRING, "read_uncommitted"),
        ("share.renew.acknowledge.enable", BOOLEAN, "true"),
        ("errors.deadletterqueue.topic.name", STRING, ""),
        ("errors.deadletterqueue.copy.record.enable", BOOLEAN, "false"),
    ):
        yield row(name, config_type, default, not_served=_NO_SHARE)
    for name, config_type, default in (
        ("session.timeout.ms", INT, "45000"),
        ("heartbeat.interval.ms", INT, "5000"),
        ("num.standby.replicas", INT, "0"),
        ("initial.rebalance.delay.ms", INT, "3000"),
        ("assignment.interval.ms", INT, "1000"),
        ("assignor.offload.enable", BOOLEAN, "true"),
        ("task.offset.interval.ms", INT, "60000"),
        ("num.warmup.replicas", INT, "2"),
        ("rack.aware.assignment.tags", LIST, ""),
        ("acceptable.recovery.lag", LONG, "10000"),
    ):
        yield inherited(f"streams.{name}", config_type, default, not_served=_NO_STREAMS)
    yield row(
        "streams.assignor.name",
        STRING,
        "sticky",
        not_served=_NO_STREAMS,
        broker_name="group.streams.assignors",
    )


GROUP_KEYS: Mapping[str, GroupConfigRow] = {each.key.name: each for each in _rows()}


def judge_group_configs(config: BrokerConfig, configs: Mapping[str, str]) -> None:
    """Raise InvalidConfig, with Kafka's messages, unless a group may have these configs."""
    for name, value in configs.items():
        known = GROUP_KEYS.get(name)
        if known is None:
            raise InvalidConfig(f"Unknown group config name: {name}")
        if len(value) > VALUE_CHARACTERS_MAX:
            raise InvalidConfig(f"The value of {name} is longer than {VALUE_CHARACTERS_MAX}.")
        known.key.parse(value)
    for name in (HEARTBEAT, SESSION, INTERVAL):
        value, least, most = _value_and_bounds(config, configs, name)
        if value < least:
            raise InvalidConfig(f"{name} must be greater than or equal to {_bound(name, 'min')}")
        if value > most:
            raise InvalidConfig(f"{name} must be less than or equal to {_bound(name, 'max')}")
    session_ms, _, _ = _value_and_bounds(config, configs, SESSION)
    heartbeat_ms, _, _ = _value_and_bounds(config, configs, HEARTBEAT)
    if session_ms <= heartbeat_ms:
        raise InvalidConfig(f"{SESSION} must be greater than {HEARTBEAT}")


def consumer_group_settings(
    config: BrokerConfig, configs: Mapping[str, str]
) -> ConsumerGroupSettings:
    """Return the effective settings of a group that has these configs.

    A value outside of the current bounds is replaced by the nearest bound, as in Kafka.
    """
    values: list[int] = []
    for name in (SESSION, HEARTBEAT, INTERVAL):
        value, least, most = _value_and_bounds(config, configs, name)
        values.append(min(max(value, least), most))
    session_ms, heartbeat_ms, interval_ms = values
    return ConsumerGroupSettings(
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=heartbeat_ms,
        assignment_interval_ms=interval_ms,
        max_size=config.group_consumer_max_size,
        assignors=config.group_consumer_assignors,
    )


def _value_and_bounds(
    config: BrokerConfig, configs: Mapping[str, str], name: str
) -> tuple[int, int, int]:
    attribute = name.removeprefix("consumer.").replace(".", "_")
    own = configs.get(name)
    inherited = getattr(config, f"group_consumer_{attribute}")
    return (
        inherited if own is None else GROUP_KEYS[name].key.parse_unchecked(own),
        getattr(config, f"group_consumer_min_{attribute}"),
        getattr(config, f"group_consumer_max_{attribute}"),
    )


def _bound(name: str, which: str) -> str:
    return f"group.consumer.{which}.{name.removeprefix('consumer.')}"
