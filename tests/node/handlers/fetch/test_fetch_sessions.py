"""Test that fetch sessions (KIP-227) return the same records as full fetches."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oncelog.coordinator.metadata.cluster_model import PartitionRegistration
from oncelog.node.handlers.fetch import session_fetch
from oncelog.node.handlers.fetch.session_fetch import PLACES_AT_ONCE_MAX
from oncelog.replication.fetch_session_cache import EVICTION_MS
from oncelog.runtime.steps import run_to_end
from oncelog.runtime.turn_share import TurnShare
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages import fetch
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

from ....awaiting import settle
from ...fake_broker import FETCH, Answer
from ...leading_broker import LeadingBroker, batch

E = ErrorCode
FOREVER_MS = 60_000
MANY = 300
ENOUGH = 1 << 20


@pytest.fixture
@asynccontextmanager
async def broker(tmp_path: Path) -> AsyncIterator[LeadingBroker]:
    yield LeadingBroker(tmp_path, partitions=4)


class Client:
    """A consumer with a fetch session, and the last answer for each partition."""

    def __init__(self, broker: LeadingBroker, **fields: Any) -> None:
        self._broker = broker
        self._fields: dict[str, Any] = {"isolation_level": 0} | fields
        self.connection = broker.connect()
        self.session_id = self.epoch = 0
        self.known: dict[int, tuple[int, int, int]] = {}
        self.records: dict[int, int] = {}

    def send(
        self,
        partitions: Iterable[FetchPartition] = (),
        forgotten: Iterable[int] = (),
        *,
        version: int = 12,
        **fields: Any,
    ) -> Answer:
        topics = [FetchTopic("t", None, list(partitions))]
        gone = [ForgottenTopic("t", None, list(forgotten))]
        if version >= 13:
            for topic in (*topics, *gone):
                topic.topic_id = self._broker.partition().topic_id
        settings: dict[str, Any] = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "topics": [topic for topic in topics if topic.partitions],
            "forgotten_topics": [topic for topic in gone if topic.partitions],
            "session_id": self.session_id,
            "session_epoch": self.epoch,
        }
        request = FetchRequest(**(settings | self._fields | fields))
        body = b"".join(fetch.encode_request(request, version))
        return self._broker.send(self.connection, FETCH, version, body)

    async def take(self, answer: Answer) -> dict[int, Any]:
        """Return the partitions in an answer by index, and store their state and the session's."""
        value = await answer.value()
        assert value.error_code == E.NONE
        self.session_id = value.session_id
        self.epoch += 1
        told = {p.index: p for topic in value.topics for p in topic.partitions}
        for index, p in told.items():
            self.known[index] = (p.error_code, p.high_watermark, p.log_start_offset)
        return told

    async def ask(self, *asked: Any, **fields: Any) -> dict[int, Any]:
        return await self.take(self.send(*asked, **fields))


def at(index: int, offset: int = 0, **fields: Any) -> FetchPartition:
    return FetchPartition(index, offset, ENOUGH, **fields)


def all_at_start(count: int = 4) -> list[FetchPartition]:
    return [at(index) for index in range(count)]


async def test_fetch_session_answer_has_only_changed_partitions(broker: LeadingBroker) -> None:
    client = Client(broker)
    assert sorted(await client.ask(all_at_start())) == [0, 1, 2, 3]
    assert client.session_id > 0
    assert await client.ask() == {}
    await broker.write(2)
    told = await client.ask()
    assert list(told) == [2] and len(told[2].records) == len(batch(0))
    assert list(await client.ask()) == [2], "the position has not moved"
    assert await client.ask([at(2, 1)]) == {}
    await broker.write(2)
    assert list(await client.ask()) == [2]


async def test_waiting_fetch_completes_at_an_append(broker: LeadingBroker) -> None:
    client = Client(broker)
    await client.ask(all_at_start())
    answer = client.send(max_wait_ms=FOREVER_MS)
    await settle()
    assert not answer.is_there
    await broker.write(3)
    assert answer.is_there
    assert list(await client.take(answer)) == [3]
    assert broker.replicas.purgatory.waiting_count == 0


async def test_full_fetch_waits_and_then_answers_every_partition(broker: LeadingBroker) -> None:
    client = Client(broker)
    answer = client.send(all_at_start(), max_wait_ms=FOREVER_MS)
    await broker.write(1)
    assert sorted(await client.take(answer)) == [0, 1, 2, 3]


async def test_fetch_min_bytes_are_summed_over_partitions_and_appends(
    broker: LeadingBroker,
) -> None:
    client, size = Client(broker, min_bytes=3 * len(batch(0))), len(batch(0))
    await client.ask(all_at_start())
    answer = client.send(max_wait_ms=FOREVER_MS)
    for index in (0, 0):
        await broker.write(index)
        assert not answer.is_there
    await broker.write(1)
    told = await client.take(answer)
    assert {index: len(p.records) for index, p in told.items()} == {0: 2 * size, 1: size}


async def test_fetch_past_its_deadline_is_answered_with_available_records(
    broker: LeadingBroker,
) -> None:
    client = Client(broker, min_bytes=ENOUGH)
    await client.ask(all_at_start())
    answer = client.send(max_wait_ms=30)
    await broker.write(1)
    assert not answer.is_there
    assert list(await client.take(answer)) == [1]


async def test_fetch_session_forgotten_partition_is_in_no_answer(broker: LeadingBroker) -> None:
    client = Client(broker)
    await client.ask(all_at_start())
    await client.ask((), [1, 2, 77])
    for index in range(4):
        await broker.write(index)
    assert sorted(await client.ask()) == [0, 3]
    await client.ask([at(1)], [0, 3])
    assert len(broker.replicas.purgatory.standing) <= 1


async def test_fetch_session_without_partitions_is_closed(broker: LeadingBroker) -> None:
    client = Client(broker)
    await client.ask([at(0), at(1)])
    value = await client.send((), [0, 1], max_wait_ms=FOREVER_MS).value()
    assert (value.error_code, value.session_id, value.topics) == (E.NONE, 0, [])
    assert len(broker.services.fetch_sessions) == 0
    assert len(broker.replicas.purgatory.standing) == 0


async def test_fetch_session_repeats_a_partition_error_until_the_error_ends(
    broker: LeadingBroker,
) -> None:
    client = Client(broker)
    await client.ask(all_at_start())
    answer = client.send(max_wait_ms=FOREVER_MS)
    broker.resign(1)
    assert answer.is_there, "it does not wait for its deadline"
    told = await client.take(answer)
    assert {index: p.error_code for index, p in told.items()} == {1: E.NOT_LEADER_OR_FOLLOWER}
    for _ in range(2):
        told = await client.ask(max_wait_ms=FOREVER_MS)
        assert {index: p.error_code for index, p in told.items()} == {1: E.NOT_LEADER_OR_FOLLOWER}
    hosted = broker.partition(1)
    broker.make_leader(hosted, PartitionRegistration((1,), (1,), leader=1, leader_epoch=100))
    broker.replicas.role_changed(hosted)
    assert client.known[1][0] and (await client.ask())[1].error_code == E.NONE
    assert await client.ask() == {}


async def test_fetch_session_with_a_new_leader_epoch_fences_the_old_epoch(
    broker: LeadingBroker,
) -> None:
    client = Client(broker)
    await client.ask([at(0, current_leader_epoch=1)])
    answer = client.send(max_wait_ms=FOREVER_MS)
    hosted = broker.partition(0)
    broker.make_leader(hosted, PartitionRegistration((1,), (1,), leader=1, leader_epoch=2))
    broker.replicas.role_changed(hosted)
    told = await client.take(answer)
    assert told[0].error_code == E.FENCED_LEADER_EPOCH
    assert (await client.ask([at(0, current_leader_epoch=2)]))[0].error_code == E.NONE


async def test_fetch_session_next_answer_has_a_new_log_start_offset(broker: LeadingBroker) -> None:
    client = Client(broker)
    await broker.write(0)
    await client.ask(all_at_start())
    await client.ask([at(0, 1)])
    assert await client.ask() == {}
    values = {
        "topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 1}]}],
        "timeout": 1000,
    }
    await broker.ask(21, 1, values)
    assert client.known[0][2] == 0
    assert (await client.ask())[0].log_start_offset == 1
    assert await client.ask() == {}


@pytest.mark.parametrize("min_bytes", [1, 400])
@pytest.mark.parametrize("is_open_before", [False, True])
async def test_read_committed_fetch_completes_when_the_transaction_ends(
    tmp_path: Path, min_bytes: int, is_open_before: bool
) -> None:
    """Only the last stable offset advances at the end, since all records are already in the log."""
    broker = LeadingBroker(tmp_path, replicas=(1, 2), min_insync_replicas=2)
    client = Client(broker, isolation_level=1, min_bytes=min_bytes)
    producer = broker.connect()

    async def write(numbers: Iterable[int]) -> None:
        for n in numbers:
            broker.produce(producer, {0: batch(n, size=100)})
            await settle()
            broker.replicate()

    if is_open_before:
        await write(range(2))
    assert (await client.ask([at(0)]))[0].records == b""
    answer = client.send(max_wait_ms=FOREVER_MS)
    await write(range(2 if is_open_before else 0, 4))
    await settle()
    assert not answer.is_there
    marking = broker.mark()
    await settle()
    assert not answer.is_there, "the marker is not committed yet"
    broker.replicate()
    assert await marking == [E.NONE]
    told = await client.take(answer)
    assert len(told[0].records) >= min_bytes and told[0].last_stable_offset == 5


# -- refusals


async def test_fetch_session_request_with_a_wrong_epoch_or_id_is_refused(
    broker: LeadingBroker,
) -> None:
    client = Client(broker)
    await client.ask(all_at_start())

    async def refusal(**fields: Any) -> tuple[int, int, int]:
        value = await client.send([at(0)], max_wait_ms=FOREVER_MS, **fields).value()
        return value.error_code, value.session_id, len(value.topics)

    assert await refusal(session_epoch=7) == (E.INVALID_FETCH_SESSION_EPOCH, 0, 0)
    assert await refusal(session_epoch=-2) == (E.INVALID_FETCH_SESSION_EPOCH, 0, 0)
    other = client.session_id % 1000 + 1
    assert await refusal(session_id=other) == (E.FETCH_SESSION_ID_NOT_FOUND, 0, 0)
    assert await refusal(session_id=0) == (E.FETCH_SESSION_ID_NOT_FOUND, 0, 0)
    assert await refusal(version=13) == (E.FETCH_SESSION_TOPIC_ID_ERROR, 0, 0)
    assert await client.ask() == {}, "the session still exists"


async def test_fetch_session_request_overtaken_by_another_is_refused_immediately(
    broker: LeadingBroker,
) -> None:
    client = Client(broker)
    await client.ask(all_at_start())
    overtaken = client.send(max_wait_ms=FOREVER_MS)
    client.connection = broker.connect()
    newer = client.send(session_epoch=2, max_wait_ms=FOREVER_MS)
    assert (await overtaken.value()).error_code == E.INVALID_FETCH_SESSION_EPOCH
    await broker.write(0)
    assert [p.index for p in (await newer.value()).topics[0].partitions] == [0]


@pytest.mark.parametrize("epoch", [0, -1])
async def test_full_fetch_that_names_a_session_closes_the_session(
    broker: LeadingBroker, epoch: int
) -> None:
    client = Client(broker)
    await client.ask(all_at_start())
    before = client.session_id
    value = await client.send(all_at_start(), session_epoch=epoch).value()
    assert value.session_id != before and bool(value.session_id) == (epoch == 0)
    assert len(value.topics[0].partitions) == 4
    assert len(broker.services.fetch_sessions) == (1 if epoch == 0 else 0)


async def test_fetch_session_refuses_the_later_of_two_requests_with_one_epoch(
    broker: LeadingBroker,
) -> None:
    """A large request updates the session some turns of the loop after the check of its epoch."""
    client = Client(broker)
    await client.ask(all_at_start())
    request = FetchRequest(0, 1, [], session_id=client.session_id, session_epoch=1)
    earlier, later = (session_fetch.begin(client.connection, request, 12) for _ in range(2))
    assert earlier is not None and later is not None
    assert run_to_end(earlier.update()) is earlier
    with pytest.raises(KafkaError) as refused:
        run_to_end(later.update())
    assert refused.value.number == E.INVALID_FETCH_SESSION_EPOCH


async def test_fetch_session_evicted_before_its_first_step_leaves_no_reference_cycle(
    broker: LeadingBroker,
) -> None:
    """Brokers run no full collection, so a cycle of session and partitions would be leaked."""
    topic = FetchTopic("t", None, all_at_start())
    opening = FetchRequest(0, 1, [topic], session_epoch=0)
    asked = session_fetch.begin(broker.connect(), opening, 12)
    assert asked is not None
    session_fetch.close_session(broker.services, asked.session)
    with pytest.raises(KafkaError) as refused:
        run_to_end(asked.update())
    assert refused.value.number == E.FETCH_SESSION_ID_NOT_FOUND
    assert not asked.session.partitions and not asked.session.changed


async def test_fetch_of_a_closed_client_leaves_no_waiting_operation(broker: LeadingBroker) -> None:
    client = Client(broker)
    client.send(all_at_start(), max_wait_ms=FOREVER_MS).abandon()
    assert len(broker.services.fetch_sessions) == 0, "its id was never sent"
    await client.ask(all_at_start())
    client.send(max_wait_ms=FOREVER_MS).abandon()
    assert broker.replicas.purgatory.waiting_count == 0
    assert len(broker.services.fetch_sessions) == 1, "it may come back on another connection"
    for index in range(4):
        await broker.write(index)
    assert len(broker.replicas.purgatory.standing) == 0, "and costs nothing more until then"


async def test_fetch_of_a_closed_client_that_is_released_later_leaves_no_waiting_operation(
    broker: LeadingBroker,
) -> None:
    """The fetch's partitions are released in a later turn, and an append completes it before."""
    share = SpentShare()
    Client(broker).send(all_at_start(), max_wait_ms=FOREVER_MS).abandon(share)
    await broker.write(0)
    assert len(broker.services.fetch_sessions) == len(share.put_off) == 1
    share.put_off[0]()
    assert len(broker.services.fetch_sessions) == 0, "its id was never sent"
    assert broker.replicas.purgatory.waiting_count == 0


@pytest.mark.parametrize("has_records", [False, True])
async def test_fetch_of_a_client_that_closes_during_a_long_read_leaves_no_waiting_operation(
    tmp_path: Path, has_records: bool
) -> None:
    broker = LeadingBroker(tmp_path, partitions=MANY)
    if has_records:
        await broker.write(0)
    sessions = broker.services.fetch_sessions
    for turns in range(0, 32, 2):
        before = len(sessions)
        client = Client(broker)
        answer = client.send([at(i) for i in range(MANY)], max_wait_ms=FOREVER_MS)
        await settle(turns)
        if not answer.is_there:
            answer.abandon()
            client.connection.is_closed = True
            await settle(100)
            assert len(sessions) == before, f"after {turns} turns"
    assert broker.replicas.purgatory.waiting_count == 0


async def test_append_before_the_partitions_of_a_closed_client_are_released_leaves_no_fetch_session(
    tmp_path: Path,
) -> None:
    broker, share = LeadingBroker(tmp_path, partitions=MANY), SpentShare()
    client = Client(broker)
    answer = client.send([at(i) for i in range(MANY)], max_wait_ms=FOREVER_MS)
    await settle(100)
    answer.abandon(share)
    client.connection.is_closed = True
    await broker.write(0)
    await settle(100)
    assert len(broker.services.fetch_sessions) == 0


class SpentShare(TurnShare):
    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.put_off: list[Callable[[], object]] = []

    def do(self, action: Callable[[], object]) -> None:
        self.put_off.append(action)


async def test_fetch_without_a_free_session_slot_gets_no_session_until_an_old_one_is_evicted(
    tmp_path: Path,
) -> None:
    slots = {"max.incremental.fetch.session.cache.slots": "1"}
    broker = LeadingBroker(tmp_path, partitions=4, settings=slots)
    first, second = Client(broker), Client(broker)
    await first.ask(all_at_start())
    assert sorted(await second.ask(all_at_start())) == [0, 1, 2, 3] and second.session_id == 0
    session = broker.services.fetch_sessions.get(first.session_id)
    assert session is not None
    session.last_used_ms -= EVICTION_MS + 1
    waiting = first.send(max_wait_ms=FOREVER_MS)
    session.last_used_ms -= EVICTION_MS + 1
    second.epoch = 0
    await second.ask(all_at_start())
    assert second.session_id != 0
    assert (await waiting.value()).error_code == E.FETCH_SESSION_ID_NOT_FOUND


async def test_fetch_session_is_not_opened_or_is_closed_by_a_topic_name_that_is_too_long(
    broker: LeadingBroker,
) -> None:
    """The memory limit of sessions counts partitions, not their names of up to 32 kB."""
    overlong = FetchTopic("x" * 250, None, [at(0)])
    client = Client(broker)
    for answer in (client.send(topics=[overlong]), client.send(topics=[overlong])):
        value = await answer.value()
        assert value.session_id == 0
        assert value.topics[0].partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    await client.ask(all_at_start())
    refused = await client.send(topics=[overlong]).value()
    assert refused.error_code == E.FETCH_SESSION_ID_NOT_FOUND
    assert len(broker.services.fetch_sessions) == 0


# -- many partitions


async def test_fetch_session_with_many_changed_partitions_answers_in_parts(tmp_path: Path) -> None:
    """One turn of the loop is too short for a thousand changed partitions."""
    count = 2 * PLACES_AT_ONCE_MAX + 50
    broker = LeadingBroker(tmp_path, partitions=count)
    client = Client(broker)
    assert len(await client.ask(all_at_start(count))) == count
    for index in range(count):
        await broker.write(index)
    told: list[int] = []
    for _ in range(3):
        some = await client.ask([at(index, 1) for index in told[-PLACES_AT_ONCE_MAX:]])
        told += some
    assert sorted(told) == list(range(count))


async def test_fetch_session_with_one_batch_an_answer_rotates_its_partitions(
    broker: LeadingBroker,
) -> None:
    client = Client(broker, max_bytes=1)
    await client.ask(all_at_start())
    for index in range(4):
        for _ in range(3):
            await broker.write(index)
    told: list[int] = []
    moved: list[FetchPartition] = []
    for _ in range(12):
        answer = await client.ask(moved)
        read = [index for index, p in answer.items() if p.records]
        moved = [at(index, told.count(index) + 1) for index in read]
        told += read
    assert sorted(told[:4]) == [0, 1, 2, 3] and sorted(told) == sorted([0, 1, 2, 3] * 3)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["write", "ask", "wait", "resign", "lead", "forgotten", "want"]),
            st.integers(0, 2),
        ),
        max_size=25,
    ),
    isolation=st.integers(0, 1),
)
def test_fetch_session_answers_equal_the_answers_to_full_fetches(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], isolation: int
) -> None:
    async def test() -> None:
        broker = LeadingBroker(tmp_path_factory.mktemp("log"), partitions=3)
        client = Client(broker, isolation_level=isolation)
        wanted = {0, 1, 2}
        offsets = dict.fromkeys(range(3), 0)
        epoch = 1
        await client.ask(all_at_start(3))
        for step, index in steps:
            hosted = broker.partition(index)
            if step == "write" and hosted.leader is not None:
                await broker.write(index)
            elif step == "resign" and hosted.leader is not None:
                broker.resign(index)
            elif step == "lead" and hosted.leader is None:
                epoch = 100 + epoch
                record = PartitionRegistration((1,), (1,), leader=1, leader_epoch=epoch)
                broker.make_leader(hosted, record)
                broker.replicas.role_changed(hosted)
            elif step == "forgotten" and index in wanted and len(wanted) > 1:
                wanted.remove(index)
                client.known.pop(index)
                await client.ask((), [index])
                client.known.pop(index, None)
            elif step == "want" and index not in wanted:
                wanted.add(index)
                await client.ask([at(index, offsets[index])])
            elif step in ("ask", "wait"):
                moved = []
                told = await client.ask(max_wait_ms=1 if step == "wait" else 0)
                for each, p in told.items():
                    if p.records:
                        offsets[each] = p.high_watermark
                        moved.append(at(each, offsets[each]))
                await client.ask(moved)
        await client.ask()
        full = await Client(broker, isolation_level=isolation).ask(
            [at(index, offsets[index]) for index in sorted(wanted)], session_epoch=-1
        )
        for index, p in full.items():
            assert client.known[index] == (p.error_code, p.high_watermark, p.log_start_offset)
        behind = {index for index, p in full.items() if p.records}
        assert {index for index, p in (await client.ask()).items() if p.records} == behind

    asyncio.run(test())
