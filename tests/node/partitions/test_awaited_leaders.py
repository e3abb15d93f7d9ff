"""Test requests for partitions that the broker has been elected to lead, but does not yet serve."""

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.coordinator.metadata.commands import (
    CreatePartitions,
    MorePartitions,
)
from oncelog.coordinator.sharding import shard_for
from oncelog.node.groups.coordinator import OFFSETS_TOPIC
from oncelog.node.listener.dispatch import RequestContext
from oncelog.node.partitions.awaited_leaders import AwaitedLeaders
from oncelog.node.partitions.roles import SETTLED_AT_ONCE_MAX
from oncelog.storage.partition_log import PartitionLog
from oncelog.wire.errors import ErrorCode, KafkaStorageError
from oncelog.wire.messages import fetch, produce
from oncelog.wire.messages.fetch import FetchRequest, FetchTopic
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic

from ...awaiting import settle, until
from ..fake_broker import FETCH, PRODUCE, Answer, request
from ..hosted_logs import RecordedFailures
from ..leading_broker import LeadingBroker, batch, plain, wanted
from ..own_broker import OwnBroker, running

E = ErrorCode
LIST_OFFSETS, DELETE_RECORDS, EPOCH_END, DESCRIBE_PRODUCERS, WRITE_MARKERS = 2, 21, 23, 61, 27
FIND_COORDINATOR = 10
NEW_ID = b"another topic id"


class Broker(LeadingBroker):
    """A broker that can hide `t-0`, as if its log was still being opened."""

    def hold(self) -> None:
        self.held = self.partition()
        self.replicas.remove(self.held)
        self.replicas.awaited.is_awaited = lambda topic, index: (
            (topic, index) == ("t", 0) and self.replicas.get("t", 0) is None
        )

    def serve(self) -> None:
        self.replicas.add(self.held)
        self.replicas.awaited.settled("t", 0)


@pytest.fixture
@asynccontextmanager
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    broker = Broker(tmp_path, partitions=2)
    broker.hold()
    yield broker


def connect(broker: OwnBroker, number: int = 1) -> RequestContext:
    return RequestContext(broker.services, number, "127.0.0.1")


def put(
    broker: OwnBroker,
    name: str = "a",
    index: int = 0,
    *,
    connection: RequestContext | None = None,
    topic_id: bytes | None = None,
    timeout_ms: int = 10_000,
) -> Answer:
    """Send a Produce of one batch with acks=1, and return its Answer."""
    version = 13 if topic_id else 9
    topic = ProduceTopic(None if topic_id else name, topic_id, [ProducePartition(index, plain())])
    body = b"".join(produce.encode_request(ProduceRequest(None, 1, timeout_ms, [topic]), version))
    context = connection or connect(broker)
    return request(broker.server.dispatcher, context, PRODUCE, version, body)


async def held(broker: OwnBroker, partitions: int = 2) -> None:
    """Block the thread that opens logs, create topic `a`, and wait until its log is being opened.

    `broker.directories.release` ends the block.
    """
    broker.directories.hold()
    await broker.create("a", partitions)
    await until(broker.directories.is_entered.is_set)


@pytest.mark.parametrize("topic_id", [None, b"a".ljust(16)])
async def test_produce_to_a_new_topic_waits_until_its_log_is_open(
    tmp_path: Path, topic_id: bytes | None
) -> None:
    async with running(tmp_path) as broker:
        await held(broker)
        answer = put(broker, topic_id=topic_id)
        await settle()
        assert not answer.is_there
        broker.directories.release()
        assert await answer.errors() == {0: 0}
        assert broker.replicas.partition("a", 0).log.log_end_offset == 1


async def test_produce_waits_no_longer_than_its_own_timeout(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await held(broker)
        assert await put(broker, timeout_ms=50).errors() == {0: E.NOT_LEADER_OR_FOLLOWER}


async def test_produce_to_new_partitions_waits_until_their_logs_are_open(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.create("a", 1)
        await until(lambda: broker.serves("a", 1))
        broker.directories.hold()
        command = CreatePartitions((MorePartitions("a", 3),))
        await broker._controller.submit(command, timeout_ms=20_000)
        answer = put(broker, index=2)
        await settle()
        assert not answer.is_there
        broker.directories.release()
        assert await answer.errors() == {2: 0}


async def test_produce_after_an_election_of_many_partitions_waits_for_its_own_partition(
    tmp_path: Path,
) -> None:
    """The broker begins to lead a few partitions at a time, and the produce names the last one."""
    now_ms, count = iter(range(10**9)), 5 * SETTLED_AT_ONCE_MAX
    async with running(tmp_path, slice_clock=lambda: next(now_ms) / 1000) as broker:
        await broker.create("a", count)
        await until(lambda: broker.serves("a", count))
        answers = list[Answer]()
        last = broker.replicas.partition("a", count - 1)

        def elected(changes: Any) -> None:  # the broker has not applied the last change yet
            leads = broker.state.topics["a"].partitions[-1].leader == 1
            if leads and last.leader is None and not answers:
                answers.append(put(broker, index=count - 1))

        broker.state.on_change(elected)
        await broker.fence()
        await until(lambda: last.leader is None)
        await broker.unfence()
        await until(lambda: answers)  # `elected` may run later than the answer to `unfence`
        assert await answers[0].errors() == {count - 1: 0}


async def test_produce_is_answered_immediately_when_its_log_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any, **keywords: Any) -> Any:
        raise KafkaStorageError("broken") from OSError(errno.EIO, "I/O error")

    async with running(tmp_path) as broker:
        broker.replicas.failed_logs = RecordedFailures()
        monkeypatch.setattr(PartitionLog, "opening", broken)
        await held(broker)
        answer = put(broker)
        broker.directories.release()
        async with asyncio.timeout(0.9):
            assert await answer.errors() == {0: E.NOT_LEADER_OR_FOLLOWER}
        assert put(broker).is_there


async def test_produce_is_answered_immediately_when_its_topic_is_deleted(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await held(broker)
        by_name, by_id = put(broker), put(broker, topic_id=b"a".ljust(16))
        await settle()
        async with asyncio.timeout(0.9):
            await broker.delete("a")
            assert await by_name.errors() == {0: E.UNKNOWN_TOPIC_OR_PARTITION}
            assert await by_id.errors() == {0: E.UNKNOWN_TOPIC_ID}
        assert not broker.replicas.awaited._waits


async def test_produce_by_id_is_refused_when_another_topic_has_taken_the_name(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as broker:
        await held(broker)
        answer = put(broker, topic_id=b"a".ljust(16))
        await settle()
        await broker.delete("a")
        await broker.create("a", topic_id=NEW_ID)
        broker.directories.release()
        assert await answer.errors() == {0: E.UNKNOWN_TOPIC_ID}
        await until(lambda: broker.serves("a"))
        assert broker.replicas.partition("a", 0).log.log_end_offset == 0


async def test_produce_is_answered_immediately_when_the_partition_gets_another_leader(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as broker:
        await held(broker)
        answer = put(broker)
        await settle()
        async with asyncio.timeout(0.9):
            await broker.fence()
            assert await answer.errors() == {0: E.NOT_LEADER_OR_FOLLOWER}


async def test_broker_that_stops_answers_waiting_requests(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await held(broker)
        answer = put(broker)
        await settle()
        broker.replicas.awaited.close()
        async with asyncio.timeout(0.9):
            assert await answer.errors() == {0: E.NOT_LEADER_OR_FOLLOWER}
        assert put(broker).is_there


async def test_produce_to_an_unknown_topic_is_refused_without_a_wait(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        async with asyncio.timeout(0.9):
            assert await put(broker, "nowhere").errors() == {0: E.UNKNOWN_TOPIC_OR_PARTITION}


# -- order, and what is read again after the wait


async def test_produces_after_a_produce_that_waits_for_a_leader_keep_their_order(
    broker: Broker,
) -> None:
    connection = broker.connect()
    answers = [
        broker.put({index: plain(sequence)}, connection=connection)
        for index, sequence in ((0, 0), (1, 0), (0, 1), (1, 1))
    ]
    await settle()
    assert not any(answer.is_there for answer in answers)
    assert broker.log(1).log_end_offset == 0
    broker.serve()
    assert [await answer.errors() for answer in answers] == [{0: 0}, {1: 0}, {0: 0}, {1: 0}]
    assert [entry[3] for entry in broker.contents(0)] == [0, 1]
    assert connection.produce_queue is None


async def test_transactional_produce_is_verified_after_the_wait_for_its_leader(
    broker: Broker,
) -> None:
    answer = broker.produce(broker.connect(), {0: batch()})
    await settle()
    assert not broker.verifier.questions
    broker.serve()
    assert await answer.errors() == {0: 0}
    assert len(broker.verifier.questions) == 1


async def test_produce_is_validated_by_the_topic_config_after_the_wait_for_its_leader(
    tmp_path: Path,
) -> None:
    broker = Broker(tmp_path, log_config={"is_compacted": True})
    broker.hold()
    answer = broker.put(plain(), connection=broker.connect())
    await settle()
    broker.serve()
    assert await answer.errors() == {0: 0}


async def test_produce_waiting_for_its_leader_of_a_closed_client_is_not_appended(
    broker: Broker,
) -> None:
    connection = broker.connect()
    answer = broker.put(plain(), connection=connection)
    await settle()
    answer.abandon()
    broker.serve()
    await until(lambda: connection.produce_queue is None)
    assert broker.log().log_end_offset == 0
    assert not broker.replicas.awaited._waits


async def test_produce_with_acks_zero_waits_for_its_leader_and_keeps_the_connection(
    broker: Broker,
) -> None:
    answer = broker.put(plain(), acks=0)
    await settle()
    broker.serve()
    assert await answer.value() is None
    assert broker.log().log_end_offset == 1


# -- other requests


def _fetched(broker: Broker, version: int, **fields: Any) -> Answer:
    topics = [FetchTopic("t", None, [wanted()])]
    fields = {"max_wait_ms": 5_000, "min_bytes": 1, "isolation_level": 1, **fields}
    body = b"".join(fetch.encode_request(FetchRequest(topics=topics, **fields), version))
    return broker.request(FETCH, version, body)


@pytest.mark.parametrize("fields", [{}, {"session_id": 0, "session_epoch": 0}])
async def test_fetch_waits_until_the_log_is_open(broker: Broker, fields: dict[str, Any]) -> None:
    data = plain()
    broker.serve()
    await broker.write()
    broker.hold()
    answer = _fetched(broker, 12, **fields)
    await settle()
    assert not answer.is_there
    broker.serve()
    (partition,) = await answer.partitions()
    assert partition.error_code == 0
    assert len(partition.records or b"") == len(data)


async def test_fetch_without_a_wait_time_is_refused_immediately(broker: Broker) -> None:
    (partition,) = await _fetched(broker, 12, max_wait_ms=0).partitions()
    assert partition.error_code == E.NOT_LEADER_OR_FOLLOWER


_T0 = {"partition_index": 0, "current_leader_epoch": -1}
_REQUESTS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "ListOffsets": (
        LIST_OFFSETS,
        7,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": "t", "partitions": [_T0 | {"timestamp": -1}]}],
        },
    ),
    "ListOffsets by time": (
        LIST_OFFSETS,
        7,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": "t", "partitions": [_T0 | {"timestamp": 5}]}],
        },
    ),
    "OffsetForLeaderEpoch": (
        EPOCH_END,
        4,
        {
            "replica_id": -1,
            "topics": [
                {
                    "topic": "t",
                    "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 1}],
                }
            ],
        },
    ),
    "DeleteRecords": (
        DELETE_RECORDS,
        2,
        {
            "topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 0}]}],
            "timeout": 5_000,
        },
    ),
    "WriteTxnMarkers": (
        WRITE_MARKERS,
        1,
        {
            "markers": [
                {
                    "producer_id": 7,
                    "producer_epoch": 0,
                    "transaction_result": True,
                    "topics": [{"name": "t", "partition_indexes": [0]}],
                    "coordinator_epoch": 1,
                }
            ]
        },
    ),
}


@pytest.mark.parametrize("name", _REQUESTS)
async def test_request_to_a_partition_leader_waits_until_the_log_is_open(
    broker: Broker, name: str
) -> None:
    answer = broker.request(*_REQUESTS[name])
    await settle()
    assert not answer.is_there
    broker.serve()
    value = await answer.value()
    (topic,) = value.markers[0].topics if name == "WriteTxnMarkers" else value.topics
    assert [partition.error_code for partition in topic.partitions] == [0]


async def test_describe_producers_waits_until_the_log_is_open(tmp_path: Path) -> None:
    values = {"topics": [{"name": "a", "partition_indexes": [0]}]}
    async with running(tmp_path) as broker:
        await held(broker)
        connection, dispatcher = connect(broker), broker.server.dispatcher
        answer = request(dispatcher, connection, DESCRIBE_PRODUCERS, 0, values)
        await settle()
        assert not answer.is_there
        broker.directories.release()
        (partition,) = await answer.partitions()
        assert partition.error_code == 0


async def test_find_coordinator_waits_until_the_group_partition_has_a_leader(
    tmp_path: Path,
) -> None:
    """On a new broker, a client requests its coordinator immediately after the topic's creation."""
    values = {"key": "g", "key_type": 0}
    async with running(tmp_path) as broker:
        broker.directories.hold()
        answer = request(broker.server.dispatcher, connect(broker), FIND_COORDINATOR, 3, values)
        await until(broker.directories.is_entered.is_set)
        await settle()
        assert not answer.is_there
        broker.directories.release()
        found = await answer.value()
        assert (found.error_code, found.node_id) == (0, 1)
        index = shard_for("g", len(broker.state.topics[OFFSETS_TOPIC].partitions))
        assert broker.replicas.partition(OFFSETS_TOPIC, index).leader is not None


async def test_find_coordinator_does_not_wait_for_partitions_of_other_groups(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as broker:
        for version, values in ((3, {"key": "g"}), (4, {"coordinator_keys": ["g"]})):
            asked = FIND_COORDINATOR, version, {"key_type": 0, **values}
            await request(broker.server.dispatcher, connect(broker), *asked).value()
            index = shard_for("g", len(broker.state.topics[OFFSETS_TOPIC].partitions))
            broker.replicas.awaited.is_awaited = lambda _, at, served=index: at != served
            answer = request(broker.server.dispatcher, connect(broker), *asked)
            await settle()
            assert answer.is_there


async def test_wait_for_leaders_ends_when_the_last_partition_is_settled() -> None:
    awaited, left = AwaitedLeaders(lambda: 0), {("t", 0), ("t", 1)}
    awaited.is_awaited = lambda topic, index: (topic, index) in left
    waiting = asyncio.create_task(awaited.wait(sorted(left), awaited.deadline_ms()))
    await settle()
    for key in sorted(left):
        assert not waiting.done()
        awaited.settled(*key)  # still awaited: nothing happens
        left.discard(key)
        awaited.settled(*key)
        await settle()
    assert waiting.done()
    assert not awaited._waits
