"""A PostgreSQL server of a test's own."""

import contextlib
from collections.abc import Iterator

import pytest

from oncelog.deploy.faults.postgres_server import PostgresServer, postgres_server, why_there_is_none


@contextlib.contextmanager
def postgresql() -> Iterator[PostgresServer]:
    """A running server. Skips with a word where there is none, or it may not be started."""
    if why := why_there_is_none():
        pytest.skip(why)
    with postgres_server() as server:
        yield server
