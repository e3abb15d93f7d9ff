"""Test the sender against failing leaders that check sequence numbers as Kafka does.

A leader accepts the first batch of a producer, and a batch that continues its sequence numbers. It
repeats the answer for one of the last five batches, and refuses all other batches (KIP-98). It also
loses requests, answers and leadership.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

import pytest

from oncelog.client.cluster_view import ClusterView, PartitionInfo
from oncelog.client.produce import sender as sender_module
from oncelog.client.produce.accumulator import Accumulator, ProducerBatch
from oncelog.client.produce.sender import Sender
from oncelog.client.retries import now_ms
from oncelog.client.settings import producer_settings
from oncelog.client.transactions.producer_state import Call, ProducerIdentity, ProducerState
from oncelog.client.transactions.scope import TransactionScope
from oncelog.wire.errors import (
    ErrorCode,
    KafkaError,
    NetworkException,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
    error_for,
)
from oncelog.wire.messages.produce import ProducedPartition
from oncelog.wire.record_batch import SEQUENCE_MAX, decode_header, increment_sequence
from oncelog.wire.records import decode_batch

from ...present import present
from .filling import put

E = ErrorCode
TIMEOUT_S = 20.0
Script = Callable[[ProducerBatch], "int | Exception | None"]


@dataclass
class Leader:
    """The log of one partition, and the producer state that its leader keeps."""

    values: list[bytes] = field(default_factory=list)
    windows: dict[int, deque[tuple[int, int, int]]] = field(default_factory=dict)
    max_bytes: int = 1 << 20

    def append(self, encoded: bytes) -> tuple[int, int]:
        header = decode_header(encoded)
        if len(encoded) > self.max_bytes:
            return E.MESSAGE_TOO_LARGE, -1
        first, last = header.base_sequence, header.last_sequence
        window = self.windows.setdefault(header.producer_id, deque(maxlen=5))
        for known_first, known_last, offset in window:
            if (known_first, known_last) == (first, last):
                return 0, offset
        follows = first == increment_sequence(window[-1][1], 1) if window else True
        if not follows:
            return E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        offset = len(self.values)
        self.values += [bytes(r.value or b"") for r in decode_batch(encoded)]
        window.append((first, last, offset))
        return 0, offset


class SenderContext:
    """A sender with its accumulator, its producer state, and scripted leaders as brokers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, partitions: int = 1, **settings) -> None:
        self.settings = producer_settings(
            {"bootstrap.servers": "x:1"},
            {"retry_backoff_ms": 1, "retry_backoff_max_ms": 4, "linger_ms": 0, **settings},
        )
        self.leaders = [Leader() for _ in range(partitions)]
        self.view = ClusterView("127.0.0.1:1")
        for number in range(partitions):
            self.view.snapshot.partitions[("t", number)] = PartitionInfo(
                topic="t", partition=number, leader=1, leader_epoch=0, replicas=(1,), isr=(1,)
            )
        self.identity = ProducerIdentity()
        self.batches = Accumulator(
            batch_bytes=150,
            linger_ms=0,
            delivery_timeout_ms=self.settings.delivery_timeout_ms,
            in_flight_max=5,
        )
        self.before: Script = lambda batch: None  # instead of the append
        self.after: Script = lambda batch: None  # instead of its answer
        self.pause: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0)
        self.requests: list[list[ProducerBatch]] = []
        self.ids = 0
        monkeypatch.setattr(sender_module, "produce_batches", self.produce)
        monkeypatch.setattr(sender_module, "fresh_producer_id", self.fresh_id)
        monkeypatch.setattr(self.view, "refresh", self.refresh)
        self.sender = Sender(self.view, self.settings, self.identity, self.batches, None)

    async def refresh(self, topics=None):
        return self.view.snapshot

    async def fresh_id(self, view, *, timeout_ms):
        self.ids += 1
        return 1_000 + self.ids, 0

    async def produce(self, view, leader, batches: Sequence[ProducerBatch], settings, *, is_v2):
        self.requests.append(list(batches))
        arrived = [(b, bytes(present(b.encoded))) for b in batches]  # as they were when they left
        await self.pause()
        answers = {}
        for batch, encoded in arrived:
            problem = self.before(batch)
            if isinstance(problem, Exception):
                raise problem
            code, offset = problem or 0, -1
            if not code:
                code, offset = self.leaders[batch.partition].append(encoded)
            problem = self.after(batch)
            if isinstance(problem, Exception):
                raise problem
            answers[("t", batch.partition)] = ProducedPartition(
                batch.partition, error_code=problem or code, base_offset=offset
            )
        return answers

    def send(self, value: bytes, partition: int = 0):
        self.sender.start()
        delivery = put(self.batches, value, partition=partition, now_ms=now_ms())
        self.sender.wake.set()
        return delivery

    async def settle(self) -> None:
        await asyncio.wait_for(self.sender.flush(), TIMEOUT_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.sender.close()


def once(code: "int | Exception", at: int = 0) -> Script:
    """Return a script that answers one batch, the one with index `at`, with `code`."""
    left = [at]

    def script(batch: ProducerBatch) -> "int | Exception | None":
        left[0] -= 1
        return code if left[0] == -1 else None

    return script


async def test_refused_batch_does_not_fail_later_batches(monkeypatch):
    """The refused batch leaves a gap in the sequence, so later batches are renumbered (KIP-360)."""
    context = SenderContext(monkeypatch)
    context.before = once(E.INVALID_RECORD, at=1)

    async with context:
        sent = [context.send(b"%0100d" % i) for i in range(8)]
        await context.settle()
        assert [type(d.exception()) for d in sent] == [
            type(None),
            type(error_for(E.INVALID_RECORD)),
            *[type(None)] * 6,
        ]
        assert [int(v) for v in context.leaders[0].values] == [0, 2, 3, 4, 5, 6, 7]
        assert context.ids == 2 and context.identity.state is ProducerState.READY


@pytest.mark.parametrize("where", ["_encode", "_decide"])
async def test_sender_loop_that_raises_leaves_the_producer_in_a_fatal_error(monkeypatch, where):
    """A flush after the failure returns, so a commit must fail, or records would be lost."""
    context = SenderContext(monkeypatch)

    def breaks(*_, **__):
        raise MemoryError("no room for a batch")

    async with context:
        await send_all(context, [0])
        monkeypatch.setattr(context.sender, where, breaks)
        lost = context.send(b"1")
        await context.settle()
        assert lost.exception() is context.identity.problem
        assert context.identity.state is ProducerState.FATAL_ERROR
        for call in (Call.PREPARE, Call.COMMIT):
            with pytest.raises(KafkaError, match="no room for a batch"):
                context.identity.require(call)
        with pytest.raises(KafkaError, match="must be closed"):
            context.sender.start()


@pytest.mark.parametrize("state", ProducerState)
async def test_partitions_are_not_added_to_an_aborting_transaction(monkeypatch, state):
    """With V1 an addition after the abort would begin a new transaction (found by chaos, seed
    20261).
    """
    context = SenderContext(monkeypatch)
    added = []

    class Session:
        scope = TransactionScope(is_v2=False)

        async def add_wanted(self):
            added.append(state)

    Session.scope.want(("t", 0))

    async with context:
        monkeypatch.setattr(context.sender, "_session", Session())
        context.identity.state = state
        context.sender._add_partitions()
        await asyncio.sleep(0)
        takes = state in (ProducerState.IN_TRANSACTION, ProducerState.COMMITTING_TRANSACTION)
        assert added == [state] * takes
        monkeypatch.setattr(context.sender, "_session", None)


@pytest.mark.parametrize("problem", [E.INVALID_RECORD, NetworkException("lost")])
async def test_failed_first_batch_of_a_producer_id_leaves_no_gap_in_the_log(monkeypatch, problem):
    """A leader without state of a producer id accepts any sequence number, and sees no gap.

    Found by chaos, seed 12: append/3 began with sequence 7 of its producer.
    """
    context = SenderContext(monkeypatch, delivery_timeout_ms=60)
    is_broken = True
    context.before = lambda batch: problem if is_broken else None

    async with context:
        (failed,) = await send_all(context, [0])
        assert failed.exception() is not None
        is_broken, context.batches._delivery_timeout_ms = False, 30_000
        sent = await send_all(context, range(1, 4))
        assert [d.exception() for d in sent] == [None] * 3
        assert [int(v) for v in context.leaders[0].values] == [1, 2, 3]
        assert [window[0][0] for window in context.leaders[0].windows.values()] == [0]


async def test_other_partitions_keep_their_sent_batches_after_a_refusal(monkeypatch):
    context = SenderContext(monkeypatch, partitions=2)
    refused = once(E.INVALID_RECORD)
    lost = once(NetworkException("lost"), at=1)
    context.before = lambda batch: refused(batch) if batch.partition == 0 else None
    context.after = lambda batch: lost(batch) if batch.partition == 1 else None

    async with context:
        sent = [context.send(b"%0100d" % i, i % 2) for i in range(16)]
        await context.settle()
        assert [i for i, d in enumerate(sent) if d.exception() is not None] == [0]
        assert [int(v) for v in context.leaders[0].values] == list(range(2, 16, 2))
        assert [int(v) for v in context.leaders[1].values] == list(range(1, 16, 2))


async def test_unclean_election_that_lost_a_record_does_not_fail_later_records(monkeypatch):
    """Unwritten batches get new sequence numbers, since the old ones do not fit the log."""
    context = SenderContext(monkeypatch)

    async with context:
        await send_all(context, range(3))
        context.leaders[0].values.pop()
        context.leaders[0].windows[1_001].pop()
        sent = await send_all(context, range(3, 6))
        assert all(d.exception() is None for d in sent)
        assert [int(v) for v in context.leaders[0].values] == [0, 1, 3, 4, 5]


async def send_all(context: SenderContext, numbers):
    sent = [context.send(b"%0100d" % i) for i in numbers]
    await context.settle()
    return sent


async def test_batch_that_may_be_in_the_log_keeps_its_sequence_numbers(monkeypatch):
    """The first answer was lost, then the producer's state at the broker. The batch must fail."""
    context = SenderContext(monkeypatch)
    answers = [None, NetworkException("lost")]
    context.after = lambda batch: answers.pop(0) if answers else None

    def expire_producer(batch: ProducerBatch):
        if len(context.leaders[0].values) == 2 and batch.attempts == 2:
            context.leaders[0].windows[1_001] = deque([(7, 9, 0)], maxlen=5)
        return None

    context.before = expire_producer

    async with context:
        await send_all(context, [0])
        (doubtful,) = await send_all(context, [1])
        assert isinstance(doubtful.exception(), OutOfOrderSequenceNumber)
        (after,) = await send_all(context, [2])
        assert after.exception() is None
        assert [int(v) for v in context.leaders[0].values] == [0, 1, 2]


@pytest.mark.parametrize(
    "code", [E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_TOPIC_OR_PARTITION, E.KAFKA_STORAGE_ERROR]
)
async def test_batch_refused_by_a_deposed_leader_after_its_append_has_an_unknown_outcome(
    monkeypatch, code
):
    """A leader that waits for replicas may refuse batches that the next leader has in its log.

    The next leader was restarted and knows only the producer's last batch, since Kafka's snapshots
    contain no more.
    """
    context = SenderContext(monkeypatch)
    arrived = 0

    def deposed(batch: ProducerBatch):
        nonlocal arrived
        arrived += 1
        if arrived == 4:
            window = context.leaders[0].windows[1_001]
            context.leaders[0].windows[1_001] = deque([window[-1]], maxlen=5)
        return code if 2 <= arrived <= 4 else None

    context.after = deposed

    async with context:
        await send_all(context, [0])
        doubtful = await send_all(context, [1, 2, 3])
        (after,) = await send_all(context, [4])
        assert [int(v) for v in context.leaders[0].values] == [0, 1, 2, 3, 4]
        assert isinstance(doubtful[0].exception(), OutOfOrderSequenceNumber)
        assert after.exception() is None


async def test_batch_parts_that_may_be_in_the_log_keep_their_sequence_numbers(monkeypatch):
    """The first answer was lost, then max.message.bytes was lowered, so the batch is split."""
    context = SenderContext(monkeypatch)
    context.batches._batch_bytes = 500
    lost = once(NetworkException("lost"), at=1)

    def shrunk(batch: ProducerBatch):
        problem = lost(batch)
        if problem is not None:
            context.leaders[0].max_bytes = 200
        return problem

    context.after = shrunk

    async with context:
        await send_all(context, [0])
        sent = [context.send(b"%050d" % i) for i in range(1, 5)]
        await context.settle()
        found = [int(v) for v in context.leaders[0].values]
        assert found == [0, 1, 2, 3, 4], "once each"
        assert all(isinstance(d.exception(), OutOfOrderSequenceNumber) for d in sent)


async def test_sequence_numbers_that_wrap_keep_the_batches_in_order(monkeypatch):
    """Sequence 0 follows 2^31 - 1. A retry must not be sorted after the batches that follow it."""
    context = SenderContext(monkeypatch)
    context.before = once(E.NOT_LEADER_OR_FOLLOWER, at=3)

    async with context:
        await send_all(context, [0])
        first = SEQUENCE_MAX - 1
        context.identity._next[("t", 0)] = first
        context.leaders[0].windows[1_001][-1] = (first - 1, first - 1, 0)
        sent = await send_all(context, range(1, 9))
        assert [d.exception() for d in sent] == [None] * 8
        assert [int(v) for v in context.leaders[0].values] == list(range(9))


async def test_record_expires_after_its_delivery_timeout_even_in_flight(monkeypatch):
    context = SenderContext(monkeypatch, delivery_timeout_ms=100, request_timeout_ms=100)
    over = asyncio.Event()

    async def until_over():
        await over.wait()

    context.pause = until_over

    async with context:
        late = context.send(b"%0100d" % 0)
        async with asyncio.timeout(TIMEOUT_S):
            while not late.done():
                await asyncio.sleep(0.01)
        assert isinstance(late.exception(), RequestTimedOut)
        assert not context.batches and not context.batches.unfinished_bytes
        following = context.send(b"%0100d" % 1)
        over.set()
        await context.settle()
        assert following.exception() is None
        assert [int(v) for v in context.leaders[0].values] == [0, 1], "it was written, after all"


async def test_produce_request_stays_within_max_request_size(monkeypatch):
    context = SenderContext(monkeypatch, partitions=10, max_request_size=400)

    async with context:
        for i in range(10):
            context.send(b"%0100d" % i, i)
        await context.settle()
        sizes = [sum(len(present(b.encoded)) for b in request) for request in context.requests]
        assert max(sizes) <= 400 and max(map(len, context.requests)) == 2


async def test_batch_refused_as_too_large_is_split_and_resent_in_order(monkeypatch):
    context = SenderContext(monkeypatch)
    context.batches._batch_bytes = 500
    context.leaders[0].max_bytes = 300

    async with context:
        sent = [context.send(b"%050d" % i) for i in range(40)]
        await context.settle()
        assert [d.result().offset for d in sent] == list(range(40))
        assert [int(v) for v in context.leaders[0].values] == list(range(40))


async def test_batch_parts_keep_the_producer_id_of_their_sequence_numbers(monkeypatch):
    """A gap in another partition causes a new producer id while the parts of a batch wait."""
    context = SenderContext(monkeypatch, partitions=2)
    context.batches._batch_bytes = 500
    context.leaders[0].max_bytes = 300
    refused = once(E.INVALID_RECORD, at=1)
    context.before = lambda batch: refused(batch) if batch.partition == 1 else None

    async with context:
        sent = [context.send(b"%050d" % i, i % 2) for i in range(80)]
        await context.settle()
        assert context.ids == 2
        assert [int(v) for v in context.leaders[0].values] == list(range(0, 80, 2))
        gone = [i for i, d in enumerate(sent) if d.exception() is not None]
        left = [i for i in range(1, 80, 2) if i not in gone]
        assert 0 < len(gone) < 12 and [int(v) for v in context.leaders[1].values] == left


FAULTS = (
    ("before", E.NOT_LEADER_OR_FOLLOWER),
    ("before", E.NOT_ENOUGH_REPLICAS),
    ("before", E.INVALID_RECORD),
    ("before", NetworkException("lost")),
    ("after", NetworkException("lost")),
    ("after", E.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
)


@pytest.mark.parametrize("seed", range(20))
async def test_sender_with_random_faults_writes_each_acknowledged_record_once_and_in_order(
    monkeypatch, seed
):
    random_source = random.Random(seed)
    context = SenderContext(monkeypatch, partitions=3)

    def script(where: str) -> Script:
        def answer(batch: ProducerBatch):
            if random_source.random() > 0.15:
                return None
            found = [fault for place, fault in FAULTS if place == where]
            return random_source.choice(found)

        return answer

    async def pause():
        for _ in range(random_source.randrange(6)):
            await asyncio.sleep(0)

    context.before, context.after, context.pause = script("before"), script("after"), pause

    async with context:
        sent = []
        for number in range(150):
            sent.append((number, number % 3, context.send(b"%0100d" % number, number % 3)))
            if random_source.random() < 0.3:
                await asyncio.sleep(0)
        await context.settle()
        for partition, leader in enumerate(context.leaders):
            found = [int(v) for v in leader.values]
            assert found == sorted(set(found)), "once, and in order"
            for number, where, delivery in sent:
                if where != partition:
                    continue
                problem = delivery.exception()
                if problem is None:
                    offset = delivery.result().offset
                    assert offset < 0 or int(leader.values[offset]) == number
                    assert number in found
                else:
                    assert isinstance(problem, KafkaError) and not problem.fatal
                    assert problem.code in (E.INVALID_RECORD, E.OUT_OF_ORDER_SEQUENCE_NUMBER)
        failed = [d for _, _, d in sent if d.exception() is not None]
        assert len(failed) < 60
