"""Test the requests and the epochs of a producer's transactions, with a scripted coordinator.

The client raises its epoch as in KIP-360, KIP-890, KAFKA-14053 and KAFKA-17754.
"""

import asyncio
from collections import deque
from typing import Any

import pytest

from oncelog.client.failures import IllegalProducerState, as_abortable, as_fatal
from oncelog.client.group_metadata import GroupMetadata, OffsetAndMetadata
from oncelog.client.settings import producer_settings
from oncelog.client.transactions.producer_state import ProducerIdentity, ProducerState
from oncelog.client.transactions.requests import Session
from oncelog.client.transactions.session import TransactionSession
from oncelog.wire.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    RequestTimedOut,
    TopicAuthorizationFailed,
    TransactionAbortable,
)

from ...present import present

S = ProducerState
PLACE = ("t", 0)
LOST = "lost"  # the first answer is lost; the repeated request succeeds


class Coordinator:
    """A replacement for `TransactionRequests`.

    `script` has the results of each request, in the order in which they are returned.
    """

    transactional_id = "id"

    def __init__(self, *, is_v2: bool, can_raise_epoch: bool = True) -> None:
        self.is_v2, self.can_raise_epoch = is_v2, can_raise_epoch
        self.lost_answers = 0
        self.asked: list[str] = []
        self.script: dict[str, deque[object]] = {}
        self.epoch = 0
        self.ongoing: tuple[int, int] | None = None

    def plan(self, name: str, *outcomes: object) -> None:
        self.script[name] = deque(outcomes)

    def _meet(self, name: str) -> None:
        self.asked.append(name)
        outcomes = self.script.get(name)
        outcome = outcomes.popleft() if outcomes else None
        if outcome == LOST:
            self.lost_answers += 1
        elif isinstance(outcome, BaseException):
            raise outcome

    async def init_producer_id(self, deadline_ms, *, current=(-1, -1), **_) -> Session:
        self._meet("init" if current == (-1, -1) else "raise epoch")
        self.epoch += current != (-1, -1)
        if self.ongoing is not None:
            self.epoch = self.ongoing[1] + 1
            return Session(7, self.epoch, self.ongoing)
        return Session(7, self.epoch)

    async def add_partitions(self, producer, partitions, deadline_ms) -> None:
        self._meet("add")

    async def add_offsets(self, producer, group_id, deadline_ms) -> None:
        self._meet("add offsets")

    async def commit_offsets(self, producer, group, offsets, deadline_ms, *, is_v2) -> None:
        self._meet("offsets")

    async def end(self, producer, deadline_ms, *, is_commit, is_v2) -> tuple[int, int]:
        self._meet("commit" if is_commit else "abort")
        self.epoch += is_v2
        return 7, self.epoch


class Sending:
    def __init__(self) -> None:
        self.on_their_way = False
        self.at_flush = lambda: None

    async def flush(self) -> None:
        self.at_flush()

    async def abandon(self, problem: KafkaError) -> bool:
        return self.on_their_way


class SessionContext:
    """A transaction session with a scripted coordinator."""

    def __init__(self, *, is_v2: bool, **settings) -> None:
        self.coordinator, self.sending = Coordinator(is_v2=is_v2), Sending()
        self.identity = ProducerIdentity()
        known = producer_settings(None, {"transactional_id": "id", **settings})
        requests: Any = self.coordinator
        self.session = TransactionSession(requests, self.identity, known)

    def run(self, *steps: str) -> list[str]:
        """Call these methods one after the other, and return the names of the requests sent."""

        async def main() -> None:
            for step in steps:
                await getattr(self, step)()

        self.coordinator.asked.clear()
        asyncio.run(main())
        return list(self.coordinator.asked)

    async def init(self) -> None:
        await self.session.init(keep_prepared=False)

    async def begin(self) -> None:
        await self.session.begin()

    async def write(self) -> None:
        self.session.want(*PLACE)
        scope = self.session.scope
        assert scope is not None
        if scope.has_unadded:
            await self.session.add_wanted()
        if scope.may_leave(PLACE):
            scope.sent()

    async def offsets(self) -> None:
        await self.session.send_offsets({PLACE: OffsetAndMetadata(1)}, GroupMetadata("g"))

    async def commit(self) -> None:
        await self.session.commit(self.sending)

    async def abort(self) -> None:
        await self.session.abort(self.sending)

    @property
    def state(self) -> ProducerState:
        return self.identity.state


@pytest.fixture(params=[False, True], ids=["v1", "v2"])
def context(request) -> SessionContext:
    made = SessionContext(is_v2=request.param)
    made.run("init")
    return made


def is_v2(context: SessionContext) -> bool:
    return context.coordinator.is_v2


def test_transaction_without_errors_sends_the_requests_of_its_version(context):
    asked = context.run("begin", "write", "write", "offsets", "offsets", "commit")
    if is_v2(context):
        assert asked == ["offsets", "offsets", "commit"]
        assert context.identity.producer_epoch == 1
    else:
        assert asked == ["add", "add offsets", "offsets", "offsets", "commit"]
        assert context.identity.producer_epoch == 0
    assert context.state is S.READY
    assert context.run("begin", "commit", "begin", "abort") == [], "empty ones send no request"


def test_commit_with_a_lost_answer_raises_the_epoch_under_v1(context):
    context.coordinator.plan("commit", LOST)
    context.run("begin", "write", "commit")
    asked = context.run("begin", "write", "commit")
    expected = [] if is_v2(context) else ["raise epoch", "add"]
    assert asked == [*expected, "commit"]
    assert "raise epoch" not in context.run("begin", "write", "commit"), "once is enough"


@pytest.mark.parametrize("name", ["add", "add offsets", "offsets"])
def test_add_partitions_or_offsets_with_a_lost_answer_raises_the_epoch_under_v1(name):
    context = SessionContext(is_v2=False)
    context.run("init")
    context.coordinator.plan(name, LOST)
    context.run("begin", "write", "offsets", "commit")
    assert context.run("begin")[0] == "raise epoch"


def test_abort_after_a_lost_produce_answer_takes_a_new_epoch_under_v1(context):
    context.run("begin", "write")
    context.session.uncertain()
    asked = context.run("abort")
    assert asked == (["abort"] if is_v2(context) else ["abort", "raise epoch"])
    assert context.state is S.READY
    assert context.identity.producer_epoch == 1
    assert context.run("begin") == []


def test_abort_with_batches_in_flight_takes_a_new_epoch_under_v1(context):
    context.run("begin", "write")
    context.sending.on_their_way = True
    asked = context.run("abort")
    assert asked == (["abort"] if is_v2(context) else ["abort", "raise epoch"])


def test_abort_of_an_uncertain_transaction_without_init_producer_id_v3_sends_end_txn():
    context = SessionContext(is_v2=False)
    context.coordinator.can_raise_epoch = False
    context.run("init", "begin", "write")
    context.session.uncertain()
    assert context.run("abort") == ["abort"]


def test_abort_of_an_uncertain_transaction_unknown_to_its_coordinator_takes_a_new_epoch():
    context = SessionContext(is_v2=False)
    context.run("init", "begin", "write")
    context.session.uncertain()
    context.coordinator.plan("abort", as_fatal(InvalidTxnState()))
    assert context.run("abort") == ["abort", "raise epoch"]
    assert context.state is S.READY


def test_commit_that_timed_out_accepts_only_another_commit(context):
    context.coordinator.plan("commit", RequestTimedOut("no answer"))
    with pytest.raises(RequestTimedOut) as caught:
        context.run("begin", "write", "commit")
    assert caught.value.retriable and not (caught.value.abortable or caught.value.fatal)
    assert context.state is S.COMMITTING_TRANSACTION
    with pytest.raises(IllegalProducerState, match="COMMITTING"):
        context.run("abort")
    assert context.run("commit") == ["commit"]
    assert context.state is S.READY


def test_abort_that_timed_out_accepts_only_another_abort(context):
    context.coordinator.plan("abort", RequestTimedOut("no answer"))
    with pytest.raises(RequestTimedOut):
        context.run("begin", "write", "abort")
    with pytest.raises(IllegalProducerState, match="ABORTING"):
        context.run("commit")
    context.run("abort")
    assert context.state is S.READY
    assert context.identity.producer_epoch == 1


def test_abort_with_a_failed_new_epoch_request_may_be_repeated():
    context = SessionContext(is_v2=False)
    context.run("init", "begin", "write")
    context.session.uncertain()
    context.coordinator.plan("raise epoch", RequestTimedOut("no answer"))
    with pytest.raises(RequestTimedOut):
        context.run("abort")
    assert context.state is S.ABORTABLE_ERROR
    assert context.run("abort") == [], "the epoch may have been raised"
    assert context.run("begin") == ["raise epoch"]


def test_begin_after_a_failed_request_for_a_new_epoch_repeats_the_request():
    context = SessionContext(is_v2=False)
    context.coordinator.plan("commit", LOST)
    context.run("init", "begin", "write", "commit")
    context.coordinator.plan("raise epoch", RequestTimedOut("no answer"))
    with pytest.raises(RequestTimedOut):
        context.run("begin")
    assert context.state is S.READY
    assert context.run("begin") == ["raise epoch"]


@pytest.mark.parametrize("name", ["add", "offsets", "commit"])
def test_fenced_producer_raises_at_every_later_call(name):
    context = SessionContext(is_v2=False)
    context.coordinator.plan(name, as_fatal(ProducerFenced()))
    with pytest.raises(ProducerFenced):
        context.run("init", "begin", "write", "offsets", "commit")
    assert context.state is S.FATAL_ERROR
    for call in ("begin", "commit", "abort", "init"):
        with pytest.raises(ProducerFenced) as caught:
            context.run(call)
        assert caught.value.fatal


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("add", TopicAuthorizationFailed()),
        ("offsets", TransactionAbortable()),
        ("commit", TransactionAbortable()),
    ],
)
def test_producer_aborts_and_continues_after_an_abortable_error(name, problem):
    context = SessionContext(is_v2=False)
    context.coordinator.plan(name, as_abortable(problem))
    with pytest.raises(type(problem)) as caught:
        context.run("init", "begin", "write", "offsets", "commit")
    assert caught.value.abortable
    assert context.state is S.ABORTABLE_ERROR
    with pytest.raises(type(problem)):
        context.run("commit")
    assert context.run("abort") == ["abort", "raise epoch"]
    assert context.run("begin", "write", "commit") == ["add", "commit"]


def test_batch_that_fails_in_the_flush_of_a_commit_stops_the_commit(context):
    context.run("begin", "write")
    problem = InvalidProducerEpoch()
    context.sending.at_flush = lambda: context.session.failed(problem)
    with pytest.raises(InvalidProducerEpoch) as caught:
        context.run("commit")
    assert caught.value.abortable
    assert context.state is S.ABORTABLE_ERROR


def test_abort_answered_by_transaction_abortable_takes_a_new_epoch(context):
    context.coordinator.plan("abort", as_abortable(TransactionAbortable()))
    assert context.run("begin", "write", "abort")[-2:] == ["abort", "raise epoch"]
    assert context.state is S.READY


def test_init_transactions_that_failed_may_be_repeated_unless_the_error_is_fatal():
    context = SessionContext(is_v2=True)
    context.coordinator.plan("init", RequestTimedOut(), as_fatal(ProducerFenced()))
    with pytest.raises(RequestTimedOut):
        context.run("init")
    assert context.state is S.UNINITIALIZED
    with pytest.raises(ProducerFenced):
        context.run("init")
    assert context.state is S.FATAL_ERROR


@pytest.mark.parametrize("is_v2", [False, True])
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_prepared_transaction_kept_at_init_is_ended_by_its_new_producer(is_v2, end):
    context = SessionContext(is_v2=is_v2, transaction_two_phase_commit_enable=True)
    context.coordinator.ongoing = (7, 4)
    kept = present(asyncio.run(context.session.init(keep_prepared=True)))
    assert kept == context.session.kept and (kept.producer_id, kept.producer_epoch) == (7, 4)
    assert context.state is S.IN_TRANSACTION and not context.session.should_abort
    with pytest.raises(IllegalProducerState, match="takes nothing more"):
        context.session.want(*PLACE)
    assert context.run(end) == [end]
    assert context.state is S.READY and context.session.kept is None
    assert context.identity.producer_epoch == 5 + is_v2


def test_prepared_transaction_refuses_more_records_and_may_be_ended():
    context = SessionContext(is_v2=True, transaction_two_phase_commit_enable=True)
    context.run("init", "begin", "write")
    token = asyncio.run(context.session.prepare(context.sending))
    assert (token.producer_id, token.producer_epoch, token.is_empty) == (7, 0, False)
    assert not context.session.should_abort, "it waits for the holder of the token"
    for call in ("write", "offsets"):
        with pytest.raises(IllegalProducerState, match="takes nothing more"):
            context.run(call)
    assert context.run("commit") == ["commit"]


def test_offsets_with_a_cancelled_request_require_an_abort():
    context = SessionContext(is_v2=False)
    context.run("init", "begin", "write")
    context.coordinator.plan("offsets", asyncio.CancelledError())
    with pytest.raises(KafkaError):
        context.run("offsets")
    assert context.state is S.ABORTABLE_ERROR
    assert context.run("abort") == ["abort", "raise epoch"]
