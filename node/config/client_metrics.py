"""Subscriptions to metrics of clients (KIP-714), a resource type of configurations.

Subscriptions are stored and described, but clients are never asked for metrics. Kafka's brokers do
the same if no plugin receives metrics.
"""

import re
from collections.abc import Mapping

from ...wire.errors import InvalidConfig, InvalidRequest
from .keys import INT, LIST, BrokerKey

VALUE_CHARACTERS_MAX, COMPILED_CHARACTERS_MAX = 2_000, 200
INTERVAL, MATCH = "interval.ms", "match"
INTERVAL_MS_MIN, INTERVAL_MS_MAX = 100, 3_600_000
MATCHED = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
CLIENT_METRICS_KEYS: Mapping[str, BrokerKey] = {
    key.name: key
    for key in (
        BrokerKey(
            name=INTERVAL,
            type=INT,
            default="300000",
            doc="How often clients push.",
        ),
        BrokerKey(
            name=MATCH,
            type=LIST,
            default="",
            doc="Which clients push: NAME=REGULAR EXPRESSION,...; all where it is empty.",
        ),
        BrokerKey(
            name="metrics",
            type=LIST,
            default="",
            doc="Prefixes of the names of metrics; * is all of them.",
        ),
    )
}


def judge_client_metrics_configs(configs: Mapping[str, str]) -> None:
    """Raise InvalidConfig or InvalidRequest unless these configs are a valid subscription."""
    for name, value in configs.items():
        key = CLIENT_METRICS_KEYS.get(name)
        if key is None:
            raise InvalidRequest(f"Unknown client metrics configuration: {name}")
        if len(value) > VALUE_CHARACTERS_MAX:
            raise InvalidConfig(f"The value of {name} is longer than {VALUE_CHARACTERS_MAX}.")
        parsed = key.parse(value)
        if name == INTERVAL and not INTERVAL_MS_MIN <= parsed <= INTERVAL_MS_MAX:
            raise InvalidRequest(
                f"Invalid value {parsed} for interval.ms, interval must be between "
                f"{INTERVAL_MS_MIN} and {INTERVAL_MS_MAX} (1 hour)"
            )
        if name == MATCH:
            for pattern in parsed:
                _check_pattern(pattern)


def _check_pattern(pattern: str) -> None:
    """Raise InvalidConfig for a pattern that Python's re does not accept. Kafka uses Java's syntax.

    A pattern that would take long to compile is not checked, since it is never applied to a client.
    """
    name, equals, expression = (part.strip() for part in pattern.partition("="))
    if not equals or name not in MATCHED:
        raise InvalidConfig(f"Illegal client matching pattern: {pattern}")
    if len(expression) > COMPILED_CHARACTERS_MAX or not expression.isascii() or "(?" in expression:
        return
    try:
        re.compile(expression)
    except (re.error, RecursionError, OverflowError):
        raise InvalidConfig(f"Illegal client matching pattern: {pattern}") from None
