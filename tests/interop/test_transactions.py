"""Test transactions of three unchanged client libraries on three nodes, as readers see them.

Producers are also fenced by newer sessions, and exceed their transaction timeouts.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster

from ..waiting import until
from .readers import WITH_LIBRARIES, new_topic, read_to_end
from .transactional_producers import PRODUCERS, Producer

pytestmark = WITH_LIBRARIES
PARTITIONS = 3
TIMEOUT_MS = 600_000  # of transactions, by the cluster's clock: a test advances that
every_library = pytest.mark.parametrize("library", PRODUCERS)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3, clock="controlled") as running:
        yield running


def started(cluster: Cluster, stack: ExitStack, library: str, name: str) -> Producer:
    made = PRODUCERS[library](cluster.bootstrap, name, TIMEOUT_MS)
    stack.callback(made.close)
    return made


def read(cluster: Cluster, topic: str, *, committed: bool = True) -> list[bytes]:
    rows = read_to_end(cluster.bootstrap, topic, PARTITIONS, committed=committed)
    return sorted(value for _, value in rows)


def ends(cluster: Cluster, topic: str, partition: int = 0) -> tuple[int, int]:
    """Return the last stable offset and the high watermark of a partition."""
    place = {(topic, partition): -1}
    return (
        cluster.ask(lambda admin: admin.list_offsets(place, read_committed=True))[topic, partition],
        cluster.ask(lambda admin: admin.list_offsets(place))[topic, partition],
    )


def is_closed(cluster: Cluster, topic: str, count: int) -> bool:
    """Return whether no transaction is open and `count` offsets are written.

    A coordinator may have repeated a marker, so the log may have more offsets than `count`.
    """
    stable, end = ends(cluster, topic)
    return stable == end >= count


def assert_fenced(producer: Producer, work: Callable[[], object]) -> None:
    """Assert that `work` raises the library's error of a fenced producer."""
    with pytest.raises(Exception) as refused:
        work()
    assert producer.is_fenced(refused.value), repr(refused.value)


@every_library
def test_read_committed_client_gets_committed_records_and_no_aborted_records(
    cluster: Cluster, stack: ExitStack, library: str
) -> None:
    topic = new_topic(cluster, f"ends-{library}", PARTITIONS)
    producer = started(cluster, stack, library, topic)
    for number in range(6):
        producer.begin()
        for partition in range(PARTITIONS):
            producer.send(topic, b"%d" % number, partition)
        (producer.abort if number % 2 else producer.commit)()
    written = [b"%d" % number for number in range(6) for _ in range(PARTITIONS)]
    assert read(cluster, topic, committed=False) == written
    assert read(cluster, topic) == [value for value in written if value in (b"0", b"2", b"4")]
    assert is_closed(cluster, topic, 2 * 6), "a record and a marker for each transaction"


@every_library
def test_last_stable_offset_stays_at_the_first_open_transaction_until_it_ends(
    cluster: Cluster, stack: ExitStack, library: str
) -> None:
    """The last stable offset is that of the open transaction's first record."""
    topic = new_topic(cluster, f"holds-{library}", PARTITIONS)
    first = started(cluster, stack, library, f"first {topic}")
    second = started(cluster, stack, library, f"second {topic}")
    first.begin()
    first.send(topic, b"of the first")
    second.begin()
    second.send(topic, b"of the second")
    second.commit()
    until(lambda: ends(cluster, topic)[1] >= 3)  # a marker that readers do not reach
    assert ends(cluster, topic)[0] == 0
    assert read(cluster, topic, committed=False) == [b"of the first", b"of the second"]
    first.commit()
    until(lambda: is_closed(cluster, topic, 4))
    assert read(cluster, topic) == [b"of the first", b"of the second"]


@every_library
def test_producer_fenced_by_a_new_session_cannot_commit(
    cluster: Cluster, stack: ExitStack, library: str
) -> None:
    """A new session aborts the transaction of the old session.

    Later requests of the old session are refused.
    """
    topic = new_topic(cluster, f"fences-{library}", PARTITIONS)
    old = started(cluster, stack, library, topic)
    old.begin()
    old.send(topic, b"of the old one")
    new = started(cluster, stack, library, topic)

    def go_on() -> None:
        old.send(topic, b"of a zombie")
        old.commit()

    assert_fenced(old, go_on)
    new.begin()
    new.send(topic, b"of the new one")
    new.commit()
    assert read(cluster, topic) == [b"of the new one"]
    assert b"of a zombie" not in read(cluster, topic, committed=False)


@every_library
def test_transaction_beyond_its_timeout_is_aborted_and_its_producer_fenced(
    cluster: Cluster, stack: ExitStack, library: str
) -> None:
    """The timeout raises the producer epoch, as a newer session does."""
    topic = new_topic(cluster, f"late-{library}", PARTITIONS)
    producer = started(cluster, stack, library, topic)
    producer.begin()
    producer.send(topic, b"too long")
    cluster.clock.advance("8m")
    assert ends(cluster, topic) == (0, 1), "not before its time"
    cluster.clock.advance("2m")
    until(lambda: is_closed(cluster, topic, 2))
    assert_fenced(producer, producer.commit)
    assert read(cluster, topic) == []


@every_library
def test_produce_request_after_its_transaction_was_aborted_is_refused(
    cluster: Cluster, stack: ExitStack, library: str
) -> None:
    """A late record would otherwise join a transaction that was aborted (KAFKA-19690)."""
    topic = new_topic(cluster, f"produces-{library}", PARTITIONS)
    producer = started(cluster, stack, library, topic)
    producer.begin()
    producer.send(topic, b"too long")
    cluster.clock.advance("10m")
    until(lambda: is_closed(cluster, topic, 2))

    def go_on() -> None:
        producer.send(topic, b"too late")
        producer.commit()

    assert_fenced(producer, go_on)
    assert read(cluster, topic) == []
    assert read(cluster, topic, committed=False) == [b"too long"]
    assert is_closed(cluster, topic, 2)


def test_exactly_once_group_that_rebalances_midway_counts_every_record_once(
    cluster: Cluster, stack: ExitStack
) -> None:
    """Two members of a group consume, transform and produce (KIP-447).

    One member joins while the other has a transaction open. Only uncommitted work is repeated.
    """
    source, target = (
        new_topic(cluster, "source", PARTITIONS),
        new_topic(cluster, "target", PARTITIONS),
    )
    filler = started(cluster, stack, "confluent-kafka", "filler")
    filler.begin()
    values = [b"%03d" % number for number in range(60)]
    for number, value in enumerate(values):
        filler.send(source, value, number % PARTITIONS)
    filler.commit()

    one, two = (Transformer(cluster.bootstrap, source, target, name) for name in "ab")
    stack.callback(one.close)
    stack.callback(two.close)
    one.join()
    until(lambda: one.begin(5))
    two.join()
    until(lambda: one.heed() and two.heed() and 0 < len(one.assigned) < PARTITIONS)
    assert one.finish() is False, "the generation that it read in is over"
    deadline = time.monotonic() + 30
    while one.committed + two.committed < len(values):
        assert time.monotonic() < deadline, (one.committed, two.committed)
        for each in (one, two):
            if each.begin(10):
                each.finish()
    assert read(cluster, target) == values
    assert one.committed and two.committed


class Transformer:
    """A group member that copies records from topic to topic, each batch in a transaction."""

    def __init__(self, bootstrap: str, source: str, target: str, name: str) -> None:
        from confluent_kafka import Consumer
        from confluent_kafka import Producer as Made

        self.source, self.target, self.committed = source, target, 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "transformers",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "heartbeat.interval.ms": 100,
                "log_level": 0,
            }
        )
        self._producer = Made(
            {"bootstrap.servers": bootstrap, "transactional.id": f"transformer {name}"}
        )
        self._producer.init_transactions(30)

    def join(self) -> None:
        self._consumer.subscribe([self.source])

    @property
    def assigned(self) -> set[int]:
        return {place.partition for place in self._consumer.assignment()}

    def begin(self, count: int) -> bool:
        """Begin a transaction with at most this number of records. Return False if none is left."""
        records = [m for m in self._consumer.consume(count, 0.2) if not m.error()]
        if records:
            self._count = len(records)
            self._positions = self._consumer.position(self._consumer.assignment())
            self._member = self._consumer.consumer_group_metadata()
            self._producer.begin_transaction()
            for record in records:
                partition = record.partition() or 0
                self._producer.produce(self.target, record.value(), partition=partition)
        return bool(records)

    def heed(self) -> bool:
        """Take part in a rebalance without reading. Return whether partitions are assigned."""
        from confluent_kafka import TopicPartition

        record = self._consumer.poll(0.05)
        if record is not None and not record.error():
            place = record.partition() or 0, record.offset() or 0
            self._consumer.seek(TopicPartition(self.source, *place))
        return bool(self.assigned)

    def finish(self) -> bool:
        """Commit the transaction with its offsets. Return False if the group has rebalanced."""
        from confluent_kafka import KafkaException

        try:
            self._producer.send_offsets_to_transaction(self._positions, self._member, 30)
            self._producer.commit_transaction(30)
        except KafkaException as error:
            assert error.args[0].txn_requires_abort(), error
            self._producer.abort_transaction(30)
            for place in self._consumer.committed(self._consumer.assignment(), 30):
                place.offset = max(place.offset, 0)
                self._consumer.seek(place)
            return False
        self.committed += self._count
        return True

    def close(self) -> None:
        self._consumer.close()
