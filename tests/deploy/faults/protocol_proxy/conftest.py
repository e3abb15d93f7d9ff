"""Fixtures that live in the loop of a test."""

import pytest

from .scripted_broker import bench as new_bench


@pytest.fixture
def bench():
    return new_bench()
