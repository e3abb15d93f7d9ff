"""A fixture with a proxy and a scripted broker in the event loop of the test."""

import pytest

from .scripted_broker import bench as new_bench


@pytest.fixture
def bench():
    return new_bench()
