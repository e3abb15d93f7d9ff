"""Test other clients through the protocol proxy, to oncelog and to Apache Kafka.

kafkajs through the proxy is tested in test_kafkajs.py.
"""

import asyncio
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.faults.protocol_proxy.events import (
    Answer,
    ConnectionClosed,
    Event,
    FaultMade,
    Request,
)
from oncelog.deploy.faults.protocol_proxy.proxy import ProtocolProxy
from oncelog.deploy.faults.protocol_proxy.rules import (
    Action,
    AnswerError,
    Hold,
    HoldPoint,
    LoseAnswer,
    Match,
    Rule,
)
from oncelog.wire.error_codes import ErrorCode

from ..programs import printed_by
from ..waiting import until
from .client_peers import KAFKA, OURS, new_topic, running
from .kafka_peer import is_enabled, java_source
from .readers import fill, messages
from .transactional_producers import Aiokafka, Confluent, KafkaPython, Producer

pytestmark = [
    pytest.mark.cluster,
    # Clients leave some objects to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
FOLDER = Path(__file__).parent
more = pytest.mark.skipif(not is_enabled(), reason="ONCELOG_KAFKA is not 1")


class Bench:
    """A proxy in front of a cluster, with a list of its events."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.events: list[Event] = []
        self.proxy = ProtocolProxy(bootstrap, [self.events.append])

    @property
    def address(self) -> str:
        return self.proxy.address_for("app")

    def lose(self, api: str, **match: Any) -> Rule:
        return self.does(LoseAnswer(), api, **match)

    def does(self, action: Action, api: str, **match: Any) -> Rule:
        rule = Rule(Match(apis={api}, **match), action)
        self.proxy.add(rule)
        return rule

    def new_topic(self, partitions: int = 2) -> str:
        return asyncio.run(new_topic(self.bootstrap, partitions))

    def values(self, topic: str, partitions: int = 2) -> list[bytes]:
        found = messages(self.bootstrap, topic, partitions)
        return sorted(message.value() or b"" for message in found)


@pytest.fixture(scope="module", params=[OURS, pytest.param(KAFKA, marks=pytest.mark.kafka)])
def server(request, tmp_path_factory) -> Iterator[str]:
    with running(request.param, tmp_path_factory.mktemp("server")) as bootstrap:
        yield bootstrap


@pytest.fixture
def bench(server) -> Iterator[Bench]:
    one = Bench(server)
    with one.proxy:
        yield one
    assert [e.reason for e in one.events if isinstance(e, ConnectionClosed) and e.is_refusal] == []
    for event in one.events:  # all requests and answers can be decoded
        if isinstance(event, Request | Answer):
            assert event.body is not None


@pytest.mark.in_turn
@pytest.mark.parametrize("client", [Confluent, KafkaPython, Aiokafka], ids=lambda one: one.__name__)
def test_transaction_with_a_lost_commit_answer_is_committed_once(bench, client: type[Producer]):
    topic, name = bench.new_topic(), f"tx-{uuid.uuid4().hex[:8]}"
    group = f"{name}-readers"
    lost = bench.lose("EndTxn", instance="app", transactional_id=name)
    producer = client(bench.address, name)
    try:
        for number in range(2):
            producer.begin()
            for partition in range(2):
                producer.send(topic, b"%d-%d" % (number, partition), partition)
            producer.send_offset(group, topic, number + 1)
            producer.commit()
        producer.begin()
        producer.send(topic, b"not this one")
        producer.abort()
    finally:
        producer.close()
    assert bench.proxy.made(lost) == 1
    assert bench.values(topic) == [b"0-0", b"0-1", b"1-0", b"1-1"]
    commits = [e for e in bench.events if isinstance(e, Answer) and e.request.api == "EndTxn"]
    assert [answer.fate for answer in commits].count("lost") == 1
    assert {answer.request.subjects.transactional_ids for answer in commits} == {frozenset([name])}
    written = [e for e in bench.events if isinstance(e, Request) and e.api == "TxnOffsetCommit"]
    assert all(one.subjects.groups == {group} for one in written)
    assert all(one.subjects.topics == {topic} for one in written)
    assert len({request.connection.broker_id for request in written}) == 1


@pytest.mark.in_turn
@pytest.mark.parametrize(("count", "batch_records"), [(1, 9), (2, 9), (7, 1)])
def test_librdkafka_transaction_after_an_abort_without_an_answer_loses_no_record(
    bench, request, count: int, batch_records: int
):
    """Librdkafka gives the sequence number of the unanswered batch to the next transaction."""
    is_ours = OURS in request.node.name
    from confluent_kafka import KafkaError, Producer

    topic, name = bench.new_topic(1), f"tx-{uuid.uuid4().hex[:8]}"
    producer = Producer({
        "bootstrap.servers": bench.address, "transactional.id": name, "log_level": 0,
        "retry.backoff.ms": 1000, "retry.backoff.max.ms": 1000, "linger.ms": 100,
        "batch.num.messages": batch_records,
    })  # fmt: skip
    producer.init_transactions(30)

    def begin_next() -> None:
        producer.begin_transaction()
        for _ in range(count):
            producer.produce(topic, b"next")

    producer.begin_transaction()
    producer.produce(topic, b"first")
    producer.commit_transaction(30)
    lost = bench.lose("Produce")
    producer.begin_transaction()
    producer.produce(topic, b"aborted")
    until(lambda: producer.poll(0.01) or bench.proxy.made(lost))
    producer.abort_transaction(30)
    begin_next()
    if is_ours:
        with pytest.raises(KafkaException) as refused:
            producer.commit_transaction(30)
        assert refused.value.args[0].code() == KafkaError.UNKNOWN_PRODUCER_ID
        assert refused.value.args[0].txn_requires_abort()
        producer.abort_transaction(30)
        begin_next()
        producer.commit_transaction(30)
    elif count == 1:
        producer.commit_transaction(30)  # Kafka takes the record for a duplicate
    else:
        with pytest.raises(KafkaException) as refused:
            producer.commit_transaction(30)
        assert refused.value.args[0].fatal()
    assert bench.values(topic, 1) == [b"first", *([b"next"] * count if is_ours else [])]


@pytest.mark.in_turn
def test_librdkafka_group_with_injected_errors_and_lost_commits_reads_all_records(bench):
    from confluent_kafka import Consumer, TopicPartition

    topic, group = bench.new_topic(), f"g-{uuid.uuid4().hex[:8]}"
    fill(bench.address, topic, [(None, b"%d" % n, n % 2) for n in range(500)])
    rules = [
        bench.does(AnswerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), "OffsetFetch", group=group),
        bench.does(AnswerError(ErrorCode.NOT_LEADER_OR_FOLLOWER), "Fetch", topic=topic),
        bench.lose("OffsetCommit", group=group),
    ]
    consumer = Consumer({
        "bootstrap.servers": bench.address, "group.id": group, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "log_level": 0,
    })  # fmt: skip
    values: list[bytes] = []
    try:
        consumer.subscribe([topic])

        def read() -> bool:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
            return len(values) >= 500

        until(read, timeout_s=40)
        consumer.commit(asynchronous=False)  # the first answer is lost, and the consumer asks again
        committed = consumer.committed([TopicPartition(topic, n) for n in range(2)], 20)
    finally:
        consumer.close()
    assert sorted(values) == sorted(b"%d" % n for n in range(500))
    assert [place.offset for place in committed] == [250, 250]
    assert [bench.proxy.made(rule) for rule in rules] == [1, 1, 1]


@more
def test_kafka_python_group_through_the_proxy_reads_and_commits(bench):
    from kafka import KafkaConsumer

    topic = bench.new_topic()
    fill(bench.bootstrap, topic, [(None, b"%d" % n, n % 2) for n in range(100)])
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bench.address, group_id=f"{topic}-g",
        auto_offset_reset="earliest", consumer_timeout_ms=20_000,
    )  # fmt: skip
    try:
        values = {next(consumer).value for _ in range(100)}
        consumer.commit()
    finally:
        consumer.close()
    assert len(values) == 100


@more
def test_aiokafka_group_through_the_proxy_reads_and_commits(bench):
    from aiokafka import AIOKafkaConsumer

    topic = bench.new_topic()
    fill(bench.bootstrap, topic, [(None, b"%d" % n, n % 2) for n in range(100)])

    async def run() -> set[bytes | None]:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bench.address, group_id=f"{topic}-g",
            auto_offset_reset="earliest",
        )  # fmt: skip
        await consumer.start()
        try:
            async with asyncio.timeout(20):
                values = {(await consumer.getone()).value for _ in range(100)}
            await consumer.commit()
            return values
        finally:
            await consumer.stop()

    assert len(asyncio.run(run())) == 100


def test_producer_successor_started_while_a_commit_is_held_fences_the_first(bench):
    """The first instance's EndTxn arrives at the broker after its successor has started."""
    topic, name = bench.new_topic(), f"tx-{uuid.uuid4().hex[:8]}"
    successors: list[Confluent] = []

    def take_over(request: Request, answer: Answer | None) -> None:
        successors.append(Confluent(bench.proxy.address_for("second"), name))

    held = bench.does(Hold(HoldPoint.BEFORE_REQUEST, take_over), "EndTxn", instance="app")
    first = Confluent(bench.address, name)
    first.begin()
    first.send(topic, b"lost")
    with pytest.raises(KafkaException) as refused:
        first.commit()
    assert Confluent.is_fenced(refused.value)
    assert bench.proxy.made(held) == 1
    (second,) = successors
    second.begin()
    second.send(topic, b"kept")
    second.commit()
    assert bench.values(topic) == [b"kept"]
    (made,) = (event for event in bench.events if isinstance(event, FaultMade))
    assert (made.request.instance, made.request.body.committed) == ("app", True)
    assert "held for" in made.what


@pytest.mark.in_turn
@more
@pytest.mark.skipif(shutil.which("java") is None, reason="no Java")
def test_java_transactional_producer_through_the_proxy_retries_a_lost_v2_commit(bench):
    topic = bench.new_topic()
    lost = bench.lose("EndTxn", transactional_id=f"{topic}-id")
    printed_by(java_source(FOLDER / "java" / "TransactionalProducer.java", bench.address, topic))
    assert bench.proxy.made(lost) == 1
    seen = Counter((e.api, e.version) for e in bench.events if isinstance(e, Request))
    assert seen["EndTxn", 5]
    assert seen["Produce", 13] or seen["Produce", 12]


def test_proxy_attributes_connections_to_instances_and_reraises_an_error_of_its_event_callback(
    server,
):
    def fail(event: Event) -> None:
        if isinstance(event, ConnectionClosed):
            raise RuntimeError("of a listener")

    with pytest.raises(RuntimeError, match="of a listener"), ProtocolProxy(server, [fail]) as proxy:
        one, two = proxy.address_for("one"), proxy.address_for("two")
        assert (one != two, one) == (True, proxy.address_for("one"))
        assert proxy.brokers
        assert not set(proxy.brokers.values()) & {one, two}
        producers = [Confluent(address, uuid.uuid4().hex) for address in (one, two)]
        assert {connection.instance for connection in proxy.connections} == {"one", "two"}
        assert proxy.disconnect(instance="one") > 0
        for producer in producers:  # they reconnect
            producer.begin()
            producer.abort()
            producer.close()


@pytest.mark.chaos
def test_proxy_address_of_a_broker_stays_after_its_restart():
    from confluent_kafka import Producer

    with Cluster(nodes=3) as cluster, ProtocolProxy(cluster.bootstrap) as proxy:
        topic = asyncio.run(new_topic(cluster.bootstrap, 3))
        producer = Producer({"bootstrap.servers": proxy.address_for(), "log_level": 0})
        before: dict[int, tuple[str, int]] = {}
        for round_ in range(2):
            for partition in range(3):
                producer.produce(topic, b"%d" % round_, partition=partition)
            assert producer.flush(30) == 0
            metadata = producer.list_topics(topic, timeout=20)
            found = {n: (b.host, b.port) for n, b in metadata.brokers.items()}
            assert found == (before or found)
            before = found
            assert not {port for _, port in found.values()} & {
                int(address.rpartition(":")[2]) for address in proxy.brokers.values()
            }
            if not round_:
                node = cluster.kill(f"leader:{topic}/0")
                cluster.start(node)
                cluster.wait_for_isr(topic, 3)
        assert len(messages(proxy.address_for("reader"), topic, 3)) == 6
