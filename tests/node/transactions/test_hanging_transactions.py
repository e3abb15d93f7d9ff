"""Test that a partition ends an open transaction that its coordinator does not know or has ended.

Silent producers expire, too.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from oncelog.coordinator.transactions.answers import TransactionDescription
from oncelog.coordinator.transactions.messages import DescribeTransaction
from oncelog.node.transactions.connection_fence import ProducerConnectionFence
from oncelog.node.transactions.hanging_transactions import (
    ASK_AFTER_MS,
    ASK_AGAIN_MS_MAX,
    QUESTIONS_PER_SCAN,
    HangingCandidate,
    HangingDecision,
    HangingTransactionReaper,
    OpenSince,
    verdict_on,
)
from oncelog.node.transactions.producer_expiry import ProducerExpiry
from oncelog.replication.messages import PeerMessage
from oncelog.replication.peer.codec import decode_message, encode_message
from oncelog.replication.peer.transport import PeerUnavailable
from oncelog.runtime.sliced_work import run_to_end
from oncelog.wire.errors import ErrorCode

from ..leading_broker import LeadingBroker, StoppedClock, batch

E = ErrorCode
HERE, ELSEWHERE = (("t", 0),), (("u", 0),)
LEAVE, ABORT, COMMIT = HangingDecision.LEAVE, HangingDecision.ABORT, HangingDecision.COMMIT


class Coordinators:
    """Coordinators, all on `node`, which describe each transaction by `description`."""

    def __init__(self) -> None:
        self.node: int | None = 1
        self.description = TransactionDescription(transactional_id="tx")
        self.asked = 0

    def leader_of(self, transactional_id: str) -> int | None:
        return self.node

    def describe(self, transactional_id: str) -> TransactionDescription:
        self.asked += 1
        return self.description


class Links:
    def __init__(self) -> None:
        self.handlers: dict[int, Callable[..., None]] = {}
        self.is_up = True

    def on_request(self, kind: int, handler: Callable[..., None]) -> None:
        self.handlers[kind] = handler

    async def request(
        self, peer: int, kind: int, header: bytes, *, timeout_ms: int
    ) -> tuple[bytes, list[object]]:
        if not self.is_up:
            raise PeerUnavailable("cut")
        answers: list[bytes] = []
        self.handlers[kind](peer, header, [], lambda answer, frames: answers.append(answer))
        return answers[0], []


class Scene:
    """A broker with its search for hanging transactions, and a clock that the test moves."""

    def __init__(self, directory: Path) -> None:
        self.clock = StoppedClock()
        self.broker = LeadingBroker(directory, replicas_clock=self.clock)
        self.coordinators, self.links = Coordinators(), Links()
        self.reaper = HangingTransactionReaper(
            self.broker.replicas,
            self.coordinators,  # type: ignore[arg-type]
            self.broker.markers,
            self.links,  # type: ignore[arg-type]
            node_id=1,
            scan_ms=1 << 30,
            hanging_after_ms=60_000,
        )

    async def scan_after(self, delay_ms: int) -> None:
        self.clock.now_ms += delay_ms
        await self.reaper.scan()

    def expiry(
        self,
        *fences: ProducerConnectionFence,
        expiration_ms: int = 86_400_000,
        producers_max: int = 100,
    ) -> ProducerExpiry:
        return ProducerExpiry(
            self.broker.replicas,
            list(fences),
            expiration_ms=expiration_ms,
            interval_ms=1 << 30,
            producers_max=producers_max,
        )

    async def open_transaction(self) -> None:
        self.connection = self.broker.connect()
        answer = self.broker.produce(self.connection, {0: batch(0)})
        assert await answer.errors() == {0: E.NONE}
        await self.scan_after(0)


@pytest.fixture
@asynccontextmanager
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    await scene.reaper.stop()


# -- the decision


def described(
    state: str,
    epoch: int = 5,
    partitions: tuple[tuple[str, int], ...] = (),
    *,
    producer_id: int = 7,
    error: int = 0,
) -> TransactionDescription:
    return TransactionDescription(
        transactional_id="tx",
        error=error,
        producer_id=producer_id,
        producer_epoch=epoch,
        state=state,
        partitions=partitions,
    )


@pytest.mark.parametrize(
    ("description", "verdict"),
    [
        (described("Ongoing", 5, HERE), LEAVE),
        (described("Ongoing", 6, HERE), LEAVE),
        (described("Ongoing", 5, ELSEWHERE), ABORT),
        (described("Ongoing", 6, ELSEWHERE), ABORT),
        (described("PrepareCommit", 5, HERE), LEAVE),
        (described("PrepareAbort", 6, ELSEWHERE), LEAVE),
        (described("PrepareEpochFence", 6, HERE), LEAVE),
        (described("CompleteCommit", 6), COMMIT),
        (described("CompleteCommit", 5), ABORT),  # the commit may be that of the next transaction
        (described("CompleteCommit", 7), ABORT),
        (described("CompleteAbort", 5), ABORT),
        (described("CompleteAbort", 6), ABORT),
        (described("Empty", 6), ABORT),
        (described("Empty", 4), LEAVE),
        (described("Ongoing", 4, HERE), LEAVE),
        (described("Empty", 0, producer_id=8), ABORT),
        (described("", error=E.TRANSACTIONAL_ID_NOT_FOUND), ABORT),
        (described("", error=E.NOT_COORDINATOR), LEAVE),
        (described("", error=E.COORDINATOR_LOAD_IN_PROGRESS), LEAVE),
    ],
)
async def test_hanging_transaction_decision_depends_on_the_answer_of_the_coordinator(
    description: TransactionDescription, verdict: HangingDecision, scene: Scene
) -> None:
    partition = scene.broker.partition()
    assert verdict_on(description, HangingCandidate(partition, 7, 5, 3, 10, 12)) is verdict


def test_hanging_transaction_checks_are_made_at_growing_intervals_and_bounded() -> None:
    many = [HangingCandidate(None, n, 0, 0, n, n) for n in range(250)]  # type: ignore[arg-type]
    since = OpenSince()
    assert run_to_end(since.looking(many, 0)) == []
    assert run_to_end(since.looking(many, ASK_AFTER_MS - 1)) == []
    assert [len(run_to_end(since.looking(many, ASK_AFTER_MS))) for _ in range(4)] == [
        QUESTIONS_PER_SCAN,
        QUESTIONS_PER_SCAN,
        50,
        0,
    ]
    one = many[:1]
    asked_at = [
        now for now in range(ASK_AFTER_MS, 2_000_000, 1000) if run_to_end(since.looking(one, now))
    ]
    gaps = [later - earlier for earlier, later in pairwise(asked_at)]
    assert gaps == sorted(gaps)
    assert gaps[0] >= ASK_AFTER_MS
    assert gaps[-1] == ASK_AGAIN_MS_MAX
    assert since.older_than(1, 2_000_000) == 1
    assert run_to_end(since.looking([], 2_000_000)) == []
    assert since.older_than(0, 2_000_000) == 0


# -- the end


@pytest.mark.parametrize("node", [1, 2])
async def test_hanging_transaction_unknown_to_its_coordinator_is_aborted(
    node: int, scene: Scene
) -> None:
    await scene.open_transaction()
    scene.coordinators.node = node
    scene.coordinators.description = described("Empty", 0)
    await scene.scan_after(ASK_AFTER_MS - 1)
    assert scene.coordinators.asked == 0
    await scene.scan_after(1)
    assert scene.broker.contents() == [(0, 7, 0, 0), (1, 7, 0, "ABORT")]
    assert scene.broker.log().last_stable_offset == 2
    assert scene.reaper.ended_count == 1
    # A producer that is alive continues in its epoch.
    answer = scene.broker.produce(scene.connection, {0: batch(1)})
    assert await answer.errors() == {0: E.NONE}
    assert len(scene.broker.verifier.questions) == 2


async def test_long_transaction_known_to_its_coordinator_is_not_aborted(scene: Scene) -> None:
    await scene.open_transaction()
    scene.coordinators.description = described("Ongoing", 0, HERE)
    for _ in range(100):
        await scene.scan_after(1_000)
    assert 2 <= scene.coordinators.asked <= 5
    assert len(scene.broker.contents()) == 1
    assert scene.reaper.hanging_count == 1, "operators see it"


async def test_open_transaction_without_an_answer_of_its_coordinator_is_not_aborted(
    scene: Scene,
) -> None:
    await scene.open_transaction()
    scene.coordinators.description = described("Empty", 0)
    scene.coordinators.node = None
    await scene.scan_after(ASK_AFTER_MS)
    scene.coordinators.node, scene.links.is_up = 2, False
    await scene.scan_after(ASK_AGAIN_MS_MAX)
    scene.links.is_up = True
    scene.broker.partition().transactional_ids.clear()  # opened under another leadership
    await scene.scan_after(ASK_AGAIN_MS_MAX)
    assert len(scene.broker.contents()) == 1
    assert scene.reaper.hanging_count == 1


async def test_producer_that_continues_during_the_hanging_check_is_not_aborted(
    scene: Scene,
) -> None:
    await scene.open_transaction()

    def describe(transactional_id: str) -> TransactionDescription:
        scene.broker.produce(scene.connection, {0: batch(1)})
        return described("Empty", 0)

    scene.coordinators.describe = describe  # type: ignore[method-assign]
    await scene.scan_after(ASK_AFTER_MS)
    assert [entry[3] for entry in scene.broker.contents()] == [0, 1]


async def test_transaction_that_ended_is_dropped_from_the_hanging_checks(scene: Scene) -> None:
    await scene.open_transaction()
    assert await scene.broker.mark() == [E.NONE]
    await scene.scan_after(ASK_AFTER_MS)
    assert scene.coordinators.asked == 0
    assert scene.broker.partition().transactional_ids == {}


async def test_transactions_coordinated_here_are_described_to_other_brokers(scene: Scene) -> None:
    scene.coordinators.description = description = described("Ongoing", 3, HERE)
    answer, _ = await scene.links.request(
        2,
        PeerMessage.DESCRIBE_TRANSACTION,
        encode_message(DescribeTransaction("tx")),
        timeout_ms=1,
    )
    assert decode_message(TransactionDescription, answer) == description


# -- expiry


async def test_silent_producers_without_an_open_transaction_expire(scene: Scene) -> None:
    broker = scene.broker
    await scene.open_transaction()
    await broker.write(sequence=0, producer_id=8)
    fence = broker.services.connection_fence
    assert len(fence) == 1
    expiry = scene.expiry(fence, expiration_ms=1_000)
    scene.clock.now_ms += 86_400_000
    assert await expiry.expire() == 1
    assert [entry.producer_id for entry in broker.log().producer_state.entries()] == [7]
    await expiry.stop()


async def test_producers_beyond_the_maximum_evict_the_longest_silent(
    scene: Scene,
) -> None:
    broker = scene.broker
    await scene.open_transaction()
    for producer_id in range(100, 120):
        await broker.write(sequence=0, producer_id=producer_id)
        scene.clock.now_ms += 60_000
    expiry = scene.expiry(producers_max=12)
    assert expiry.known_count == 21
    assert await expiry.make_room() >= 9
    kept = [entry.producer_id for entry in broker.log().producer_state.entries()]
    assert kept[0] == 7, "its transaction is open"
    assert 0 < len(kept) - 1 <= 11
    assert kept[1:] == list(range(121 - len(kept), 120)), "those that wrote last"
    assert await expiry.make_room() == 0
    await expiry.stop()


async def test_producer_eviction_beyond_the_maximum_duplicates_no_retried_batch(
    scene: Scene,
) -> None:
    """A producer is not evicted for five minutes, in which librdkafka repeats its batches."""
    broker = scene.broker
    for producer_id in range(100, 120):
        await broker.write(sequence=0, producer_id=producer_id)
    expiry = scene.expiry(producers_max=12)
    scene.clock.now_ms += 299_000
    assert await expiry.make_room() == 0
    await broker.write(sequence=0, producer_id=100)  # the same batch
    assert broker.log().log_end_offset == 20
    scene.clock.now_ms += 2_000
    assert await expiry.make_room() == 20
    await expiry.stop()


def test_connection_fence_evicts_the_least_recent_and_the_expired() -> None:
    fence = ProducerConnectionFence(producers_max=2)
    assert fence.admits(1, 0, 10, now_ms=0)
    assert fence.admits(2, 0, 20, now_ms=10)
    assert not fence.admits(1, 0, 9, now_ms=20)
    assert fence.admits(1, 0, 10, now_ms=20)
    assert fence.admits(3, 0, 30, now_ms=30)  # 2 is forgotten
    assert fence.admits(2, 0, 1, now_ms=40)  # 1 is forgotten
    assert (len(fence), fence.refused_count) == (2, 1)
    run_to_end(fence.expiring(now_ms=60, expiration_ms=25))
    assert len(fence) == 1
    run_to_end(fence.expiring(now_ms=1000, expiration_ms=25))
    assert len(fence) == 0


def test_connection_fence_is_kept_for_each_epoch() -> None:
    fence = ProducerConnectionFence()
    assert fence.admits(1, 4, 10, now_ms=0)
    assert fence.admits(1, 3, 9, now_ms=0), "the partition refuses it by its epoch"
    assert not fence.admits(1, 4, 9, now_ms=0)
    assert fence.admits(1, 5, 9, now_ms=0), "a new epoch may come on any connection"
    assert not fence.admits(1, 5, 8, now_ms=0)
