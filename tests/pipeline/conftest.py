"""One JVM and one small cluster for everything here that needs them.

Tests that take `spark` belong to one xdist group, so that with --dist loadgroup one worker has the
only JVM; the tests are marked here, not one by one.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncelog.client import BlockingAdmin
from oncelog.deploy.cluster.local_cluster import Cluster

from .class_archive import class_archive
from .standalone import SHORT_LIVED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDS_JVM = {"spark"}


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if NEEDS_JVM & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.filterwarnings("default"))  # pyspark's own, by the dozen


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A session with two tasks at a time; a task that fails is tried again twice."""
    pytest.importorskip("pyspark")
    from oncelog.pipeline import spark_session

    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:  # what its workers need to start quickly
        patch.setenv("PYTHONPATH", str(Path(__file__).with_name("daemon")), prepend=os.pathsep)
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        session = spark_session(
            "oncelog-tests",
            master="local[2,3]",
            sql_shuffle_partitions=2,
            sql_warehouse_dir=str(folder / "warehouse"),
            local_dir=str(folder),
            log_level="ERROR",
            driver_extraJavaOptions=f"{SHORT_LIVED} {class_archive()}",
            python_daemon_module="oncelog_test_daemon",
        )
        yield session
        session.stop()


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
