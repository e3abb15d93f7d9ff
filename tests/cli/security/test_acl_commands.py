"""Test `oncelog acl` and its options on a broker with an authorizer."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from oncelog.cli.main import run
from oncelog.node.config.authorizer_keys import STANDARD_AUTHORIZER

from ...docs.blocks import block
from ...node.own_broker import running


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a broker that runs in a thread. All its clients are super users."""
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    is_there, is_over, ports = Event(), Event(), list[int]()

    async def serve(root: Path) -> None:
        async with running(root, settings=settings) as broker:
            ports.append(broker.server.port)
            is_there.set()
            await asyncio.to_thread(is_over.wait)

    root = tmp_path_factory.mktemp("acl")
    thread = Thread(target=lambda: asyncio.run(serve(root)))
    thread.start()
    assert is_there.wait(20)
    yield f"127.0.0.1:{ports[0]}"
    is_over.set()
    thread.join()


def listed(capsys: pytest.CaptureFixture[str], bootstrap: str, *options: str) -> list[str]:
    capsys.readouterr()
    assert run(["acl", "list", "--bootstrap", bootstrap, "--format", "json", *options]) == 0
    rows = json.loads(capsys.readouterr().out)
    keys = ("principal", "permission", "operation", "resource", "name", "pattern", "host")
    return [" ".join(row[key] for key in keys) for row in rows]


def test_acl_commands_add_list_and_remove_acls(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--bootstrap", bootstrap]
    adding = ["--allow", "User:alice", "--operation", "Read", "--operation", "alter_configs"]
    assert run(["acl", "add", *common, *adding, "--topic", "a", "--host", "10.0.0.1"]) == 0
    assert "User:alice from 10.0.0.1 may Read Topic a" in capsys.readouterr().err
    prefixed = ["--deny", "User:bob", "--topic", "b.", "--pattern", "prefixed", "--cluster"]
    assert run(["acl", "add", *common, *prefixed]) == 0
    alice = [
        "User:alice Allow Read Topic a Literal 10.0.0.1",
        "User:alice Allow AlterConfigs Topic a Literal 10.0.0.1",
    ]
    bob = ["User:bob Deny All Topic b. Prefixed *"]
    cluster = ["User:bob Deny All Cluster kafka-cluster Literal *"]
    assert listed(capsys, bootstrap) == [*alice, *bob, *cluster]
    assert listed(capsys, bootstrap, "--topic", "b.c", "--pattern", "match") == bob
    assert listed(capsys, bootstrap, "--principal", "User:alice") == alice
    assert run(["acl", "remove", *common, "--topic", "a", "--operation", "Read"]) == 0
    assert listed(capsys, bootstrap) == [alice[1], *bob, *cluster]
    assert run(["acl", "remove", *common, "--topic", "b."]) == 0
    assert "there is no such ACL" in capsys.readouterr().err
    assert run(["acl", "remove", *common, "--deny", "User:bob"]) == 0
    assert run(["acl", "remove", *common, "--topic", "a"]) == 0
    assert listed(capsys, bootstrap) == []


def test_acl_producer_and_consumer_options_add_the_acls_of_kafka_acls(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--bootstrap", bootstrap, "--allow", "User:carol", "--topic", "t"]
    producing = ["--producer", "--transactional-id", "x", "--cluster"]
    assert run(["acl", "add", *common, *producing]) == 0
    assert run(["acl", "add", *common, "--consumer", "--group", "g"]) == 0
    assert [" ".join(row.split()[2:5]) for row in listed(capsys, bootstrap)] == [
        "Read Topic t",
        "Write Topic t",
        "Create Topic t",
        "Describe Topic t",
        "Read Group g",
        "IdempotentWrite Cluster kafka-cluster",
        "Write TransactionalId x",
        "Describe TransactionalId x",
    ]
    assert run(["acl", "remove", "--bootstrap", bootstrap, "--allow", "User:carol"]) == 0


@pytest.mark.parametrize(
    "line",
    [
        "add",
        "add --topic t",
        "add --allow User:a",
        "add --allow User:a --topic t --operation Fly",
        "add --allow User:a --topic t --producer --operation Read",
        "remove",
    ],
)
def test_acl_command_with_wrong_arguments_is_refused_with_exit_code_2(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["acl", *line.split(), "--bootstrap", "127.0.0.1:1"]) == 2
    assert capsys.readouterr().err.startswith("oncelog: ")


def test_acl_command_with_a_principal_without_a_type_is_refused_by_the_broker(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--allow", "alice", "--operation", "Read", "--topic", "t"]
    assert run(["acl", "add", "--bootstrap", bootstrap, *words]) == 1
    assert "principalType:principalName" in capsys.readouterr().err


def test_acl_commands_of_the_security_page_add_and_remove_the_acls_shown(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in block("docs/security.md", "acl add --allow User:bob").text.splitlines():
        assert run([*line.split()[1:], "--bootstrap", bootstrap]) == 0
    assert listed(capsys, bootstrap, "--topic", "orders") == []
    assert len(listed(capsys, bootstrap)) == 5
    for name in ("User:alice", "User:bob"):
        assert run(["acl", "remove", "--bootstrap", bootstrap, "--allow", name]) == 0
