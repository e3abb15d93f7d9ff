"""A coordinator with one shard, in the loop of the test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from .one_node import OneNode


@pytest.fixture
@asynccontextmanager
async def node() -> AsyncIterator[OneNode]:
    yield OneNode()
