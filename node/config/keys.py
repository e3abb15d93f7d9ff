"""The definition of a configuration key, and the parser of server.properties.

The keys are fields of `BrokerConfig`, each with its type, default, bounds, and doc. Broker keys
that only give the default of a topic config, such as log.segment.bytes, are derived from the
storage's table, so that both always agree.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ...storage.topic_configs import TOPIC_CONFIGS, ConfigType
from ...wire.errors import InvalidConfig, KafkaError
from ...wire.security.secret import HIDDEN, Secret

BOOLEAN, STRING, INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
SHORT, LONG, LIST = ConfigType.SHORT, ConfigType.LONG, ConfigType.LIST
PASSWORD = ConfigType.PASSWORD  # values of this type are `Secret`s, which are never shown
INTEGER_BITS = {INT: 32, SHORT: 16, LONG: 64}

Check = Callable[[Any], str | None]  # returns the error in a parsed value, or None


def anything(value: Any) -> str | None:
    return None


def at_least(least: int) -> Check:
    """Return a check for an inclusive lower bound."""
    return lambda value: None if value >= least else f"Value must be at least {least}"


def at_least_one_or_default(value: int) -> str | None:
    """Accept -1 and every value from 1 on. -1 stands for a default that depends on other keys."""
    return None if value >= 1 or value == -1 else "Value must be at least 1, or -1"


def between(least: int, most: int) -> Check:
    """Return a check for an inclusive lower and upper bound."""
    return lambda value: (
        None if least <= value <= most else f"Value must be between {least} and {most}"
    )


def some_of(*allowed: str) -> Check:
    """Return a check for a list of one or more of these values, without repetitions."""
    return lambda value: (
        None
        if value and len(set(value)) == len(value) and set(value) <= set(allowed)
        else f"Must be different words of: {', '.join(allowed)}"
    )


def one_of(*allowed: str) -> Check:
    """Return a check for one of these values."""
    return lambda value: (
        None if value in allowed else f"String must be one of: {', '.join(allowed)}"
    )


def one_of_in_any_case(*allowed: str) -> Check:
    """Return a check for one of these values, in upper or lower case."""
    return lambda value: (
        None
        if value.lower() in allowed
        else f"String must be one of (case insensitive): {', '.join(allowed)}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerKey:
    """One key of server.properties.

    `default` is text. A key with the default None must be set, and "" means unset. `kafka_default`
    is given only where Kafka's default differs. A key with `not_served` accepts only its default,
    for the reason in `not_served`. A dynamic key can be changed while brokers run, for one broker
    or for the whole cluster (KIP-226). `topic_config` is the topic config that takes its default
    from the key.

    `shown_unset` says how DescribeConfigs shows a key that is not set: as null, as empty text, or
    not at all. A key that is not `is_shown` is also left out when it is set.
    """

    name: str
    type: ConfigType
    default: str | None
    doc: str
    check: Check = anything
    kafka_default: str | None = None
    not_served: str | None = None
    is_dynamic: bool = False
    topic_config: str | None = None
    shown_unset: Literal["null", "empty", "hidden"] = "null"
    is_shown: bool = True

    def parse(self, text: str) -> Any:
        """Return the typed value, or raise InvalidConfig with Kafka's message."""
        try:
            value = self.parse_unchecked(text)
        except ValueError as problem:
            raise self._invalid(text, str(problem)) from None
        if complaint := self.check(value):
            raise self._invalid(text, complaint)
        if self.not_served and text.strip() != self.default:
            raise self._invalid(text, self.not_served)
        return value

    def parse_unchecked(self, text: str) -> Any:
        """Return the typed value without a check of its bounds.

        Raises ValueError for a wrong type.
        """
        return _parse(self.type, text.strip())

    def _invalid(self, text: str, complaint: str) -> KafkaError:
        if self.type == PASSWORD:
            text = HIDDEN
        return InvalidConfig(f"Invalid value {text} for configuration {self.name}: {complaint}")


def setting(
    name: str,
    config_type: ConfigType,
    default: str | None,
    doc: str,
    check: Check = anything,
    **details: Any,
) -> Any:
    """Return a field of BrokerConfig that is read from a key.

    A key without a default is required.
    """
    key = BrokerKey(name=name, type=config_type, default=default, doc=doc, check=check, **details)
    metadata = {"key": key}
    return (
        field(metadata=metadata)
        if default is None
        else field(default=_parse(config_type, default), metadata=metadata)
    )


def topic_default_keys(own_defaults: Mapping[str, str]) -> dict[str, BrokerKey]:
    """Return the broker keys that give the defaults of topic configs.

    own_defaults: the defaults by topic config name that differ from Kafka's.
    """
    keys = {}
    without_default = {FLUSH_MS, *(finer for finer, _, _ in COARSER_UNITS.values())}
    for row in TOPIC_CONFIGS.values():
        if row.broker_name is not None:
            own = own_defaults.get(row.name)
            default = row.default if own is None else own
            keys[row.broker_name] = BrokerKey(
                name=row.broker_name,
                type=row.type,
                default="" if row.broker_name in without_default else default,
                doc=f"{row.doc} For topics that do not set {row.name}.",
                check=row.check,
                kafka_default=None if own is None else row.default,
                not_served=row.not_served,
                is_dynamic=True,
                topic_config=row.name,
            )
    for name, (finer, unit_ms, default) in COARSER_UNITS.items():
        keys[name] = BrokerKey(
            name=name,
            type=INT,
            default=default,
            doc=f"Like {finer}, in units of {unit_ms:,} ms. {finer} is used if it is set.",
        )
    return keys


FLUSH_MS = "log.flush.interval.ms"  # unset in Kafka, where another key stands in for it
# Kafka's keys in hours and minutes, each with its key in ms, the ms of a unit, and its default (""
# is unset). Minutes are listed before hours, since the finer unit takes precedence.
COARSER_UNITS = {
    "log.retention.minutes": ("log.retention.ms", 60_000, ""),
    "log.retention.hours": ("log.retention.ms", 3_600_000, "168"),
    "log.roll.hours": ("log.roll.ms", 3_600_000, "168"),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", 3_600_000, "0"),
}


def parse_properties(text: str) -> dict[str, str]:
    r"""Return the keys and values of a Java properties file.

    # and ! begin a comment, = or : ends a key, \ at the end of a line continues the line, and \
    before another character is an escape. Raises InvalidConfig for a line without = or :, and for a
    repeated key, which Java accepts.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(text):
        found = _KEY_AND_VALUE.match(line)
        if found is None:
            raise InvalidConfig(f"Line {number} is not key=value: {line}")
        name, value = (_ESCAPE.sub(_unescaped, part).strip() for part in found.groups())
        if name in properties:
            raise InvalidConfig(f"Line {number} sets {name} a second time.")
        properties[name] = value
    return properties


_KEY_AND_VALUE = re.compile(r"((?:\\.|[^\\=:])+)[=:](.*)", re.DOTALL)
_END_OF_LINE = re.compile(r"\r\n|\n|\r")  # the line ends of Java, and none of the others of Unicode
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPED.get(code, code)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with its continuation lines joined, and the number of its last line.

    Comments and blank lines are skipped.
    """
    begun = ""
    lines = _END_OF_LINE.split(text)
    for number, raw in enumerate(lines, 1):
        line = begun + raw.strip()
        if not begun and line[:1] in ("", "#", "!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        begun = line[:-1] if backslashes % 2 else ""
        if not begun:
            yield number, line
    if begun:
        yield len(lines), begun


def _parse(config_type: ConfigType, text: str) -> Any:
    if config_type == BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise ValueError("Expected value to be either true or false")
        return text.lower() == "true"
    if config_type == PASSWORD:
        return Secret(text)
    if config_type == LIST:
        return tuple(item.strip() for item in text.split(",")) if text else ()
    if config_type in INTEGER_BITS:
        bound = 1 << (INTEGER_BITS[config_type] - 1)
        digits = text[1:] if text[:1] in ("-", "+") else text
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
            raise ValueError(f"Not a number of type {config_type.name}")
        value = int(text)
        if not -bound <= value < bound:
            raise ValueError(f"Not a number of type {config_type.name}")
        return value
    if config_type == ConfigType.DOUBLE:
        try:
            return float(text)
        except ValueError:
            raise ValueError("Not a number of type DOUBLE") from None
    return text
