"""Test that Spark's own Kafka connector reads from oncelog and writes to it."""

import json
import sys
from pathlib import Path

import pytest

from oncelog.client import BlockingAdmin, BlockingProducer
from oncelog.deploy.cluster.local_cluster import Cluster

from ...programs import printed_by
from .connector_jars import NoConnector, connector_jars

pytestmark = [pytest.mark.spark_slow, pytest.mark.xdist_group("spark")]
PROGRAM = Path(__file__).with_name("connector_program.py")


def fill(cluster: Cluster, topic: str) -> list[str]:
    """Write transactions to two partitions, abort half of them, and return the committed values."""
    committed: list[str] = []
    with BlockingProducer(cluster.bootstrap, transactional_id="connector") as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            values = [f"{number}-{i}" for i in range(4)]
            for i, value in enumerate(values):
                headers = (("n", value.encode()), ("n", None)) if i % 2 else ()
                producer.send(topic, value.encode(), key=b"k", partition=i % 2, headers=headers)
            producer.flush()
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                committed += values
    return sorted(committed)


def test_spark_kafka_connector_reads_committed_records_and_writes_to_our_cluster(
    cluster: Cluster, admin: BlockingAdmin, tmp_path: Path
) -> None:
    try:
        jars = connector_jars()
    except NoConnector as problem:
        pytest.skip(str(problem))
    admin.create_topic("connector-in", partitions=2)
    admin.create_topic("connector-out", partitions=2)
    committed = fill(cluster, "connector-in")
    arguments = [cluster.bootstrap, ",".join(map(str, jars)), str(tmp_path)]
    command = [sys.executable, str(PROGRAM), *arguments, "connector-in", "connector-out"]
    seen = json.loads(printed_by(command, 240).splitlines()[-1])
    assert seen["schema"]["kafka"] == seen["schema"]["oncelog"]
    assert seen["before"]["kafka"] == seen["before"]["oncelog"], "both sources see the same"
    assert sorted(row[1] for row in seen["before"]["kafka"]) == committed
    assert seen["after"]["kafka"] == seen["after"]["oncelog"]
    assert sorted(row[1] for row in seen["after"]["kafka"]) == sorted(committed * 2)
