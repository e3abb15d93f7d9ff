"""A listener with default limits."""

from contextlib import AbstractAsyncContextManager

import pytest

from .toy_server import Bench, toy_server


@pytest.fixture
def bench() -> AbstractAsyncContextManager[Bench]:
    return toy_server()
