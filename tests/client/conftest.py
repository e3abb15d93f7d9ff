"""Fixtures for the tests of dual writes and outboxes, with a cluster and both databases.

The tests belong to one xdist group, so that one worker runs them.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.client import BlockingAdmin
from oncelog.deploy.cluster.local_cluster import Cluster

from .dual_write.ledger import Ledger, sqlite_ledger
from .dual_write.postgresql import PostgresServer, postgresql


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(nodes=1, data=tmp_path_factory.mktemp("dual") / "data") as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap(cluster: Cluster) -> str:
    return cluster.bootstrap


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgresql() as running:
        yield running


@pytest.fixture
def server(postgres: PostgresServer) -> PostgresServer:
    """Return the PostgreSQL server, after starting it if the last test has left it stopped."""
    if not postgres.is_started:
        postgres.start()
    return postgres


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the path of a SQLite database, or the URL of a PostgreSQL database."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger")
    return request.getfixturevalue("server").url


@pytest.fixture
def ledger(database: str, request: pytest.FixtureRequest) -> Ledger:
    if not database.startswith("postgresql:"):
        return sqlite_ledger(Path(database)).create()
    return Ledger(request.getfixturevalue("server").connect, "%s").create()


@pytest.fixture
def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    name = "".join(c if c.isalnum() else "." for c in request.node.name)[-100:]
    with BlockingAdmin(bootstrap) as admin:
        admin.create_topic(name, partitions=2)
    return name
