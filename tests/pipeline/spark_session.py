"""One JVM for all tests that use `spark`, in the pipeline and in the audit of proof/.

Tests with Spark belong to one xdist group (tests/conftest.py). With --dist loadgroup, only one
worker starts a JVM.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .class_archive import class_archive
from .standalone import SHORT_LIVED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """Return a session that runs two tasks at a time and repeats a failed task twice."""
    pytest.importorskip("pyspark")
    from oncelog.pipeline import spark_session

    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:  # its workers need these to start quickly
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
