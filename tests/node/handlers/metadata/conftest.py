"""A running broker for these tests."""

import pytest

from ...fake_broker import FakeBroker


@pytest.fixture
def broker() -> FakeBroker:
    """Return broker 1 of three, without topics."""
    return FakeBroker()
