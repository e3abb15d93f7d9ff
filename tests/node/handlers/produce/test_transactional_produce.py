"""Test that a batch opens a transaction only after the coordinator has verified it (KIP-890)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from oncelog.node.handlers.produce.queue import QUESTIONS_MAX
from oncelog.node.handlers.produce.verification import client_error
from oncelog.node.listener.dispatch import CloseConnection
from oncelog.node.transactions.verifier import Verified
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.large_produce import PARTITIONS_MAX

from ....awaiting import settle
from ...fake_broker import CLOSED
from ...leading_broker import LeadingBroker, batch, plain

E = ErrorCode


# -- verifications


@pytest.mark.parametrize(("version", "adds"), [(3, False), (11, False), (12, True)])
async def test_transactional_produce_verifies_only_the_first_batch(
    broker: LeadingBroker, version: int, adds: bool
) -> None:
    connection = broker.connect()
    first = broker.produce(connection, {0: batch(0, count=3)}, version=version)
    assert await first.errors() == {0: E.NONE}
    second = broker.produce(connection, {0: batch(3)}, version=version)
    assert second.is_there, "it waits for no verification"
    assert await second.errors() == {0: E.NONE}
    assert broker.verifier.questions == [("tx", 7, 0, (("t", 0),), adds)]
    assert broker.contents() == [(0, 7, 0, 0), (3, 7, 0, 3)]
    assert broker.partition().transactional_ids == {7: "tx"}


async def test_plain_produce_is_appended_immediately_without_verification(
    broker: LeadingBroker,
) -> None:
    assert broker.put(plain(0)).is_there
    also = broker.produce(broker.connect(), {0: plain(1)})
    assert also.is_there, "the batch says what is transactional, not the request"
    assert broker.verifier.questions == []
    assert len(broker.contents()) == 2


async def test_transactional_produce_without_a_transactional_id_is_refused(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path, partitions=2)
    batches = {0: plain(0, producer_id=9), 1: batch(0)}
    refused = broker.produce(broker.connect(), batches, transactional_id=None)
    code = E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert await refused.errors() == {0: code, 1: code}
    assert broker.contents(0) == broker.contents(1) == []
    silent = broker.produce(broker.connect(), {0: batch(0)}, transactional_id=None, acks=0)
    assert await silent.value() == CLOSED
    assert broker.verifier.questions == []


async def test_transactional_produce_with_batches_of_two_producers_is_refused(
    tmp_path: Path,
) -> None:
    broker = LeadingBroker(tmp_path, partitions=2)
    for other in (batch(0, producer_id=8), batch(0, epoch=1)):
        refused = broker.produce(broker.connect(), {0: batch(0), 1: other})
        code = E.INVALID_PRODUCER_ID_MAPPING
        assert await refused.errors() == {0: code, 1: code}
    assert broker.contents(0) == broker.contents(1) == []


async def test_transactional_produce_verifies_all_its_partitions_in_one_request(
    tmp_path: Path,
) -> None:
    broker = LeadingBroker(tmp_path, partitions=3)
    broker.verifier.answers = {1: E.INVALID_TXN_STATE}
    batches = {index: batch(0) for index in (0, 1, 2, 5)}
    answer = broker.produce(broker.connect(), batches)
    assert await answer.errors() == {
        0: E.NONE,
        1: E.INVALID_TXN_STATE,
        2: E.NONE,
        5: E.NOT_LEADER_OR_FOLLOWER,
    }
    assert [names for *_, names, _ in broker.verifier.questions] == [(("t", 0), ("t", 1), ("t", 2))]
    assert [len(broker.contents(index)) for index in (0, 1, 2)] == [1, 0, 1]


# -- answers by version

TABLE = {
    # the coordinator's error: {first Produce version: the client's error}
    E.INVALID_TXN_STATE: {3: E.INVALID_TXN_STATE},
    E.TRANSACTION_ABORTABLE: {3: E.INVALID_TXN_STATE, 11: E.TRANSACTION_ABORTABLE},
    E.PRODUCER_FENCED: {3: E.INVALID_PRODUCER_EPOCH},
    E.INVALID_PRODUCER_EPOCH: {3: E.INVALID_PRODUCER_EPOCH},
    E.INVALID_PRODUCER_ID_MAPPING: {3: E.INVALID_PRODUCER_ID_MAPPING},
    E.CONCURRENT_TRANSACTIONS: {3: E.NOT_ENOUGH_REPLICAS, 12: E.CONCURRENT_TRANSACTIONS},
    E.NETWORK_EXCEPTION: {3: E.NOT_ENOUGH_REPLICAS},
    E.COORDINATOR_LOAD_IN_PROGRESS: {3: E.NOT_ENOUGH_REPLICAS},
    E.COORDINATOR_NOT_AVAILABLE: {3: E.NOT_ENOUGH_REPLICAS},
    E.NOT_COORDINATOR: {3: E.NOT_ENOUGH_REPLICAS},
    E.REQUEST_TIMED_OUT: {3: E.NOT_ENOUGH_REPLICAS},
    E.UNKNOWN_SERVER_ERROR: {3: E.UNKNOWN_SERVER_ERROR},
}


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("error", TABLE, ids=lambda error: error.name)
def test_transactional_produce_error_code_depends_on_the_request_version(
    error: ErrorCode, version: int
) -> None:
    since = max(first for first in TABLE[error] if first <= version)
    sent = client_error(error, version)
    assert sent.code == TABLE[error][since]
    assert (error.name in str(sent)) == (sent.code == E.NOT_ENOUGH_REPLICAS)


async def test_transactional_produce_refused_by_verification_is_not_appended_and_may_be_retried(
    broker: LeadingBroker,
) -> None:
    connection = broker.connect()
    broker.verifier.answers = {0: E.CONCURRENT_TRANSACTIONS}
    for version, code in ((9, E.NOT_ENOUGH_REPLICAS), (12, E.CONCURRENT_TRANSACTIONS)):
        answer = broker.produce(connection, {0: batch(0)}, version=version)
        assert await answer.errors() == {0: code}
    broker.verifier.failure = ZeroDivisionError("a defect of ours")
    answer = broker.produce(connection, {0: batch(0)})
    assert await answer.errors() == {0: E.UNKNOWN_SERVER_ERROR}
    assert broker.contents() == []
    broker.verifier.failure, broker.verifier.answers = None, {}
    assert await broker.produce(connection, {0: batch(0)}).errors() == {0: E.NONE}
    assert connection.produce_queue is None


# -- markers during verifications


async def test_transactional_produce_verified_after_the_marker_opens_no_transaction(
    broker: LeadingBroker,
) -> None:
    """The coordinator answers before the marker is written, and the answer arrives after it."""
    broker.verifier.hold = True
    late = broker.produce(broker.connect(), {0: batch(0)})
    await settle()
    assert await broker.mark(7, 0, commits=False) == [E.NONE]
    broker.verifier.release()
    await settle()
    assert not late.is_there, "the coordinator is asked again"
    broker.verifier.answers = {0: E.TRANSACTION_ABORTABLE}
    broker.verifier.release()
    assert await late.errors() == {0: E.INVALID_TXN_STATE}
    assert len(broker.verifier.questions) == 2
    assert broker.contents() == [(0, 7, 0, "ABORT")]
    assert broker.log().producer_state.first_ongoing_offset is None
    assert broker.log().last_stable_offset == 1


async def test_transactional_produce_with_an_aborted_sequence_is_refused_with_log_start_offset_0(
    broker: LeadingBroker,
) -> None:
    """Without a log start offset, Java and kafka-python clients repeat a batch for two minutes.

    If it is above their last acknowledged offset, they send the batch with sequence 0 in the same
    epoch, which is then the duplicate of another batch. Its records would be lost.
    """
    connection = broker.connect()
    assert await broker.produce(connection, {0: batch(0)}).errors() == {0: E.NONE}
    assert await broker.mark(commits=True) == [E.NONE]
    assert await broker.produce(connection, {0: batch(1)}).errors() == {0: E.NONE}
    assert await broker.mark(commits=False) == [E.NONE]
    broker.log().retention.advance_log_start_offset(4)
    broker.verifier.hold = True
    again = broker.produce(connection, {0: batch(1)})
    behind = broker.produce(connection, {0: batch(2)})
    await settle()
    broker.verifier.release()
    (refused,) = await again.partitions()
    assert (refused.error_code, refused.log_start_offset) == (E.UNKNOWN_PRODUCER_ID, 0)
    assert await behind.errors() == {0: E.NONE}


async def test_transactional_produce_of_the_next_transaction_may_be_verified_before_the_last_marker(
    tmp_path: Path,
) -> None:
    """The previous transaction's marker arrives after the verification, and invalidates it."""
    broker = LeadingBroker(tmp_path, partitions=2)
    connection = broker.connect()
    first = broker.produce(connection, {0: batch(0), 1: batch(0)}, version=12)
    assert await first.errors() == {0: E.NONE, 1: E.NONE}
    broker.verifier.hold = True
    batches = {index: batch(0, epoch=1) for index in (0, 1)}
    following = broker.produce(connection, batches, version=12)
    behind = broker.produce(connection, {0: batch(1, epoch=1)}, version=12)
    await settle()
    assert await broker.mark(7, 1, 0, 1, transaction_version=2) == [E.NONE, E.NONE]
    broker.verifier.hold = False
    broker.verifier.release()
    assert await following.errors() == {0: E.NONE, 1: E.NONE}
    assert await behind.errors() == {0: E.NONE}
    assert len(broker.verifier.questions) == 3
    assert broker.contents(0) == [
        (0, 7, 0, 0),
        (1, 7, 1, "COMMIT"),
        (2, 7, 1, 0),
        (3, 7, 1, 1),
    ]


@pytest.mark.parametrize(
    ("version", "code"), [(9, E.NOT_ENOUGH_REPLICAS), (12, E.CONCURRENT_TRANSACTIONS)]
)
async def test_transactional_produce_with_each_verification_invalidated_gets_a_retriable_error(
    broker: LeadingBroker, version: int, code: ErrorCode
) -> None:
    broker.verifier.hold = True
    answer = broker.produce(broker.connect(), {0: batch(0)}, version=version)
    while not answer.is_there:
        await settle()
        assert await broker.mark(commits=False) == [E.NONE]
        broker.verifier.release()
        await settle()
    assert await answer.errors() == {0: code}
    assert len(broker.verifier.questions) == QUESTIONS_MAX


async def test_transactional_produce_of_a_fenced_producer_is_refused_without_verification(
    broker: LeadingBroker,
) -> None:
    """A timeout has raised the epoch while the producer was paused (KAFKA-19690)."""
    connection = broker.connect()
    assert await broker.produce(connection, {0: batch(0)}).errors() == {0: E.NONE}
    assert await broker.mark(7, 1, commits=False) == [E.NONE]
    for version in (9, 12):
        late = broker.produce(connection, {0: batch(1)}, version=version)
        assert await late.errors() == {0: E.INVALID_PRODUCER_EPOCH}
    assert len(broker.verifier.questions) == 1
    broker.verifier.hold = True
    asked = broker.produce(connection, {0: batch(0, epoch=1)})
    await settle()
    assert await broker.mark(7, 2, commits=False) == [E.NONE]
    broker.verifier.release()
    assert await asked.errors() == {0: E.INVALID_PRODUCER_EPOCH}, "although it was verified"


@pytest.mark.parametrize(("version", "code"), [(9, 48), (11, 120)])
async def test_transactional_produce_overtaken_by_an_abort_is_refused(
    broker: LeadingBroker, version: int, code: int
) -> None:
    """The client aborts without waiting for the answer to its produce (KAFKA-14053)."""
    connection = broker.connect()
    assert await broker.produce(connection, {0: batch(0)}).errors() == {0: E.NONE}
    assert await broker.mark(commits=False) == [E.NONE]
    broker.verifier.answers = {0: E.TRANSACTION_ABORTABLE}
    late = broker.produce(connection, {0: batch(1)}, version=version)
    assert await late.errors() == {0: code}
    assert broker.log().last_stable_offset == broker.log().log_end_offset


async def test_transactional_produce_with_a_raised_epoch_cannot_join_the_previous_transaction(
    broker: LeadingBroker,
) -> None:
    """The marker of the previous transaction is delayed, and the client continues (KIP-890)."""
    connection = broker.connect()
    first = broker.produce(connection, {0: batch(0)}, version=12)
    assert await first.errors() == {0: E.NONE}
    broker.verifier.answers = {0: E.CONCURRENT_TRANSACTIONS}  # PrepareCommit, epoch 1
    early = broker.produce(connection, {0: batch(0, epoch=1)}, version=12)
    assert await early.errors() == {0: E.CONCURRENT_TRANSACTIONS}
    assert len(broker.contents()) == 1, "it was verified, although a transaction is open"
    assert await broker.mark(7, 1, transaction_version=2) == [E.NONE]
    broker.verifier.answers = {}
    again = broker.produce(connection, {0: batch(0, epoch=1)}, version=12)
    assert await again.errors() == {0: E.NONE}
    assert await broker.mark(7, 2, transaction_version=2) == [E.NONE]
    assert broker.contents() == [
        (0, 7, 0, 0),
        (1, 7, 1, "COMMIT"),
        (2, 7, 1, 0),
        (3, 7, 2, "COMMIT"),
    ]


async def test_transactional_produce_verified_after_a_leader_change_answers_not_leader(
    broker: LeadingBroker,
) -> None:
    broker.verifier.hold = True
    answer = broker.produce(broker.connect(), {0: batch(0)})
    await settle()
    broker.resign()
    broker.verifier.release()
    assert await answer.errors() == {0: E.NOT_LEADER_OR_FOLLOWER}


async def test_partition_whose_leader_is_elected_during_a_verification_is_verified_separately(
    tmp_path: Path,
) -> None:
    broker = LeadingBroker(tmp_path, partitions=2)
    broker.verifier.hold = True
    hosted = broker.partition(1)
    hosted.leader = None
    answer = broker.produce(broker.connect(), {0: batch(0), 1: batch(0)})
    await settle()
    broker.make_leader(hosted, broker.record)
    broker.verifier.hold = False
    broker.verifier.release()
    assert await answer.errors() == {0: E.NONE, 1: E.NONE}
    questions = [[index for _, index in names] for *_, names, _ in broker.verifier.questions]
    assert questions == [[0], [1]]


# -- the order of a connection


async def test_produces_sent_after_a_produce_under_verification_wait_for_its_result(
    tmp_path: Path,
) -> None:
    broker = LeadingBroker(tmp_path, partitions=2)
    broker.verifier.hold = True
    connection = broker.connect()
    answers = [
        broker.produce(connection, {0: batch(0, count=2)}),
        broker.produce(connection, {0: batch(2)}),
        broker.produce(connection, {1: batch(0)}),
        broker.produce(connection, {0: plain(0, producer_id=5)}),
        broker.produce(connection, {0: batch(3)}),
    ]
    await settle()
    assert not any(answer.is_there for answer in answers)
    other = broker.produce(broker.connect(), {0: plain(0, producer_id=6)})
    assert other.is_there, "another connection does not wait"
    broker.verifier.release()
    for answer in answers:
        assert set((await answer.errors()).values()) == {E.NONE}
    assert broker.contents() == [
        (0, 6, 0, 0),
        (1, 7, 0, 0),
        (3, 7, 0, 2),
        (4, 5, 0, 0),
        (5, 7, 0, 3),
    ]
    assert connection.produce_queue is None
    again = broker.produce(connection, {0: batch(4)})
    assert again.is_there


async def test_transactional_produces_in_a_burst_are_verified_together(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path, partitions=6)
    broker.verifier.hold = True
    connection = broker.connect()
    answers = [broker.produce(connection, {index: batch(0)}) for index in range(6)]
    await settle()
    broker.verifier.hold = False
    broker.verifier.release()
    for answer in answers:
        assert set((await answer.errors()).values()) == {E.NONE}
    questions = [[index for _, index in names] for *_, names, _ in broker.verifier.questions]
    assert questions in ([[0], [1, 2, 3, 4, 5]], [[0, 1, 2, 3, 4, 5]])


async def test_transactional_produces_of_many_partitions_are_verified_in_parts(
    tmp_path: Path,
) -> None:
    """All requests of one verification are appended in one turn of the loop."""
    broker = LeadingBroker(tmp_path, partitions=PARTITIONS_MAX * 3 // 2)
    connection, each = broker.connect(), PARTITIONS_MAX // 2
    answers = [
        broker.produce(connection, {start + n: batch(0) for n in range(each)})
        for start in range(0, 3 * each, each)
    ]
    for answer in answers:
        assert set((await answer.errors()).values()) == {E.NONE}
    assert [len(question[3]) for question in broker.verifier.questions] == [2 * each, each]


async def test_transactional_producers_on_one_connection_are_verified_sequentially(
    broker: LeadingBroker,
) -> None:
    connection = broker.connect()
    answers = [
        broker.produce(connection, {0: batch(0, producer_id=id_)}, transactional_id=f"x{id_}")
        for id_ in (1, 2, 1)
    ]
    errors = [(await answer.errors())[0] for answer in answers]
    assert errors == [E.NONE, E.NONE, E.NONE], "the third is a repetition of the first"
    assert [question[0] for question in broker.verifier.questions] == ["x1", "x2"]
    assert [entry[1] for entry in broker.contents()] == [1, 2]


async def test_transactional_produces_sent_after_a_refused_produce_are_refused(
    broker: LeadingBroker,
) -> None:
    """A later batch that is accepted would be appended before the refused one is retried."""
    broker.verifier.answers = {0: E.NOT_COORDINATOR}
    connection = broker.connect()
    answers = [broker.produce(connection, {0: batch(n)}) for n in range(3)]
    for answer in answers:
        assert await answer.errors() == {0: E.NOT_ENOUGH_REPLICAS}
    broker.verifier.answers = {}
    ahead = broker.produce(connection, {0: batch(1)})
    assert await ahead.errors() == {0: E.NOT_ENOUGH_REPLICAS}
    assert [await broker.produce(connection, {0: batch(n)}).errors() for n in range(3)] == [
        {0: E.NONE}
    ] * 3


async def test_transactional_produce_with_acks_zero_that_fails_closes_the_connection(
    tmp_path: Path,
) -> None:
    broker = LeadingBroker(tmp_path, partitions=2)
    good = broker.produce(broker.connect(), {0: batch(0)}, acks=0)
    assert await good.value() is None
    broker.verifier.answers = {1: E.INVALID_TXN_STATE}
    bad = broker.produce(broker.connect(), {1: batch(0)}, acks=0)
    assert await bad.value() == CLOSED


async def test_transactional_produce_after_verification_waits_for_the_replicas(
    tmp_path: Path,
) -> None:
    broker = LeadingBroker(tmp_path, replicas=(1, 2), min_insync_replicas=2)
    answer = broker.produce(broker.connect(), {0: batch(0)})
    await settle()
    assert len(broker.contents()) == 1
    assert not answer.is_there
    broker.replicate()
    assert await answer.errors() == {0: E.NONE}
    late = broker.produce(broker.connect(), {0: batch(1)}, timeout_ms=10)
    assert await late.errors() == {0: E.REQUEST_TIMED_OUT}


# -- the fence of connections (KAFKA-17754)


async def test_transactional_produce_on_an_older_connection_closes_the_connection(
    broker: LeadingBroker,
) -> None:
    old, new = broker.connect(), broker.connect()
    assert await broker.produce(old, {0: batch(0)}).errors() == {0: E.NONE}
    assert await broker.produce(new, {0: batch(1)}).errors() == {0: E.NONE}
    with pytest.raises(CloseConnection, match="older than that producer's newest"):
        broker.produce(old, {0: batch(2)})
    assert len(broker.contents()) == 2
    assert broker.services.connection_fence.refused_count == 1
    other = broker.produce(old, {0: plain(0, producer_id=8)})
    assert await other.errors() == {0: E.NONE}


async def test_transactional_produce_overtaken_by_a_newer_connection_closes_its_connection(
    broker: LeadingBroker,
) -> None:
    broker.verifier.hold = True
    old, new = broker.connect(), broker.connect()
    delayed = broker.produce(old, {0: batch(0)})
    await settle()
    again = broker.produce(new, {0: batch(0)})
    await settle()
    broker.verifier.release()
    assert await delayed.value() == CLOSED
    assert await again.errors() == {0: E.NONE}
    assert len(broker.contents()) == 1


@pytest.mark.parametrize(
    ("version", "settings"),
    [(12, {}), (9, {"oncelog_transaction_connection_fence": "false"})],
    ids=["KIP-890", "switched off"],
)
async def test_produce_on_an_older_connection_is_accepted_in_version_12_or_with_the_fence_disabled(
    tmp_path: Path, version: int, settings: dict[str, Any]
) -> None:
    broker = LeadingBroker(tmp_path, settings=settings)
    old, new = broker.connect(), broker.connect()
    for n, connection in enumerate((old, new, old)):
        answer = broker.produce(connection, {0: batch(n)}, version=version)
        assert await answer.errors() == {0: E.NONE}


async def test_transactional_produce_of_a_closed_connection_is_not_appended(
    broker: LeadingBroker,
) -> None:
    broker.verifier.hold = True
    connection = broker.connect()
    gone = [broker.produce(connection, {0: batch(n)}) for n in range(2)]
    await settle()
    for answer in gone:
        answer.abandon()
    broker.verifier.release()
    await settle()
    assert broker.contents() == []
    assert connection.produce_queue is None


async def test_transactional_produce_with_a_marker_before_one_part_is_verified_again(
    tmp_path: Path,
) -> None:
    """A repeated marker invalidates the verification, for which one part must not fail."""
    partitions = 2 * PARTITIONS_MAX + 50
    last = partitions - 1
    marking: list[asyncio.Task[list[int]]] = []
    broker = LeadingBroker(tmp_path, partitions=partitions)
    verify = broker.verifier.verify

    async def verified(*asked: Any, adds: bool) -> Verified:
        answer = await verify(*asked, adds=adds)
        if ("t", last) in asked[3] and not marking:
            marking.append(broker.mark(7, 0, last, prepare_index=5))
        return answer

    broker.verifier.verify = verified  # type: ignore[method-assign]
    batches = {index: batch(0) for index in range(partitions)}
    sent = broker.produce(broker.connect(), batches)
    assert await sent.errors() == dict.fromkeys(range(partitions), E.NONE)
    assert await marking[0] == [E.NONE]
    assert [entry[3] for entry in broker.contents(last)] == ["COMMIT", 0]
    assert broker.verifier.questions[-1][3] == (("t", last),)


async def test_transactional_produce_queued_after_a_large_one_is_verified_again_after_a_marker(
    tmp_path: Path,
) -> None:
    """Both produces are verified together, and the marker arrives before the second append."""
    last = PARTITIONS_MAX + 50
    marking: list[asyncio.Task[list[int]]] = []
    broker = LeadingBroker(tmp_path, partitions=last + 1)
    append = broker.replicas.append

    def appended(partition: Any, *arguments: Any, **options: Any) -> Any:
        info = append(partition, *arguments, **options)
        if partition.index == last - 1 and not marking:
            marking.append(broker.mark(7, 0, last, prepare_index=5))
        return info

    broker.replicas.append = appended  # type: ignore[method-assign]
    connection = broker.connect()
    large = broker.produce(connection, {index: batch(0) for index in range(last)})
    small = broker.produce(connection, {last: batch(0)})
    assert await large.errors() == dict.fromkeys(range(last), E.NONE)
    assert await small.errors() == {last: E.NONE}
    assert await marking[0] == [E.NONE]
    assert [entry[3] for entry in broker.contents(last)] == ["COMMIT", 0]
