"""The broker that these tests ask."""

import pytest

from ...fake_broker import FakeBroker


@pytest.fixture
def broker() -> FakeBroker:
    """Broker 1 of three, without topics."""
    return FakeBroker()
