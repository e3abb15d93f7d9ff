"""Run a PostgreSQL server for tests."""

import contextlib
from collections.abc import Iterator

import pytest

from oncelog.deploy.faults.postgres_server import PostgresServer, postgres_server, why_there_is_none


@contextlib.contextmanager
def postgresql() -> Iterator[PostgresServer]:
    """Yield a running server, or skip the test with a reason if none can be started."""
    if why := why_there_is_none():
        pytest.skip(why)
    with postgres_server() as server:
        yield server
