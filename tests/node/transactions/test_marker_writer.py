"""Test that a marker, also a repeated one, is answered with NONE after its commit."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from oncelog.coordinator.transactions.messages import (
    TransactionMarker,
    WriteMarkers,
    WriteMarkersReply,
)
from oncelog.node.transactions.marker_writer import MarkerWriter
from oncelog.replication.messages import MalformedPeerMessage, PeerMessage
from oncelog.replication.peer.codec import decode_message, encode_message
from oncelog.runtime.sliced_work import SlicedWork
from oncelog.wire.errors import ErrorCode

from ...awaiting import settle, turns_until
from ..leading_broker import LeadingBroker, batch, cancelled

E = ErrorCode
WRITE_TXN_MARKERS, DESCRIBE_PRODUCERS = 27, 61


async def open_transaction(broker: LeadingBroker, *, version: int = 9, epoch: int = 0) -> None:
    broker.produce(broker.connect(), {0: batch(0, epoch=epoch)}, version=version)
    await settle()
    assert broker.log().producer_state.first_ongoing_offset is not None


REPLICATED: dict[str, Any] = {"replicas": (1, 2), "min_insync_replicas": 2}


@pytest.fixture
@asynccontextmanager
async def replicated(tmp_path: Path) -> AsyncIterator[LeadingBroker]:
    """Yield a leader with node 2 as its follower. Records wait for the follower's fetch."""
    yield LeadingBroker(tmp_path, **REPLICATED)


# -- committed


async def test_marker_is_answered_after_its_replication(replicated: LeadingBroker) -> None:
    await open_transaction(replicated)
    marking = replicated.mark()
    await settle()
    assert replicated.contents()[-1] == (1, 7, 0, "COMMIT")
    assert replicated.log().last_stable_offset == 0
    replicated.replicate(up_to=1)
    await settle()
    assert not marking.done(), "the data is committed, the marker is not"
    assert replicated.log().last_stable_offset == 0
    replicated.replicate()
    assert await marking == [E.NONE]
    assert replicated.log().last_stable_offset == 2
    assert replicated.partition().transactional_ids == {}


@pytest.mark.parametrize("version", [0, 2])
async def test_marker_resent_before_its_commit_is_written_once(
    replicated: LeadingBroker, version: int
) -> None:
    """A coordinator with a short timeout repeats an uncommitted marker often (KAFKA-19999)."""
    await open_transaction(replicated, version=12 if version else 9)
    epoch = 1 if version else 0
    first = replicated.mark(7, epoch, transaction_version=version, wait_ms=20)
    assert await first == [E.REQUEST_TIMED_OUT]
    again = [replicated.mark(7, epoch, transaction_version=version) for _ in range(3)]
    await settle()
    assert len(replicated.contents()) == 2
    replicated.replicate()
    for marking in again:
        assert await marking == [E.NONE]
    assert len(replicated.contents()) == 2
    assert replicated.markers.written_count == 1


async def test_marker_resent_after_its_commit_is_recognized_by_its_epoch(
    broker: LeadingBroker,
) -> None:
    await open_transaction(broker, version=12)
    for _ in range(3):
        assert await broker.mark(7, 1, transaction_version=2) == [E.NONE]
    assert broker.contents() == [(0, 7, 0, 0), (1, 7, 1, "COMMIT")]


async def test_marker_without_data_that_is_resent_is_written_again(
    broker: LeadingBroker,
) -> None:
    """The repeated marker may belong to a next transaction, which has written no record."""
    await open_transaction(broker)
    assert await broker.mark(commits=False) == [E.NONE]
    assert await broker.mark(commits=False) == [E.NONE]
    assert [entry[3] for entry in broker.contents()] == [0, "ABORT", "ABORT"]
    assert broker.log().aborted_transactions.between(0, 3) == [(7, 0)]
    assert broker.log().last_stable_offset == 3


async def test_marker_without_data_fences_the_producer(broker: LeadingBroker) -> None:
    assert await broker.mark(7, 4, commits=False, coordinator_epoch=9) == [E.NONE]
    assert broker.log().aborted_transactions.between(0, 99) == []
    late = broker.produce(broker.connect(), {0: batch(0, epoch=3)})
    assert await late.errors() == {0: E.INVALID_PRODUCER_EPOCH}
    assert await broker.mark(7, 4, coordinator_epoch=8) == [E.TRANSACTION_COORDINATOR_FENCED]


# -- refusals


async def test_write_txn_markers_answers_each_partition_separately(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path, partitions=2)
    broker.resign(1)
    assert await broker.mark(7, 0, 0, 1, 5) == [
        E.NONE,
        E.NOT_LEADER_OR_FOLLOWER,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]


async def test_marker_with_a_too_low_producer_epoch_is_refused(
    broker: LeadingBroker,
) -> None:
    await open_transaction(broker, epoch=5)
    assert await broker.mark(7, 4) == [E.INVALID_PRODUCER_EPOCH]
    assert await broker.mark(7, 5, transaction_version=2) == [E.INVALID_PRODUCER_EPOCH]
    assert await broker.mark(7, 6, transaction_version=2) == [E.NONE]


async def test_marker_with_too_few_replicas_is_not_written(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path, replicas=(1, 2), min_insync_replicas=2, isr=(1,))
    assert await broker.mark() == [E.NOT_ENOUGH_REPLICAS]
    assert broker.contents() == []


async def test_marker_written_under_a_lost_leadership_is_not_taken_for_committed(
    replicated: LeadingBroker,
) -> None:
    await open_transaction(replicated)
    waiting = replicated.mark()
    await settle()
    replicated.resign()
    assert await waiting == [E.NOT_LEADER_OR_FOLLOWER]
    hosted = replicated.partition()
    replicated.make_leader(hosted, replicated.record)
    again = replicated.mark()
    await settle()
    replicated.replicate()
    assert await again == [E.NONE]
    assert len(replicated.contents()) == 2


async def test_marker_taken_for_a_repetition_invalidates_verifications(
    replicated: LeadingBroker,
) -> None:
    """The new leader cannot know to which of two transactions the marker belongs.

    The late answer to a verification of the second transaction must not open a transaction.
    Otherwise the end of the third transaction, with the same epoch, would end the aborted second
    one.
    """
    await open_transaction(replicated)
    assert await replicated.mark(prepare_index=10, wait_ms=20) == [E.REQUEST_TIMED_OUT]
    replicated.resign()
    replicated.make_leader(
        replicated.partition(), replicated.record
    )  # the marker was committed under another leader
    replicated.verifier.hold, replicated.verifier.ongoing_index = True, 11
    late = replicated.produce(replicated.connect(), {0: batch(1)})
    await settle()
    ending = replicated.mark(commits=False, prepare_index=12)
    await settle()
    replicated.verifier.release()
    await settle()
    replicated.verifier.hold, replicated.verifier.answers = False, {0: int(E.TRANSACTION_ABORTABLE)}
    replicated.verifier.release()
    await settle()
    assert replicated.log().producer_state.first_ongoing_offset is None
    assert await late.errors() == {0: E.INVALID_TXN_STATE}
    replicated.replicate()
    assert await ending == [E.NONE]


async def test_marker_wait_that_is_cancelled_leaves_no_waiting_operation(
    replicated: LeadingBroker,
) -> None:
    await open_transaction(replicated)
    waited = replicated.replicas.purgatory.waiting_count
    marking = replicated.mark()
    await settle()
    assert replicated.replicas.purgatory.waiting_count == waited + 1
    await cancelled(marking)
    assert replicated.replicas.purgatory.waiting_count == waited


# -- many, faults, peers


async def test_write_txn_markers_of_many_markers_is_answered(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path, partitions=2)
    markers = tuple(
        TransactionMarker(number, 0, 1, number % 2 == 0, (("t", 0), ("t", 1)))
        for number in range(300)
    )
    reply = await broker.markers.write_txn_markers(WriteMarkers(markers))
    assert reply.errors == ((0, 0),) * 300
    kinds = [entry[3] for entry in broker.contents(1)]
    assert kinds == ["COMMIT", "ABORT"] * 150


async def test_markers_without_partitions_are_handled_in_steps(tmp_path: Path) -> None:
    markers = tuple(TransactionMarker(number, 0, 1, True, ()) for number in range(1_000))
    steps = LeadingBroker(tmp_path).markers._appending(WriteMarkers(markers), {})
    assert sum(1 for _ in steps) >= 10


@pytest.mark.parametrize("turns", range(6))
async def test_markers_committed_while_many_are_handled_are_answered_immediately(
    tmp_path: Path, turns: int
) -> None:
    """The high watermark may not advance again, so a later advance must not be waited for."""
    broker = LeadingBroker(tmp_path, partitions=3, **REPLICATED)
    broker.replicas.work = SlicedWork(count(0, 0.003).__next__)  # a step a turn
    partitions = tuple(("t", index) for index in range(3))
    request = WriteMarkers(
        tuple(TransactionMarker(pid, 0, 1, True, partitions) for pid in range(50))
    )
    writing = asyncio.create_task(broker.markers.write_txn_markers(request, wait_ms=60_000))
    await turns_until(lambda: broker.log(2).log_end_offset == 50)
    await settle(turns)
    broker.replicate(0)
    await turns_until(lambda: broker.replicas.purgatory.waiting_count)
    broker.replicate(1)
    broker.replicate(2)
    async with asyncio.timeout(10):
        reply = await writing
    assert reply.errors == ((E.NONE,) * 3,) * 50


async def test_marker_fault_points_run_before_and_after_the_append(tmp_path: Path) -> None:
    called: list[tuple[str, int]] = []
    point = lambda name: called.append((name, broker.log().log_end_offset))  # noqa: E731
    broker = LeadingBroker(tmp_path, fault_point=point)
    assert await broker.mark() == [E.NONE]
    assert called == [("partition.before-marker", 0), ("partition.after-marker", 1)]


async def test_markers_of_coordinators_on_other_brokers_are_answered(broker: LeadingBroker) -> None:
    handlers = {}

    class Transport:
        def on_request(self, kind: int, handler: Callable[..., None]) -> None:
            handlers[kind] = handler

    replies: list[WriteMarkersReply] = []

    def reply(header: bytes, frames: Sequence[object]) -> None:
        replies.append(decode_message(WriteMarkersReply, header))

    writer: MarkerWriter = broker.markers
    writer.serve(Transport())  # type: ignore[arg-type]
    handler = handlers[PeerMessage.WRITE_TRANSACTION_MARKERS]
    request = WriteMarkers((TransactionMarker(7, 0, 1, True, (("t", 0), ("x", 0)), 2),))
    handler(2, encode_message(request), [], reply)
    await settle()
    assert replies == [WriteMarkersReply(((E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION),))]
    with pytest.raises(MalformedPeerMessage):
        handler(2, b"\x01", [], reply)
    await writer.stop()


# -- for operators


async def write_marker(
    broker: LeadingBroker, version: int, *indexes: int, **fields: Any
) -> dict[int, int]:
    """Send WriteTxnMarkers as an administrator, and return the error codes by partition."""
    topics = [{"name": "t", "partition_indexes": list(indexes)}]
    marker = {"producer_id": 7, "producer_epoch": 0, "coordinator_epoch": 2, "topics": topics}
    answer = await broker.ask(WRITE_TXN_MARKERS, version, {"markers": [marker | fields]})
    (result,) = answer.markers
    assert result.producer_id == 7
    return {each.partition_index: each.error_code for each in result.topics[0].partitions}


@pytest.mark.parametrize("version", [1, 2])
async def test_write_txn_markers_of_an_operator_ends_a_transaction(
    broker: LeadingBroker, version: int
) -> None:
    await open_transaction(broker)
    written = await write_marker(broker, version, 0, 4, transaction_result=False)
    assert written == {0: E.NONE, 4: E.UNKNOWN_TOPIC_OR_PARTITION}
    assert broker.contents()[-1] == (1, 7, 0, "ABORT")


async def test_write_txn_markers_of_version_2_has_the_transaction_version(
    broker: LeadingBroker,
) -> None:
    await open_transaction(broker, version=12)
    written = await write_marker(broker, 2, 0, transaction_result=True, transaction_version=2)
    assert written == {0: E.INVALID_PRODUCER_EPOCH}, "its epoch must be above that of the data"


async def test_describe_producers_shows_the_producers_of_a_partition(broker: LeadingBroker) -> None:
    topic = {"name": "t", "num_partitions": 2, "replication_factor": 1}
    await broker.fake.answer(19, 7, {"topics": [topic], "timeout": 1000})
    await open_transaction(broker)
    assert await broker.mark(8, 3, coordinator_epoch=5) == [E.NONE]
    topics = [
        {"name": "t", "partition_indexes": [0, 1]},
        {"name": "missing", "partition_indexes": [0]},
        {"name": "no/name", "partition_indexes": [0]},
    ]
    answer = await broker.ask(DESCRIBE_PRODUCERS, 0, {"topics": topics})
    here, elsewhere = answer.topics[0].partitions
    assert [
        (p.producer_id, p.producer_epoch, p.last_sequence, p.coordinator_epoch,
         p.current_txn_start_offset)
        for p in here.active_producers
    ] == [(7, 0, 0, -1, 0), (8, 3, -1, 5, -1)]  # fmt: skip
    assert elsewhere.error_code == E.NOT_LEADER_OR_FOLLOWER
    codes = [topic.partitions[0].error_code for topic in answer.topics[1:]]
    assert codes == [E.UNKNOWN_TOPIC_OR_PARTITION, E.INVALID_TOPIC_EXCEPTION]
