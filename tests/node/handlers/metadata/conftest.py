"""A broker for the tests of metadata requests."""

import pytest

from ...fake_broker import FakeBroker


@pytest.fixture
def broker() -> FakeBroker:
    """Return broker 1 of a cluster with three brokers and no topics."""
    return FakeBroker()
