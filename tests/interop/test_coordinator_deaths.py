"""Test the death of a transaction's coordinator at each named step of the transaction.

The outcome that the client saw is true. Committed records are present once, and other records are
absent. Readers of committed data reach the end, and the producer can continue.
"""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from oncelog.coordinator.transactions import states as fault_points
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.cluster.node_process import NodeProcess

from ..waiting import until
from .node_that_dies import arm, has_died, program
from .readers import TIMEOUT_S, WITH_LIBRARIES, new_topic, read_to_end

if TYPE_CHECKING:
    from confluent_kafka import Producer

pytestmark = WITH_LIBRARIES
FAULT_POINTS = [v for n, v in vars(fault_points).items() if n.startswith(("BEFORE_", "AFTER_"))]
# Before the decision, after the decision, and after the end of the transaction. The client's next
# request finds another state after each of these. tests/chaos/test_coordinator_deaths.py tests all
# points with a client that does not retry.
TELLING = {fault_points.BEFORE_PREPARE, fault_points.AFTER_PREPARE, fault_points.AFTER_COMPLETE}
TOPIC = "deaths"
PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NodeProcess, "program", program)
        with Cluster(nodes=3) as running:
            new_topic(running, TOPIC, PARTITIONS)
            yield running


def transaction(producer: "Producer", marks: list[bytes]) -> bool:
    """Write the marks in one transaction, and return whether its commit was acknowledged."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + TIMEOUT_S
    producer.begin_transaction()
    try:
        for number, mark in enumerate(marks):
            producer.produce(TOPIC, mark, partition=number % PARTITIONS)
        producer.flush(TIMEOUT_S)
        commit = producer.commit_transaction
        while True:
            try:
                commit(TIMEOUT_S)
                return True
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
    except KafkaException as error:
        assert error.args[0].txn_requires_abort(), error
    while True:
        try:
            producer.abort_transaction(TIMEOUT_S)
            return False
        except KafkaException as error:
            assert error.args[0].retriable() and time.monotonic() < deadline, error


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "fault_point",
    [
        pytest.param(point, marks=() if point in TELLING else pytest.mark.chaos)
        for point in FAULT_POINTS
    ],
)
def test_producer_with_a_killed_coordinator_gets_the_true_outcome(
    cluster: Cluster, fault_point: str
) -> None:
    from confluent_kafka import Producer

    name = fault_point.replace(".", "-")
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions(TIMEOUT_S)
    outcomes: dict[bytes, bool] = {}
    for number in range(6):
        if number == 1:
            arm(cluster.data, fault_point)
        marks = [f"{name}/{number}/{i}".encode() for i in range(6)]
        outcomes |= dict.fromkeys(marks, transaction(producer, marks))
    until(lambda: has_died(cluster.data), "no broker came to the fault point", TIMEOUT_S)
    rows = [value for _, value in read_to_end(cluster.bootstrap, TOPIC, PARTITIONS)]
    seen = [row for row in rows if row.startswith(f"{name}/".encode())]
    assert sorted(seen) == sorted(mark for mark, is_committed in outcomes.items() if is_committed)
    assert sum(outcomes.values()) >= 5 * 6, "a death costs one transaction at most"
    cluster.start_all([s.node_id for s in cluster.status() if s.state == "down"])
    cluster.wait_for_isr(TOPIC, 3)
