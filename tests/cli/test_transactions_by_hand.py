"""Test `oncelog txn` and `kill` against real nodes, with a producer that goes silent."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from oncelog.cli import main
from oncelog.deploy.cluster.local_cluster import Cluster

from ..waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]
GROUP = "readers"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    with Cluster(3, data=tmp_path_factory.mktemp("cluster") / "data") as running:
        running.ask(lambda admin: admin.create_topic("orders", partitions=2, replication_factor=3))
        running.wait_for_isr("orders", 3)
        yield running


@contextmanager
def open_transaction(cluster: Cluster, name: str, **settings: Any) -> Iterator[Any]:
    """Yield a producer that has written three records and a group's offset in a transaction.

    The transaction stays open.
    """
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer(
        cluster.client_config(**{"transactional.id": name, "log_level": 0, **settings})
    )
    consumer = Consumer(cluster.client_config(**{"group.id": GROUP}))
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(3):
        producer.produce("orders", str(number), partition=0)
    producer.flush(30)
    offsets = [TopicPartition("orders", 0, 1)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
    try:
        yield producer
    finally:
        consumer.close()


@pytest.fixture
def ask(cluster: Cluster, capsys) -> Callable[..., Any]:
    def run(*arguments: str, code: int = 0) -> Any:
        capsys.readouterr()
        assert main.run([*arguments, "--data", str(cluster.data)]) == code, capsys.readouterr().err
        out, err = capsys.readouterr()
        return json.loads(out) if "json" in arguments else out + err

    return run


@pytest.mark.in_turn
def test_txn_commands_show_explain_and_abort_an_open_transaction(cluster, ask):
    name = "app-silent"
    with open_transaction(cluster, name, **{"transaction.timeout.ms": 60_000}) as producer:
        (row,) = ask("txn", "list", "--prefix", name, "--format", "json")
        assert (row["state"], row["partitions"], row["timeout_s"]) == ("Ongoing", 2, 60)
        described = ask("txn", "describe", name, "--format", "json")
        assert "orders/0" in described["partitions"]
        producers = ask("txn", "producers", "orders/0", "--format", "json")
        (opened,) = [p for p in producers if p["open_since"] is not None]
        assert opened["producer"] == row["producer"]
        assert f"held by      {name}" in ask("why", "orders/0")
        assert "UNSTABLE_OFFSET_COMMIT" in ask("why", "orders/0", "--group", GROUP)
        assert "oncelog txn abort app-silent" in ask("txn", "explain", name)
        assert ask("txn", "hanging", "--format", "json") == []
        refusal = ("txn", "abort", "--partition", "orders/0", "--producer-id", str(row["producer"]))
        ask(*refusal, code=1)  # the coordinator still holds the transaction

        assert "aborted what it had open" in ask("txn", "abort", name)
        until(lambda: "nothing is open" in ask("why", "orders/0"))
        states = [
            entry["state"]
            for shard in range(4)
            for entry in ask("txn", "log", str(shard), "--prefix", name, "--format", "json")
        ]
        assert states[0] == "Empty" and states[-3:] == ["PrepareAbort", "CompleteAbort", "Empty"]
        with pytest.raises(Exception) as fenced:
            producer.commit_transaction(30)
        assert fenced.value.args[0].name() in ("_FENCED", "INVALID_PRODUCER_EPOCH")
    assert "has no open transaction" in ask("txn", "explain", name)


def test_abort_marker_written_by_an_admin_client_releases_the_last_stable_offset(cluster, ask):
    with open_transaction(cluster, "app-lost"):

        async def write_marker(admin: Any) -> None:
            (found,) = (await admin.transactions.producers([("orders", 0)])).values()
            (opened,) = [p for p in found if p.is_open]
            await admin.transactions.abort("orders", 0, opened)

        cluster.ask(write_marker)
        assert "nothing is open" in ask("why", "orders/0")
        ask("txn", "abort", "app-lost")


def test_kill_command_with_a_txn_or_group_target_kills_its_coordinator(cluster, ask):
    with open_transaction(cluster, "app-1"):
        old = cluster.coordinator("txn", "app-1")
        told = ask("kill", "txn:app-1")
        assert f"killed node {old}" in told and f"txn:app-1: coordinator {old} -> " in told
        until(lambda: "Ongoing" in ask("txn", "describe", "app-1"))
        ask("txn", "abort", "app-1")
    ask("start", str(old))
    old = cluster.coordinator("group", GROUP)
    assert f"group:{GROUP}: coordinator {old} -> " in ask("kill", f"group:{GROUP}")
    ask("start", str(old))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("txn", "explain", "nosuch"), 1),
        (("txn", "describe", "nosuch"), 1),
        (("txn", "abort", "nosuch"), 1),
        (("txn", "abort"), 2),
        (("txn", "abort", "a", "--producer-id", "1"), 2),
        (("txn", "abort", "--partition", "orders/0", "--producer-id", "99"), 1),
        (("txn", "log", "4"), 1),
        (("why", "orders/7"), 1),
        (("why", "orders"), 1),
    ],
)
def test_txn_command_with_an_unknown_name_or_wrong_arguments_reports_an_error(ask, arguments, code):
    assert "oncelog: " in ask(*arguments, code=code)
