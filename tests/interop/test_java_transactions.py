"""Test programs with Kafka's Java clients, which use transaction version 2 (KIP-890).

The programs are in `java/`, one file each. Under the mark `soak` they also run on Apache Kafka,
which shows that the programs are correct.
"""

import contextlib
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster

from ..programs import printed_by
from .kafka_peer import KafkaPeer, java, java_source
from .raw_peer import CREATE_TOPICS, RawPeer
from .readers import fill, messages

pytestmark = [pytest.mark.kafka, pytest.mark.cluster]
PROGRAMS = Path(__file__).with_name("java")
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
LIMIT_S = 120
Row = tuple[object, object]


class Server:
    """A running cluster, in which one node can be killed and restarted if it is oncelog's."""

    def __init__(self, bootstrap: str, cluster: Cluster | None = None) -> None:
        self.bootstrap, self._cluster = bootstrap, cluster

    def peer(self) -> RawPeer:
        """Return a new connection to one of the cluster's nodes."""
        host, port = self.bootstrap.split(",", maxsplit=1)[0].split(":")
        return RawPeer("any", (host, int(port)))

    def create_topic(self, name: str, partitions: int) -> None:
        topic = {"name": name, "num_partitions": partitions, "replication_factor": -1}
        values = {"timeout": 10_000, "topics": [topic]}
        with contextlib.closing(self.peer()) as peer:
            (answer,) = peer.ask_raw(CREATE_TOPICS, 7, values).topics
        assert answer.error_code == 0, answer.error_message
        if self._cluster is not None:
            self._cluster.wait_for_isr(name, 3)

    def kill_and_restart(self) -> None:
        """Send SIGKILL to a random broker and restart it, but only if the cluster is oncelog's."""
        if self._cluster is not None:
            node = self._cluster.kill("random")
            time.sleep(1)
            self._cluster.start(node)


@pytest.fixture(scope="module", params=["oncelog", pytest.param("kafka", marks=pytest.mark.soak)])
def server(request, tmp_path_factory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "kafka":
        with KafkaPeer(folder) as kafka:
            yield Server(kafka.bootstrap)
        return
    with Cluster(nodes=3, data=folder / "cluster") as cluster:
        yield Server(cluster.bootstrap, cluster)


@pytest.mark.in_turn
def test_java_transactional_producer_program_passes_all_its_checks(server):
    server.create_topic("java-producer", 2)
    program = PROGRAMS / "TransactionalProducer.java"
    printed = printed_by(java_source(program, server.bootstrap, "java-producer"))
    assert printed.splitlines()[-1] == "OK", printed


@contextlib.contextmanager
def _running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _rows(server: Server, topic: str, partitions: int) -> list[Row]:
    """Return (key, value) of the committed records of these partitions."""
    found = messages(server.bootstrap, topic, partitions)
    return [(message.key(), message.value()) for message in found]


def _wait_for(server: Server, topic: str, partitions: int, count: int) -> None:
    """Wait until this number of records is committed."""
    from confluent_kafka import Consumer, TopicPartition

    found, deadline = 0, time.monotonic() + LIMIT_S
    settings = {"group.id": "of no group", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": server.bootstrap, **settings})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    while found < count:
        assert time.monotonic() < deadline, f"{found} of {count} records in {topic}"
        found += sum(message.error() is None for message in consumer.consume(1_000, 0.2))
    consumer.close()


@pytest.mark.parametrize(
    ("count", "membership"),
    [
        pytest.param(2_000, (), id="2000"),
        pytest.param(
            20_000, ("--group-mode", "--use-group-metadata"), id="20000", marks=pytest.mark.soak
        ),
    ],
)
@pytest.mark.in_turn
def test_kafka_transactional_copier_killed_repeatedly_copies_each_record_once(
    server, tmp_path, count, membership
):
    """The copier is killed three times with -9, and a random broker of oncelog once.

    In a group the next copier waits until the session of the killed one has ended.
    """
    source, target = f"copier-in-{count}", f"copier-out-{count}"
    server.create_topic(source, 1)
    server.create_topic(target, 1)
    values = [b"%d" % number for number in range(count)]
    fill(server.bootstrap, source, [(None, value, 0) for value in values])
    command = java(
        COPIER,
        *("--broker-list", server.bootstrap, "--input-topic", source, "--output-topic", target),
        *("--input-partition", "0", "--transactional-id", f"copier-{count}"),
        *("--consumer-group", f"copiers-{count}", "--transaction-size", "50"),
        *("--enable-random-aborts", "--transaction-timeout", "10000"),
        *membership,
    )
    for round_number, wanted in enumerate((count // 4, count // 2, count)):
        with _running(command, tmp_path / "copier.log"):
            _wait_for(server, target, 1, wanted)
            if round_number == 1:
                server.kill_and_restart()
    found = [value for _, value in _rows(server, target, 1)]
    counts = Counter(found)
    log = (tmp_path / "copier.log").read_text()[-2000:]
    assert counts == Counter(values), f"{len(found)} rows, {len(counts)} of {count} values\n{log}"
    assert found == values, "the order is another"


@pytest.mark.in_turn
def test_kafka_streams_instance_killed_midway_leaves_exact_counts(server, tmp_path):
    """With exactly_once_v2 another instance continues with correct counts."""
    count, keys, mark = 3_000, 7, random.randrange(10**6)
    source, target, counts = f"s-in-{mark}", f"s-out-{mark}", f"s-counts-{mark}"
    for topic in (source, target, counts):
        server.create_topic(topic, 2)
    rows = [(b"k%d" % (number % keys), b"%d" % number) for number in range(count)]

    def program(instance: str) -> list[str]:
        names = (server.bootstrap, f"app-{mark}", source, target, counts)
        return java_source(PROGRAMS / "CountingStream.java", *names, str(tmp_path / instance))

    keyed = [(key, value, -1) for key, value in rows]  # librdkafka chooses a key's partition
    writing = threading.Thread(target=fill, args=(server.bootstrap, source, keyed))
    writing.start()
    with _running(program("one"), tmp_path / "one.log"):
        _wait_for(server, target, 2, count // 10)
    with _running(program("two"), tmp_path / "two.log"):
        writing.join()
        for topic in (target, counts):
            _wait_for(server, topic, 2, count)
    log = (tmp_path / "two.log").read_text()[-2000:]
    assert Counter(_rows(server, target, 2)) == Counter((k, v + b"!") for k, v in rows), log
    totals = Counter(key for key, _ in rows)
    expected = {(key, b"%d" % n): 1 for key, total in totals.items() for n in range(1, total + 1)}
    assert Counter(_rows(server, counts, 2)) == expected, log
