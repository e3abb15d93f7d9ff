"""The static configuration of one broker under Kafka's names, as one validated, immutable value.

An unknown key is refused, and so is a value that this broker cannot apply. The error says why. Keys
that only tune Kafka are accepted (`tuning_keys`). The same table of keys parses server.properties,
answers DescribeConfigs and generates the documentation.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ...storage.topic_configs import TOPIC_CONFIGS, parse_topic_configs
from ...wire.errors import InvalidConfig, KafkaError
from ...wire.security.secret import HIDDEN, Secret
from .broker_keys import BrokerSettings
from .keys import COARSER_UNITS, PASSWORD, BrokerKey, parse_properties, topic_default_keys
from .known_keys import KNOWN_KEYS
from .listener_keys import LISTENER_ATTRIBUTES
from .listeners import Listener, listener_key, parse_listeners
from .quota_keys import THROTTLE_KEYS
from .tuning_keys import TUNING_KEYS

_VOTERS_ALLOWED = (1, 3, 4, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(BrokerSettings):
    """The static configuration of a broker.

    `topic_defaults` maps topic config names to the values in this broker's file, and always has
    min.insync.replicas. `static_values` holds the keys of the file with their original text, with
    passwords hidden. `endpoints` are the listeners.
    """

    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    static_values: Mapping[str, str] = field(default_factory=dict)
    endpoints: tuple[Listener, ...] = ()

    @classmethod
    def from_file(cls, path: Path) -> "BrokerConfig":
        """Read server.properties.

        Raises OSError, or InvalidConfig like `from_properties`.
        """
        return cls.from_properties(parse_properties(path.read_text(encoding="utf-8")))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> "BrokerConfig":
        """Parse these keys and values, or raise InvalidConfig.

        The exception has the errors of all keys. Only if there are none, it has the first error of
        the rules that involve several keys.
        """
        complaints: list[str] = []
        values: dict[str, Any] = {}
        overrides: dict[str, dict[str, Any]] = {}
        for name, text in properties.items():
            of_listener = listener_key(name)
            if of_listener is not None and of_listener[1] in LISTENER_ATTRIBUTES:
                listener, key_name = of_listener
                attribute = LISTENER_ATTRIBUTES[key_name]
                try:
                    value = BROKER_KEYS[key_name].parse(text)
                except KafkaError as problem:
                    complaints.append(f"{name}: {problem}")
                else:
                    overrides.setdefault(listener, {})[attribute] = value
            elif name not in BROKER_KEYS:
                complaints.append(_unknown(name))
        for name, key in BROKER_KEYS.items():
            attribute = _ATTRIBUTES.get(name)
            if name in properties:
                try:
                    value = key.parse(properties[name])
                except KafkaError as problem:
                    complaints.append(str(problem))
                    continue
                if attribute is not None:
                    values[attribute] = value
            elif attribute is not None and key.default is None:
                complaints.append(f"Missing required configuration {name}: {key.doc}")
        if complaints:
            raise InvalidConfig("\n".join(complaints))
        config = cls(**values, static_values=_without_secrets(properties), topic_defaults={})
        config._check_together()
        return config._with_listeners(overrides)._with_derived_defaults()

    def _check_together(self) -> None:
        """Check rules that involve several keys, or raise InvalidConfig."""
        if len(set(self.voters)) != len(self.voters) or not all(v.isdigit() for v in self.voters):
            raise InvalidConfig(f"oncelog.voters must be different numbers: {self.voters}")
        if len(self.voters) == 2:
            raise InvalidConfig(
                "Two nodes have no majority without each other: take 1, 3, 4, or 5."
            )
        if len(self.voters) not in _VOTERS_ALLOWED:
            raise InvalidConfig(f"A cluster has 1, 3, 4, or 5 nodes, not {len(self.voters)}.")
        if str(self.node_id) not in self.voters:
            raise InvalidConfig(
                f"node.id {self.node_id} is not among oncelog.voters {self.voters}."
            )
        if self.broker_heartbeat_interval_ms * 2 > self.broker_session_timeout_ms:
            raise InvalidConfig(
                "broker.session.timeout.ms must be at least twice broker.heartbeat.interval.ms."
            )
        self.check_consumer_groups()

    def _with_listeners(self, overrides: Mapping[str, Mapping[str, Any]]) -> "BrokerConfig":
        """Return a copy with the parsed listeners as `endpoints`.

        overrides: the values of `listener.name.NAME.KEY`, by listener name and then by attribute.
        Raises InvalidConfig if the listeners are invalid, or if a key belongs to an unknown
        listener.
        """
        endpoints = parse_listeners(
            self.listeners, self.advertised_listeners, self.listener_security_protocol_map
        )
        names = [each.name for each in endpoints]
        for listener in overrides:
            if listener not in names:
                raise InvalidConfig(
                    f"listener.name.{listener.lower()}. configures a listener that listeners does "
                    f"not name: {', '.join(names)}."
                )
        inter_broker = self.inter_broker_listener_name.upper()
        advertised = [each.name for each in endpoints if each.advertised is not None]
        if inter_broker and inter_broker not in advertised:
            raise InvalidConfig(
                "inter.broker.listener.name must be a listener name defined in "
                "advertised.listeners. The valid options based on currently configured listeners "
                f"are {','.join(advertised)}"
            )
        given = tuple(replace(each, overrides=overrides.get(each.name, {})) for each in endpoints)
        return replace(self, endpoints=given)

    def _with_derived_defaults(self) -> "BrokerConfig":
        values: dict[str, Any] = {}
        has_three = len(self.voters) >= 3
        if self.default_replication_factor == -1:
            values["default_replication_factor"] = 3 if has_three else 1
        if self.offsets_topic_replication_factor == -1:
            values["offsets_topic_replication_factor"] = values.get(
                "default_replication_factor", self.default_replication_factor
            )
        if not self.record_validation:  # the default is explained in decision 0015
            is_local = all(each.is_plain_loopback for each in self.endpoints)
            values["record_validation"] = "batch" if is_local else "skeleton"
        given = _in_milliseconds(self.static_values)
        topic_defaults = {
            row.name: given[row.broker_name]
            for row in TOPIC_CONFIGS.values()
            if row.broker_name in given
        }
        topic_defaults.setdefault("min.insync.replicas", self.min_insync_default)
        # raises InvalidConfig if two values contradict each other
        parse_topic_configs(topic_defaults)
        return replace(self, topic_defaults=topic_defaults, **values)

    def of_listener(self, listener: Listener) -> "BrokerConfig":
        """Return the configuration of a listener.

        The keys of the listener override the general keys.
        """
        return replace(self, **listener.overrides)

    @property
    def first_advertised(self) -> Listener:
        """Return the listener that is advertised to tools and other brokers."""
        advertised = [each for each in self.endpoints if each.advertised is not None]
        name = self.inter_broker_listener_name.upper()
        return next((each for each in advertised if each.name == name), advertised[0])

    @property
    def voter_ids(self) -> tuple[int, ...]:
        """Return the ids of the cluster's nodes in ascending order."""
        return tuple(sorted(int(voter) for voter in self.voters))

    @property
    def min_insync_default(self) -> str:
        """Return the default of min.insync.replicas, which depends on the number of voters."""
        return "2" if len(self.voters) >= 3 else "1"

    @property
    def log_directory(self) -> Path:
        return Path(self.log_dirs[0])

    @property
    def cluster_defaults(self) -> dict[str, str]:
        """Return the keys of this file that the metadata stores for all brokers (SetDefaults)."""
        controlled = {"oncelog.clock": self.clock} if self.clock != "system" else {}
        return {
            **controlled,
            "num.partitions": str(self.num_partitions),
            "default.replication.factor": str(self.default_replication_factor),
            "min.insync.replicas": self.topic_defaults["min.insync.replicas"],
            "unclean.leader.election.enable": self.topic_defaults.get(
                "unclean.leader.election.enable", "false"
            ),
        }

    def text_of(self, name: str) -> str | None:
        """Return the static value of a key as text, a password hidden, or None when it is unset."""
        key = BROKER_KEYS[name]
        attribute = _ATTRIBUTES.get(name)
        if key.topic_config == "min.insync.replicas":
            # the default depends on the number of voters
            return self.topic_defaults[key.topic_config]
        if attribute is None:
            return self.static_values.get(name, key.default) or None
        value = getattr(self, attribute)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, Secret):
            return HIDDEN if value else None
        if isinstance(value, tuple):
            return ",".join(value)
        return None if value == "" else str(value)


def _without_secrets(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the keys of a file with passwords and private keys hidden."""
    return {name: HIDDEN if _is_secret(name) else text for name, text in properties.items()}


def _is_secret(name: str) -> bool:
    of_listener = listener_key(name)
    key = BROKER_KEYS.get(name if of_listener is None else of_listener[1])
    return key is not None and key.type == PASSWORD


def _in_milliseconds(properties: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of the keys of a file, with those in hours and minutes as keys in milliseconds.

    A key that the file itself gives in milliseconds keeps its value, as in Kafka.
    """
    given = dict(properties)
    for name, (finer, unit_ms, _) in COARSER_UNITS.items():
        if name in given:
            count = int(given.pop(name))
            given.setdefault(finer, str(count * unit_ms if count >= 0 else -1))
    return given


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, BROKER_KEYS, n=1)
    return f"Unknown configuration {name}." + (f" Did you mean {near[0]}?" if near else "")


_ATTRIBUTES = {f.metadata["key"].name: f.name for f in fields(BrokerConfig) if "key" in f.metadata}
BROKER_KEYS: Mapping[str, BrokerKey] = {
    **{f.metadata["key"].name: f.metadata["key"] for f in fields(BrokerConfig) if f.metadata},
    **topic_default_keys({"min.insync.replicas": "2"}),
    **THROTTLE_KEYS,
    **TUNING_KEYS,
    **KNOWN_KEYS,
}
