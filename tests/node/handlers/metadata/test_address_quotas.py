"""Test DescribeClientQuotas and AlterClientQuotas for IP addresses (KIP-612)."""

from typing import Any

import pytest

from oncelog.wire.errors import ErrorCode

from ...fake_broker import FakeBroker

DESCRIBE, ALTER = 48, 49
RATE = "connection_creation_rate"
EXACT, OF_DEFAULT, ANY = 0, 1, 2


def alter(
    broker: FakeBroker,
    *entity: tuple[str, str | None],
    key: str = RATE,
    value: float = 9.0,
    removes: bool = False,
) -> tuple[int, str | None]:
    parts = [{"entity_type": kind, "entity_name": name} for kind, name in entity]
    operations = [{"key": key, "value": value, "remove": removes}]
    question = {"entries": [{"entity": parts, "ops": operations}], "validate_only": False}
    (entry,) = broker.ask(ALTER, 1, question).entries
    return entry.error_code, entry.error_message


def described(broker: FakeBroker, match_type: int, match: str | None = None) -> list[Any]:
    component = {"entity_type": "ip", "match_type": match_type, "match": match}
    answer = broker.ask(DESCRIBE, 1, {"components": [component], "strict": True})
    return [
        ([(e.entity_type, e.entity_name) for e in entry.entity], entry.values[0].value)
        for entry in answer.entries
    ]


def test_address_quota_is_set_described_and_removed(broker: FakeBroker) -> None:
    assert alter(broker, ("user", "u"), key="producer_byte_rate") == (0, None)
    assert alter(broker, ("ip", "10.0.0.1")) == (0, None)
    assert alter(broker, ("ip", None), value=4.0) == (0, None)
    own, default = ([("ip", "10.0.0.1")], 9.0), ([("ip", None)], 4.0)
    assert described(broker, ANY) == [own, default]
    assert described(broker, EXACT, "10.0.0.1") == [own]
    assert described(broker, OF_DEFAULT) == [default]
    assert described(broker, EXACT, "10.0.0.2") == described(broker, EXACT, "no address") == []
    assert alter(broker, ("ip", "10.0.0.1"), removes=True) == (0, None)
    assert described(broker, ANY) == [default]


def test_address_quota_is_found_by_each_text_form_of_the_address(broker: FakeBroker) -> None:
    assert alter(broker, ("ip", "0:0:0:0:0:0:0:1")) == (0, None)
    assert described(broker, EXACT, "::1") == described(broker, EXACT, "0::1")
    assert described(broker, ANY) == [([("ip", "::1")], 9.0)]


@pytest.mark.parametrize(
    ("entity", "key", "says"),
    [
        ([("ip", "1.2.3.4.5")], RATE, "1.2.3.4.5 is not a valid IP or resolvable host."),
        ([("ip", "")], RATE, "Empty ip not supported"),
        ([("ip", "10.0.0.1"), ("user", "u")], RATE, "Invalid quota entity combination"),
        ([("ip", "10.0.0.1")], "producer_byte_rate", "Invalid configuration key"),
        ([("user", "u")], RATE, "Invalid configuration key"),
    ],
)
def test_address_quota_with_an_invalid_entity_or_key_is_refused(
    broker: FakeBroker, entity: list[tuple[str, str | None]], key: str, says: str
) -> None:
    code, message = alter(broker, *entity, key=key)
    assert code == ErrorCode.INVALID_REQUEST
    assert message is not None and message.startswith(says)
    assert len(broker.state.quotas) == 0
