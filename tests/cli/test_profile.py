"""Test profiles and environment variables, which name the cluster if no option does."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from oncelog.cli.common import ClusterOptions
from oncelog.cli.main import run
from oncelog.deploy.cluster import layout, profiles
from oncelog.deploy.cluster.failure import Failure

CLUSTER: dict[str, Any] = {"cluster_id": "c", "peer_directory": "p", "profile": "local"}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty working directory and return it.

    Profiles are stored in a file of the test, and no environment variable names a cluster.
    """
    for name in ("ONCELOG_BOOTSTRAP", "KAFKA_BOOTSTRAP_SERVERS", "SCHEMA_REGISTRY_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ONCELOG_PROFILES", str(tmp_path / "home" / "profiles.json"))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def bootstrap(**options: Any) -> str:
    return ClusterOptions(**options).client_config()["bootstrap.servers"]


def test_bootstrap_address_comes_from_option_then_directory_then_environment_then_profile(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Failure, match="There is no cluster in"):
        bootstrap()
    assert run(["profile", "set", "far", "--bootstrap", "far:1"]) == 0
    assert run(["profile", "set", "near", "--bootstrap", "near:1", "--registry", "http://r"]) == 0
    assert bootstrap() == "far:1"
    assert bootstrap(profile="near") == "near:1"
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "kafka:1")
    assert bootstrap() == "kafka:1"
    monkeypatch.setenv("ONCELOG_BOOTSTRAP", "ours:1")
    capsys.readouterr()
    assert bootstrap() == "ours:1"
    assert capsys.readouterr().err == "using the cluster ours:1, from ONCELOG_BOOTSTRAP\n"
    assert bootstrap(profile="near") == "near:1"
    nodes = [layout.NodeEntry(1, "127.0.0.1", 7)]
    (place / ".oncelog").mkdir()
    layout.write(place / ".oncelog", layout.ClusterFile(**CLUSTER, nodes=nodes))
    assert bootstrap() == "127.0.0.1:7"
    assert bootstrap(bootstrap="given:1", profile="near") == "given:1"


def test_bootstrap_environment_variable_is_ignored_with_a_data_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ONCELOG_BOOTSTRAP", "ours:1")
    with pytest.raises(Failure, match="There is no cluster in"):
        bootstrap(data=Path("elsewhere"))


def test_bootstrap_environment_variable_without_a_port_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "no-port")
    with pytest.raises(Failure, match="KAFKA_BOOTSTRAP_SERVERS: 'no-port' is not an address"):
        bootstrap()


def test_profile_with_a_client_properties_file_has_the_settings_of_the_file(place: Path) -> None:
    (place / "client.properties").write_text("bootstrap.servers=b:1\nsecurity.protocol=SSL\n")
    assert run(["profile", "set", "tls", "--command-config", "client.properties"]) == 0
    for profile in (None, "tls"):
        config = ClusterOptions(profile=profile).client_config()
        assert config == {"bootstrap.servers": "b:1", "security.protocol": "SSL"}


def test_registry_url_comes_from_named_profile_then_environment_then_current_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ClusterOptions().registry() is None
    run(["profile", "set", "p", "--registry", "http://r"])
    assert ClusterOptions().registry() == "http://r"
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", "http://e")
    assert ClusterOptions().registry() == "http://e"
    assert ClusterOptions(profile="p").registry() == "http://r"


def test_profile_commands_list_use_and_delete_profiles(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        run(["profile", "set", name, "--bootstrap", f"{name}:1"])
    run(["profile", "set", "b", "--bootstrap", "b:2"])
    assert run(["profile", "use", "b"]) == 0
    capsys.readouterr()
    run(["profile", "list", "--format", "json"])
    rows = json.loads(capsys.readouterr().out)
    assert [(r["profile"], r["current"], r["bootstrap"]) for r in rows] == [
        ("a", False, "a:1"), ("b", True, "b:2"),
    ]  # fmt: skip
    assert run(["profile", "use"]) == 0 and profiles.read_profiles().current is None
    assert run(["profile", "delete", "a"]) == 0
    capsys.readouterr()
    run(["profile", "list", "--format", "json"])
    assert [row["profile"] for row in json.loads(capsys.readouterr().out)] == ["b"]
    run(["profile", "set", "b", "--registry", "http://r"])
    assert profiles.read_profiles().current is None, "a change of the only profile is no choice"
    assert stat.S_IMODE(profiles.file_of_profiles().stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "arguments",
    [
        ["profile", "set", "p"],
        ["profile", "set", "p", "--command-config", "nosuch"],
        ["profile", "use", "nosuch"],
        ["profile", "delete", "nosuch"],
        ["topic", "list", "--profile", "nosuch"],
    ],
)
def test_profile_command_with_wrong_arguments_is_refused_with_exit_code_2(
    arguments, capsys
) -> None:
    assert run(arguments) == 2
    assert capsys.readouterr().err.startswith("oncelog: ")


def test_profile_file_without_profiles_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    file = profiles.file_of_profiles()
    file.parent.mkdir()
    file.write_text("[]")
    assert run(["profile", "list"]) == 2
    assert "has no profiles of oncelog" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ({"bootstrap": 5}, "has no profiles of oncelog"),
        ({"registry": ["http://r"]}, "has no profiles of oncelog"),
        ({"bootstrap": "far"}, "the profile's bootstrap: 'far' is not an address"),
    ],
)
def test_profile_entry_edited_to_a_wrong_type_is_refused_with_a_clear_message(
    profile, words: str
) -> None:
    file = profiles.file_of_profiles()
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"current": "far", "profiles": {"far": profile}}))
    for options in ({}, {"profile": "far"}):
        with pytest.raises(Failure, match=words):
            bootstrap(**options)
