"""A transaction coordinator with one shard, without other nodes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from .one_node import OneNode


@pytest.fixture
@asynccontextmanager
async def node() -> AsyncIterator[OneNode]:
    yield OneNode()
