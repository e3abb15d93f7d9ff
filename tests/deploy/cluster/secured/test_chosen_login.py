"""Test which user a command run in the directory of a secured cluster logs in as."""

from pathlib import Path

import pytest

from oncelog.deploy.cluster import layout
from oncelog.deploy.cluster.lookup import ClusterChoice
from oncelog.deploy.cluster.plan import ClusterPlan
from oncelog.deploy.cluster.private import make_private_directory
from oncelog.deploy.cluster.secured import files


@pytest.mark.parametrize("user", [None, "alice"])
def test_command_logs_in_as_admin_unless_a_file_names_another_user(
    tmp_path: Path, user: str | None
) -> None:
    data, file = tmp_path / "data", tmp_path / "alice.properties"
    make_private_directory(data)
    cluster = ClusterPlan(nodes=1, is_secured=True).new_file()
    layout.write(data, cluster)
    files.prepare(data, cluster.bootstrap)
    login = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "wonder",
    }
    file.write_text("".join(f"{key}={value}\n" for key, value in login.items()))
    choice = ClusterChoice(data=data, command_config=file if user else None)
    config = choice.client_config()
    assert config["sasl.username"] == (user or "admin")
    assert config["bootstrap.servers"] == cluster.bootstrap
    assert user is None or config.keys() == {*login, "bootstrap.servers"}
