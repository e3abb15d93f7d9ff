"""An empty working directory for commands of the docs, and a cluster of three nodes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster

from ..programs import CLI, printed_by


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yield an empty folder, and at the end remove the cluster that commands have started in it."""
    yield tmp_path
    if (tmp_path / ".oncelog").exists():
        printed_by([*CLI, "down", "--purge"], cwd=tmp_path)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield a cluster of three nodes with the data directory `.oncelog` in a new folder."""
    with Cluster(3, data=tmp_path_factory.mktemp("reader") / ".oncelog") as cluster:
        yield cluster
