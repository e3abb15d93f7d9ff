"""Test that UnregisterBroker removes a broker that has stopped."""

import pytest

from oncelog.wire.errors import ErrorCode

from ...fake_broker import FakeBroker

UNREGISTER = 64


@pytest.mark.parametrize(
    ("broker_id", "error"),
    [
        (1, ErrorCode.INVALID_REQUEST),
        (9, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (-1, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ],
)
def test_unregister_broker_of_a_live_or_unknown_broker_is_refused(
    broker_id: int, error: int
) -> None:
    broker = FakeBroker()
    assert broker.ask(UNREGISTER, 0, {"broker_id": broker_id}).error_code == error
    assert 1 in broker.services.state.brokers


def test_unregister_broker_of_a_stopped_broker_removes_its_registration() -> None:
    broker = FakeBroker()
    broker.fence(2)
    assert broker.ask(UNREGISTER, 0, {"broker_id": 2}).error_code == 0
    assert 2 not in broker.services.state.brokers
    again = broker.ask(UNREGISTER, 0, {"broker_id": 2})
    assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert again.error_message == "Broker ID 2 is not currently registered"
