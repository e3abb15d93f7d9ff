"""Fixtures that run a real Apache Kafka and an oncelog cluster side by side."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster

from .group_members import NEWER
from .kafka_peer import KafkaPeer
from .raw_peer import RawPeer

# Answers must not depend on time: targets are computed at once or, for some groups, much later.
TARGETS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.max.assignment.interval.ms": "600000",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3) as running:
        yield running


@pytest.fixture(scope="module")
def newer_cluster() -> Iterator[Cluster]:
    """Run three nodes with short session timeouts for members of the newer group protocol."""
    with Cluster(nodes=3, config=NEWER) as running:
        yield running


@pytest.fixture(scope="session")
def newer_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run Apache Kafka with the settings of `newer_cluster`, and yield its bootstrap line."""
    folder = tmp_path_factory.mktemp("newer-kafka")
    with KafkaPeer(folder, settings=NEWER) as peer:
        yield peer.bootstrap


KAFKA_TOO = pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.soak])


@pytest.fixture(scope="module", params=["oncelog", KAFKA_TOO])
def newer_groups(request: pytest.FixtureRequest) -> str:
    """Return the bootstrap line of `newer_cluster`, or of `newer_kafka` with parameter "kafka"."""
    if request.param == "kafka":
        return request.getfixturevalue("newer_kafka")
    return request.getfixturevalue("newer_cluster").bootstrap


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as running:
        yield running


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawPeer]:
    """Run one node of Apache Kafka, and yield a connection to it."""
    folder = tmp_path_factory.mktemp("kafka")
    with KafkaPeer(folder, settings=TARGETS | {"min.insync.replicas": "1"}) as peer:
        host, port = peer.bootstrap.split(":")
        raw = RawPeer("kafka", (host, int(port)))
        yield raw
        raw.close()


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawPeer]:
    """Run one oncelog broker with Kafka's defaults, and yield a connection to it."""
    data = tmp_path_factory.mktemp("oncelog")
    config = {
        "group.initial.rebalance.delay.ms": 0,
        **TARGETS,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.num.partitions": 4,
        "oncelog.record.validation": "full",  # as Kafka checks
    }
    with Cluster(nodes=1, data=data, config=config) as cluster:
        host, port = cluster.bootstrap.split(":")
        raw = RawPeer("oncelog", (host, int(port)))
        yield raw
        raw.close()
        log = (data / "node-1" / "node.log").read_text()
        alive = cluster.status()[0].state == "running"
        cluster.kill(1)  # a graceful end of hundreds of partitions takes its time
        assert alive, f"the broker died:\n{log[-3000:]}"
        assert "ERROR" not in log, (
            f"the broker complains:\n{log[log.index('ERROR') - 200 :][:3000]}"
        )
