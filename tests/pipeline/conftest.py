"""Fixtures with one small cluster for all pipeline tests.

spark_session.py has the Spark session.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.client import BlockingAdmin
from oncelog.deploy.cluster.local_cluster import Cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(nodes=1, data=tmp_path_factory.mktemp("oncelog") / "data") as running:
        yield running


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[BlockingAdmin]:
    with BlockingAdmin(cluster.bootstrap) as admin:
        yield admin


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
