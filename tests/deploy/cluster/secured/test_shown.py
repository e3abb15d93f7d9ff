"""Test that commands, pages, metrics, dumps and logs show no secret of a secured cluster."""

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar
from importlib.util import find_spec
from pathlib import Path

import pytest

from oncelog.client.admin import BROKER_RESOURCE
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.cluster.secured.files import passwords_of

from ....programs import CLI, run_to_end

KEY = "PRIVATE KEY"
COMMANDS = (
    "ps", "doctor --format json", "logs 1 --lines 100000", "topic describe orders", "group list",
    "txn list --format json", "txn log 0", "acl list", "top --once", "env",
    "env --client java --format json", "env --client librdkafka --user bob", "consume orders",
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    data = tmp_path_factory.mktemp("shown") / "data"
    with Cluster(1, data=data, secure=True) as found:
        found.ask(lambda admin: admin.create_topic("orders", partitions=1, replication_factor=1))
        yield found
        found.down(purge=True)


def secrets_of(cluster: Cluster) -> list[str]:
    return [*passwords_of(cluster.data).values(), KEY]


@pytest.mark.in_turn
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_on_a_secured_cluster_print_no_secret(cluster: Cluster, command: str) -> None:
    done = run_to_end([*CLI, *command.split(), "--data", str(cluster.data)])
    told = done.stdout + done.stderr
    assert done.returncode in (0, 1) and "Traceback" not in told, told
    assert not [secret for secret in secrets_of(cluster) if secret in told]


def test_broker_configs_described_to_the_admin_hide_their_secrets(cluster: Cluster) -> None:
    found = cluster.ask(lambda admin: admin.describe_configs("1", BROKER_RESOURCE))
    assert any("jaas" in each.name and each.is_sensitive for each in found)
    assert not [each.name for each in found if each.is_sensitive and each.value]
    told = json.dumps([[each.name, each.value] for each in found])
    assert not [secret for secret in secrets_of(cluster) if secret in told]


@pytest.mark.in_turn
@pytest.mark.skipif(find_spec("uvicorn") is None, reason="the extra ui is not installed")
def test_ui_pages_of_a_secured_cluster_show_no_secret(cluster: Cluster) -> None:
    command = [*CLI, "ui", "--no-open", "--data", str(cluster.data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[2]
            browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
            told = browser.open(address, timeout=30).read().decode()
            root = address.partition("/?")[0]
            for path in ("/api/cluster", "/api/topics", "/topics", "/api/events", "/timeline"):
                told += browser.open(root + path, timeout=30).read().decode()
            assert "orders" in told
            assert not [secret for secret in secrets_of(cluster) if secret in told]
        finally:
            process.terminate()


def test_secured_cluster_files_are_readable_only_by_their_owner(cluster: Cluster) -> None:
    command = ["find", str(cluster.data), "-perm", "/077", "!", "-type", "l"]
    assert run_to_end(command).stdout == ""
    assert (Path(cluster.data) / "tls" / "node.pem").exists()
