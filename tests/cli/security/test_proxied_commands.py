"""Test `inject` and `observe` in front of a cluster with TLS and logins."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from oncelog.cli import main
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.cluster.secured.files import client_file
from oncelog.deploy.faults.protocol_proxy.secured_ends import ca_of

pytestmark = pytest.mark.cluster
TIMEOUT_S = 60
INJECT = ("inject", "--api", "Produce", "--lose-answer", "--exit-when-done", "--seconds", "60")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(1, data=tmp_path_factory.mktemp("proxied") / "data", secure=True) as running:
        running.ask(lambda admin: admin.create_topic("orders", partitions=1, replication_factor=1))
        yield running


@contextmanager
def started(*arguments: str, cwd: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """Run an `oncelog` command until the block ends.

    Yield its process and the client settings in its first two lines of output.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "oncelog.cli", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(2)]
        assert all("=" in line for line in lines), process.communicate()
        yield process, dict(line.split("=", 1) for line in lines)
    finally:
        process.kill()
        process.communicate()


def produced(cluster: Cluster, told: dict[str, str]) -> object:
    errors: list[object] = []
    producer = Producer(cluster.client_config(**told, **{"enable.idempotence": True}))
    producer.produce("orders", b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(TIMEOUT_S)
    return errors


@pytest.mark.in_turn
def test_inject_proxy_of_a_secured_cluster_forwards_requests_of_a_logged_in_client(
    cluster: Cluster, tmp_path: Path
) -> None:
    with started(*INJECT, "--data", str(cluster.data), cwd=tmp_path) as (process, told):
        assert told["ssl.ca.location"] == str(ca_of(cluster.data))
        assert produced(cluster, told) == [None]
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err
    assert "its answer was lost" in out


def test_inject_proxy_with_a_ca_file_writes_its_ca_to_that_file(
    cluster: Cluster, tmp_path: Path
) -> None:
    file = client_file(cluster.data, "admin", "java")
    words = ["--command-config", str(file), "--ca-file", "proxy.pem"]
    with started(*INJECT, *words, cwd=tmp_path) as (process, told):
        assert told["ssl.ca.location"] == str(tmp_path / "proxy.pem")
        assert produced(cluster, told) == [None]
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err
    assert "its answer was lost" in out


@pytest.mark.in_turn
def test_observe_proxy_of_a_secured_cluster_sees_requests_of_a_logged_in_client(
    cluster: Cluster, tmp_path: Path
) -> None:
    words = ("observe", "--seconds", "10", "--data", str(cluster.data))
    with started(*words, cwd=tmp_path) as (process, told):
        assert produced(cluster, told) == [None]
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode in (0, 1), err  # 3: the address was never used


def test_inject_proxy_of_a_tls_cluster_without_a_ca_file_is_refused(
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    file = client_file(cluster.data, "admin", "librdkafka")
    assert main.run([*INJECT, "--command-config", str(file)]) == 2
    assert "--ca-file FILE" in " ".join(capsys.readouterr().err.split())
