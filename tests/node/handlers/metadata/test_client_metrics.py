"""Test the configs that subscribe to client metrics (KIP-714)."""

import pytest

from oncelog.coordinator.metadata.cluster_state import ClusterState
from oncelog.node.config import client_metrics
from oncelog.wire.errors import ErrorCode

from ...fake_broker import FakeBroker
from .test_configs import (
    APPEND,
    DESCRIBE,
    LIST,
    SET,
    SUBTRACT,
    UNSET,
    alter,
    change,
    described,
    resource,
    synonyms_of,
)

CLIENT_METRICS = 16
INTERVAL, MATCH, METRICS = "interval.ms", "match", "metrics"


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


def test_client_metrics_subscription_is_stored_shown_and_deleted(broker: FakeBroker) -> None:
    operations = ((INTERVAL, SET, "100"), (MATCH, SET, "client_id=a.*,client_source_port=9"))
    assert alter(broker, change(CLIENT_METRICS, "s", *operations)) == [(0, None)]
    shown = described(broker, CLIENT_METRICS, "s")
    assert {name: (entry.value, entry.config_source) for name, entry in shown.items()} == {
        INTERVAL: ("100", 7),
        MATCH: ("client_id=a.*,client_source_port=9", 7),
        METRICS: ("", 5),
    }
    assert synonyms_of(shown[INTERVAL]) == [(INTERVAL, "100", 7)]
    assert synonyms_of(shown[METRICS]) == []
    restored = ClusterState()
    restored.restore(broker.state.snapshot())
    assert restored.client_metrics_configs == broker.state.client_metrics_configs != {}
    assert restored.snapshot() == broker.state.snapshot()
    for version in (0, 1):
        listed = broker.ask(LIST, version, {"resource_types": [CLIENT_METRICS]}).config_resources
        assert [each.resource_name for each in listed] == ["s"]
    gone = change(CLIENT_METRICS, "s", *((name, UNSET, None) for name in shown))
    assert alter(broker, gone) == [(0, None)]
    assert broker.state.client_metrics_configs == {}


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_client_metrics_subscription_lists_are_only_replaced_as_a_whole(
    broker: FakeBroker, operation: int
) -> None:
    ((found, message),) = alter(broker, change(CLIENT_METRICS, "s", (METRICS, operation, "a")))
    assert (found, "not LIST" in message) == (ErrorCode.INVALID_CONFIG, True)


@pytest.mark.parametrize(
    ("name", "key", "value", "code"),
    [
        ("s", INTERVAL, "99", ErrorCode.INVALID_REQUEST),
        ("s", INTERVAL, "3600001", ErrorCode.INVALID_REQUEST),
        ("s", INTERVAL, "soon", ErrorCode.INVALID_CONFIG),
        ("s", MATCH, "client_id", ErrorCode.INVALID_CONFIG),
        ("s", MATCH, "client=a", ErrorCode.INVALID_CONFIG),
        ("s", MATCH, "client_id=(", ErrorCode.INVALID_CONFIG),
        ("s", MATCH, "client_id=" + "a" * 2_000, ErrorCode.INVALID_CONFIG),
        ("s", "no.such.key", "1", ErrorCode.INVALID_REQUEST),
        ("", INTERVAL, "100", ErrorCode.INVALID_REQUEST),
        ("s" * 1_001, INTERVAL, "100", ErrorCode.INVALID_REQUEST),
    ],
)
def test_client_metrics_subscription_that_is_invalid_is_refused(
    broker: FakeBroker, name: str, key: str, value: str, code: int
) -> None:
    ((found, message),) = alter(broker, change(CLIENT_METRICS, name, (key, SET, value)))
    assert (found, bool(message)) == (code, True)
    assert broker.state.client_metrics_configs == {}


def test_client_metrics_subscription_without_a_name_is_not_described(broker: FakeBroker) -> None:
    (result,) = broker.ask(DESCRIBE, 4, {"resources": [resource(CLIENT_METRICS, "")]}).results
    assert result.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "expression", ["(?i)" + 60 * "[\u0100-\uffff]", 300 * "a", "[\u0100-\uffff]"]
)
def test_client_metrics_pattern_is_stored_uncompiled(
    broker: FakeBroker, expression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_metrics.re, "compile", pytest.fail)
    match = f"client_id={expression}"
    assert alter(broker, change(CLIENT_METRICS, "s", (MATCH, SET, match))) == [(0, None)]
