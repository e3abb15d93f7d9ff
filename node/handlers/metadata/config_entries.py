"""The effective values of configs, and their sources.

The order of precedence is Kafka's: the topic's own value, this broker's dynamic value, the
cluster's dynamic value (KIP-226), this broker's file, the default. All sources that have a value
are listed as synonyms, and the first is effective.
"""

from collections.abc import Iterator, Mapping
from itertools import dropwhile
from typing import NamedTuple

from ....coordinator.metadata.cluster_tables import WHOLE_CLUSTER
from ....storage.topic_configs import TOPIC_CONFIGS, ConfigType, TopicConfig, text_as_parsed
from ....wire.errors import InvalidRequest
from ...config.broker_config import BROKER_KEYS
from ...config.client_metrics import CLIENT_METRICS_KEYS
from ...config.dynamic import topic_defaults_in_force
from ...config.group_configs import GROUP_KEYS
from ...config.keys import COARSER_UNITS, FLUSH_MS
from ...services import BrokerServices
from .logger_levels import logger_levels

NODE_ID_DIGITS_MAX = 10  # the length of a 31-bit number
UNKNOWN_TYPE = 0
MIN_IN_SYNC = "min.insync.replicas"
CONFIGS_MAX = 500  # the limit for one topic in a request, which is above the number of configs
# The values of Kafka's ConfigSource.
TOPIC, DYNAMIC_BROKER, DYNAMIC_CLUSTER, STATIC, DEFAULT = 1, 2, 3, 4, 5
LOGGER, CLIENT_METRICS, GROUP = 6, 7, 8


class Synonym(NamedTuple):
    """A key with a value and the source of the value, as a synonym in DescribeConfigs (KIP-226)."""

    name: str
    value: str | None
    source: int


class Entry(NamedTuple):
    """One config with its effective value and its synonyms, as DescribeConfigs shows it."""

    name: str
    value: str | None
    source: int
    is_read_only: bool
    type: int
    synonyms: list[Synonym]
    doc: str


def effective_topic_configs(broker: BrokerServices, configs: Mapping[str, str]) -> list[Entry]:
    """Return all configs of a topic by name, given the configs set on the topic itself."""
    dynamic = {**broker.state.broker_configs, WHOLE_CLUSTER: _cluster_configs(broker)}
    defaults, sources = topic_defaults_in_force(broker.config, dynamic), _broker_sources(broker)
    return [
        _topic_entry(broker, row, configs, defaults, sources)
        for _, row in sorted(TOPIC_CONFIGS.items())
        if not row.is_internal
    ]


def as_parsed(entry: Entry) -> Entry:
    """Return the entry with its value, and its synonym of a topic or group, in Kafka's parsed form.

    Synonyms of brokers and defaults stay in their original text, as in Kafka's DescribeConfigs.
    """
    if entry.value is None or entry.source == DEFAULT:
        return entry
    value = text_as_parsed(ConfigType(entry.type), entry.value)
    synonyms = [
        each._replace(value=value) if each.source in (TOPIC, GROUP) else each
        for each in entry.synonyms
    ]
    return entry._replace(value=value, synonyms=synonyms)


def broker_entries(broker: BrokerServices) -> list[Entry]:
    """Return the visible configs of this broker, sorted by name, passwords without values."""
    entries, sources = [], _broker_sources(broker)
    for name, key in sorted(BROKER_KEYS.items()):
        if not key.is_shown:
            continue
        synonyms = _broker_synonyms(name, sources)
        if key.shown_unset == "hidden" and not any(each.source != DEFAULT for each in synonyms):
            continue
        value = synonyms[0].value if synonyms else None
        if not synonyms or synonyms[0].source == DEFAULT:
            # `text_of` resolves defaults that depend on other keys.
            value = broker.config.text_of(name) or value
        source = synonyms[0].source if synonyms else DEFAULT
        if key.type == ConfigType.PASSWORD:
            value, synonyms = None, [each._replace(value=None) for each in synonyms]
        entries.append(Entry(name, value, source, not key.is_dynamic, key.type, synonyms, key.doc))
    return entries


def dynamic_cluster_entries(broker: BrokerServices) -> list[Entry]:
    """Return the dynamic configs of the whole cluster."""
    entries = []
    for name, value in sorted(_cluster_configs(broker).items()):
        key = BROKER_KEYS.get(name)
        if key is not None:
            synonyms = [Synonym(name, value, DYNAMIC_CLUSTER)]
            entries.append(Entry(name, value, DYNAMIC_CLUSTER, False, key.type, synonyms, key.doc))
    return entries


def group_entries(broker: BrokerServices, group_id: str) -> list[Entry]:
    """Return all configs of a group by name, even for a missing group."""
    configs, sources = broker.state.group_configs.get(group_id, {}), _broker_sources(broker)
    entries: list[Entry] = []
    for name, (key, broker_name) in sorted(GROUP_KEYS.items()):
        if broker_name is not None and broker_name in BROKER_KEYS:
            synonyms = _broker_synonyms(broker_name, sources)
        else:  # the key's group type has no broker keys here
            synonyms = [Synonym(broker_name or name, key.default or "", DEFAULT)]
        if name in configs:
            synonyms.insert(0, Synonym(name, configs[name], GROUP))
        first = synonyms[0]
        entries.append(Entry(name, first.value, first.source, False, key.type, synonyms, key.doc))
    return entries


def client_metrics_entries(broker: BrokerServices, name: str) -> list[Entry]:
    """Return all configs of a metrics subscription by name, even for a missing one."""
    configs = broker.state.client_metrics_configs.get(name, {})
    entries: list[Entry] = []
    for key in CLIENT_METRICS_KEYS.values():
        value, source, synonyms = key.default, DEFAULT, list[Synonym]()
        if key.name in configs:
            value, source = configs[key.name], CLIENT_METRICS
            synonyms = [Synonym(key.name, value, source)]
        entries.append(Entry(key.name, value, source, False, key.type, synonyms, key.doc))
    return entries


def logger_entries() -> list[Entry]:
    """Return the levels of this process's loggers (`logger_levels`)."""
    return [
        Entry(name, level, LOGGER, False, UNKNOWN_TYPE, [], "") for name, level in logger_levels()
    ]


def node_id_of(resource_name: str) -> int:
    """Return the broker id in a resource's name, or raise InvalidRequest if it is not a number."""
    is_number = resource_name.isascii() and resource_name.isdigit()
    if not is_number or len(resource_name) > NODE_ID_DIGITS_MAX:
        raise InvalidRequest(f"Node id must be an integer, but it is: {resource_name}")
    return int(resource_name)


def _topic_entry(
    broker: BrokerServices,
    row: TopicConfig,
    configs: Mapping[str, str],
    defaults: Mapping[str, str],
    sources: "BrokerSources",
) -> Entry:
    synonyms = [] if row.broker_name is None else _broker_synonyms(row.broker_name, sources)
    if row.broker_name is not None and (not synonyms or synonyms[0].source == DEFAULT):
        synonyms = list(_coarser_synonyms(broker, row.broker_name)) or synonyms
    value = row.default
    if synonyms:
        value = defaults.get(row.name, synonyms[0].value)
    if row.name in configs:
        value = configs[row.name]
        synonyms.insert(0, Synonym(row.name, value, TOPIC))
    source = synonyms[0].source if synonyms else DEFAULT
    return Entry(row.name, value, source, False, row.type, synonyms, row.doc)


def _cluster_configs(broker: BrokerServices) -> dict[str, str]:
    """Return the dynamic configs of the whole cluster.

    The configs always include min.insync.replicas, which the metadata keeps for elections. Kafka
    keeps min.insync.replicas as a dynamic config while ELR is enabled (KIP-966), as one value for
    all brokers.
    """
    state = broker.state
    kept = {key: text for key, text in state.defaults.items() if key == MIN_IN_SYNC}
    return kept | state.broker_configs.get(WHOLE_CLUSTER, {})


def _stand_ins() -> dict[str, tuple[str, ...]]:
    """Return the group of alternative keys to which each such key belongs.

    One group is log.retention.ms, log.retention.minutes and log.retention.hours. The first key of a
    group that is set is effective.
    """
    found = {FLUSH_MS: [FLUSH_MS, "log.flush.scheduler.interval.ms"]}
    for coarser, (finer, _, _) in COARSER_UNITS.items():
        found.setdefault(finer, [finer]).append(coarser)
    return {name: tuple(names) for names in found.values() for name in names}


_STAND_INS = _stand_ins()


_DEFAULTS = {
    name: key.default or ""
    for name, key in BROKER_KEYS.items()
    if key.default or key.shown_unset == "empty"
}
BrokerSources = tuple[tuple[Mapping[str, str], int], ...]


def _broker_sources(broker: BrokerServices) -> BrokerSources:
    """Return the values of all keys from each source, the effective source first."""
    return (
        (broker.state.broker_configs.get(str(broker.node_id), {}), DYNAMIC_BROKER),
        (_cluster_configs(broker), DYNAMIC_CLUSTER),
        (broker.config.static_values, STATIC),
        ({**_DEFAULTS, MIN_IN_SYNC: broker.config.min_insync_default}, DEFAULT),
    )


def _broker_synonyms(name: str, sources: BrokerSources) -> list[Synonym]:
    """Return the values of a key by source, the effective one first.

    Values of alternative keys (`_stand_ins`) are omitted before the first value of the key itself.
    """
    names = _STAND_INS.get(name, (name,))
    found: list[Synonym] = []
    for values, source in sources:
        found += [Synonym(each, values[each], source) for each in names if each in values]
    return list(dropwhile(lambda synonym: synonym.name != name, found))


def _coarser_synonyms(broker: BrokerServices, name: str) -> Iterator[Synonym]:
    """Yield the keys of the file in hours or minutes that give the value of a key in ms."""
    values = broker.config.static_values
    for coarser in _STAND_INS.get(name, ()):
        if coarser in values and COARSER_UNITS.get(coarser, ("",))[0] == name:
            yield Synonym(coarser, values[coarser], STATIC)
