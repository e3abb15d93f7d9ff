"""Test that a cancelled call of a transaction completes, is repeated, or fails the commit."""

import asyncio
import contextlib

import pytest

from oncelog.client.failures import TransactionAborted
from oncelog.client.group_metadata import GroupMetadata, OffsetAndMetadata
from oncelog.client.transactions.producer_state import ProducerState
from oncelog.wire.errors import IllegalGeneration, KafkaError

from .test_session import PLACE, SessionContext

S = ProducerState


class Slow(SessionContext):
    """A session with a coordinator that answers TxnOffsetCommit only after `may_answer` is set."""

    def __init__(self, *, is_v2: bool) -> None:
        super().__init__(is_v2=is_v2)
        self.may_answer, self.is_asked = asyncio.Event(), asyncio.Event()
        self.committed: list[int] = []
        self.outcomes: list[Exception] = []
        self.coordinator.commit_offsets = self._commit_offsets  # type: ignore[method-assign]

    async def _commit_offsets(self, producer, group, offsets, deadline_ms, *, is_v2) -> None:
        self.is_asked.set()
        await self.may_answer.wait()
        if self.outcomes:
            raise self.outcomes.pop()
        self.coordinator.asked.append("offsets")
        self.committed.append(offsets[PLACE].offset)

    async def offset(self, number: int) -> None:
        await self.session.send_offsets({PLACE: OffsetAndMetadata(number)}, GroupMetadata("g"))

    async def begun(self) -> None:
        await self.init()
        await self.begin()

    async def interrupted_offset(self, number: int) -> None:
        """Send an offset, and cancel the call while its request waits for the answer."""
        self.is_asked.clear()
        call = asyncio.create_task(self.offset(number))
        await self.is_asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


@pytest.fixture(params=[False, True], ids=["v1", "v2"])
def slow(request: pytest.FixtureRequest) -> Slow:
    return Slow(is_v2=request.param)


async def test_commit_sends_offsets_of_a_cancelled_call_first(slow: Slow) -> None:
    await slow.begun()
    await slow.interrupted_offset(5)
    commit = asyncio.create_task(slow.commit())
    await asyncio.sleep(0)
    assert "commit" not in slow.coordinator.asked
    slow.may_answer.set()
    await commit
    assert slow.committed == [5]
    assert slow.coordinator.asked[-2:] == ["offsets", "commit"]


async def test_commit_raises_if_offsets_of_a_cancelled_call_are_refused(slow: Slow) -> None:
    await slow.begun()
    await slow.interrupted_offset(5)
    slow.outcomes.append(IllegalGeneration("the group has gone on"))
    slow.may_answer.set()
    with pytest.raises(IllegalGeneration) as raised:
        await slow.commit()
    assert raised.value.abortable
    assert slow.state is S.ABORTABLE_ERROR
    await slow.abort()
    assert slow.state is S.READY


async def test_commit_raises_if_offsets_of_a_cancelled_call_fail_unexpectedly(slow: Slow) -> None:
    await slow.begun()
    await slow.interrupted_offset(5)
    slow.outcomes.append(RuntimeError("a bug"))
    slow.may_answer.set()
    with pytest.raises(KafkaError, match="a bug"):
        await slow.commit()
    assert slow.state is S.ABORTABLE_ERROR


async def test_offsets_of_several_calls_are_sent_in_the_order_of_the_calls(slow: Slow) -> None:
    await slow.begun()
    await slow.interrupted_offset(5)
    later = [asyncio.create_task(slow.offset(number)) for number in (6, 7, 8)]
    await asyncio.sleep(0)
    slow.may_answer.set()
    await asyncio.gather(*later)
    await slow.commit()
    assert slow.committed == [5, 6, 7, 8]


async def test_abort_drops_offsets_of_a_cancelled_call(slow: Slow) -> None:
    await slow.begun()
    await slow.interrupted_offset(5)
    await slow.abort()
    slow.may_answer.set()
    await slow.begin()
    await slow.offset(6)
    await slow.commit()
    assert slow.committed == [6]


async def test_commit_cancelled_while_it_sends_offsets_may_be_repeated(slow: Slow) -> None:
    await slow.begun()
    await slow.interrupted_offset(5)
    for _ in range(2):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(slow.commit(), 0.001)
    assert slow.state is S.COMMITTING_TRANSACTION
    slow.may_answer.set()
    await slow.commit()
    assert slow.committed == [5]


async def test_prepare_returns_its_token_after_offsets_of_a_cancelled_call_were_sent(
    slow: Slow,
) -> None:
    await slow.begun()
    await slow.interrupted_offset(5)
    prepare = asyncio.create_task(slow.session.prepare(slow.sending, may_time_out=True))
    await asyncio.sleep(0)
    assert not prepare.done()
    slow.may_answer.set()
    assert not (await prepare).is_empty
    assert slow.committed == [5]


async def test_transaction_with_a_cancelled_prepare_is_aborted_at_the_close(slow: Slow) -> None:
    """The caller never got the token, so no other process could end the transaction."""
    await slow.begun()
    await slow.interrupted_offset(5)
    prepare = asyncio.create_task(slow.session.prepare(slow.sending, may_time_out=True))
    await asyncio.sleep(0)
    prepare.cancel()
    with pytest.raises(asyncio.CancelledError):
        await prepare
    assert slow.session.should_abort
    slow.may_answer.set()
    await slow.session.prepare(slow.sending, may_time_out=True)
    assert not slow.session.should_abort


async def test_closed_session_sends_no_more_offsets(slow: Slow) -> None:
    await slow.begun()
    await slow.interrupted_offset(5)
    await slow.session.close()
    slow.may_answer.set()
    await asyncio.sleep(0)
    assert slow.committed == []


async def test_send_offsets_raises_when_another_task_aborts_its_transaction(slow: Slow) -> None:
    await slow.begun()
    call = asyncio.create_task(slow.offset(5))
    await slow.is_asked.wait()
    await slow.abort()
    await slow.begin()
    with pytest.raises(TransactionAborted):
        await call
    assert slow.state is S.IN_TRANSACTION


async def test_commit_raises_if_a_queued_send_offsets_call_was_cancelled(slow: Slow) -> None:
    await slow.begun()
    await slow.interrupted_offset(5)
    later = asyncio.create_task(slow.offset(6))
    await asyncio.sleep(0)
    later.cancel()
    with pytest.raises(asyncio.CancelledError):
        await later
    slow.may_answer.set()
    with pytest.raises(KafkaError) as raised:
        await slow.commit()
    assert raised.value.abortable
    await slow.abort()
    assert slow.state is S.READY


async def test_prepare_raises_when_another_task_of_the_application_aborts_the_transaction(
    slow: Slow,
) -> None:
    await slow.begun()
    is_flushed = asyncio.Event()
    slow.sending.flush = is_flushed.wait  # type: ignore[assignment]
    prepare = asyncio.create_task(slow.session.prepare(slow.sending, may_time_out=True))
    await asyncio.sleep(0)
    await slow.abort()
    is_flushed.set()
    with pytest.raises(KafkaError):
        await prepare
