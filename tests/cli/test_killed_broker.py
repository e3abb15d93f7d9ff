"""Test commands that ask every broker, soon after a broker was killed.

A killed broker stays in the list of brokers for 15 s, although other brokers have taken over its
groups and transactional ids.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from oncelog.cli import main
from oncelog.client import Admin
from oncelog.client.coordinator_lookup import GROUP, TRANSACTION
from oncelog.deploy.cluster.local_cluster import Cluster

from ..waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]
NAMES = [f"app-{number}" for number in range(6)]
KILLED = 2
WITHIN_S = 8.0  # below the 10 s after which an unreachable cluster is an error
SILENT = f"node {KILLED} does not answer"


async def coordinators(admin: Admin) -> set[int]:
    kinds = (GROUP, TRANSACTION)
    return {await admin.find_coordinator(name, kind) for name in NAMES for kind in kinds}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    from confluent_kafka import Producer

    with Cluster(3, data=tmp_path_factory.mktemp("cluster") / "data") as running:
        running.ask(lambda admin: admin.create_topic("orders", partitions=1, replication_factor=3))
        running.wait_for_isr("orders", 3)
        producers: list[Any] = []
        for name in NAMES:
            running.ask(lambda admin, group=name: admin.groups.commit(group, {("orders", 0): 0}))
            settings = {"transactional.id": name, "transaction.timeout.ms": 600_000, "log_level": 0}
            producers.append(Producer(running.client_config(**settings)))
            producers[-1].init_transactions(30)
            producers[-1].begin_transaction()
            producers[-1].produce("orders", name)
            producers[-1].flush(30)
        running.kill(KILLED)
        until(lambda: KILLED not in running.ask(coordinators), "other coordinators")
        yield running


@pytest.fixture
def ask(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Return a function that runs a command, and returns its exit code, its output and errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        began_s = time.monotonic()
        code = main.run([*arguments, "--data", str(cluster.data)])
        assert time.monotonic() - began_s < WITHIN_S
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_lists_after_a_kill_are_printed_and_name_the_killed_node(ask: Callable[..., Any]) -> None:
    for command, key in (("group", "group"), ("txn", "id")):
        code, out, err = ask(command, "list", "--format", "json")
        assert [row[key] for row in json.loads(out)] == NAMES
        assert SILENT in err
        assert code == 1


def test_why_after_a_kill_names_the_open_transaction(ask: Callable[..., Any]) -> None:
    code, out, err = ask("why", "orders/0")
    assert (code, err) == (0, "")
    assert NAMES[0] in out


def test_observe_of_a_group_after_a_kill_names_the_killed_node(ask: Callable[..., Any]) -> None:
    code, out, err = ask("observe", "--group", NAMES[0], "--seconds", "0.1")
    assert (code, "Only the proxy" in out, err.count(SILENT)) == (1, True, 1)


def test_txn_hanging_after_a_kill_lists_no_known_transaction(ask: Callable[..., Any]) -> None:
    code, out, err = ask("txn", "hanging", "--format", "json")
    assert (code, json.loads(out), err) == (0, [], "")


def test_txn_abort_by_prefix_after_a_kill_aborts_and_names_the_killed_node(
    ask: Callable[..., Any],
) -> None:
    code, out, err = ask("txn", "abort", "--prefix", "app-", "--format", "json")
    assert [row["outcome"] for row in json.loads(out)] == ["aborted"] * len(NAMES)
    assert SILENT in err
    assert code == 1
