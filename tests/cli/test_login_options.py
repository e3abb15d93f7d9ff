"""Test that each command with --bootstrap has the same options for TLS and logins."""

import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cyclopts import App

from oncelog.cli.common import ClusterOptions
from oncelog.cli.main import build, run

from ..programs import run_to_end

CONNECTING = {
    "topic create", "topic list", "topic describe", "topic alter", "topic delete",
    "group list", "group describe", "group reset", "group delete",
    "txn list", "txn describe", "txn producers", "txn hanging", "txn abort", "txn check-back",
    "txn explain", "why", "inject", "observe",
    "produce", "consume", "check", "conformance", "bench replication", "bench txn", "doctor",
    "acl list", "acl add", "acl remove", "ui", "top", "metrics", "events",
}  # fmt: skip
PLAINTEXT_ONLY = {
    "prove",  # takes a login by settings of its own
    "certify",  # the programs of its recipes speak plain text
}
REMEMBERED = {"profile set"}  # address and login for other commands


def commands(app: App, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in app:
        if name.startswith("-"):
            continue
        inner = app[name]
        if inner.default_command is not None:
            yield " ".join((*path, name)), inner.default_command
        else:
            yield from commands(inner, (*path, name))


def test_command_that_connects_by_an_address_accepts_a_client_properties_file():
    takes_login: set[str] = set()
    for name, command in commands(build()):
        parameters = inspect.signature(command).parameters
        if name not in PLAINTEXT_ONLY | REMEMBERED:
            assert "bootstrap" not in parameters, f"{name}: the address alone"
        if any(isinstance(p.default, ClusterOptions) for p in parameters.values()):
            takes_login.add(name)
    assert takes_login == CONNECTING


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sasl.pasword=geheim\n", "is sasl.password meant"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\n", "GSSAPI is not supported"),
        (None, "cannot be read"),
    ],
)
@pytest.mark.parametrize("command", [["topic", "list"], ["doctor", "--probe"]])
def test_client_properties_file_that_is_invalid_is_refused_with_a_clear_message(
    tmp_path, capsys, command, text, words
):
    file = tmp_path / "client.properties"
    if text is not None:
        file.write_text(f"bootstrap.servers=127.0.0.1:1\n{text}")
    assert run([*command, "--command-config", str(file)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("oncelog: ") and words in said and str(file) in said
    assert "geheim" not in said


def test_pipeline_command_with_wrong_connection_options_exits_two_with_a_message(tmp_path):
    pytest.importorskip("pyspark")
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\n")
    command = [sys.executable, "-P", "-m", "oncelog.pipeline.sink.orphans", "--id", "x"]
    for given, words in (
        ((), "--bootstrap HOST:PORT, or in --command-config"),
        (("--bootstrap", "127.0.0.1:1", "--command-config", str(file)), "GSSAPI is not supported"),
    ):
        done = run_to_end([*command, *given])
        assert done.returncode == 2 and words in done.stderr
        assert "Traceback" not in done.stderr
