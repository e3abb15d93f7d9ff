"""Test deliveries of split batches, in callbacks, and awaited before and after completion."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.produce.accumulator import ProducerBatch
from oncelog.client.produce.delivery import Delivery, Outcome, RecordMetadata
from oncelog.client.produce.requests import halves
from oncelog.client.transactions.prepared import PreparedTransaction
from oncelog.wire.errors import RequestTimedOut
from oncelog.wire.records import decode_batch

HERE = RecordMetadata("t", 1, 40)


async def test_each_record_of_a_batch_has_its_own_offset():
    outcome = Outcome()
    waiting = [asyncio.ensure_future(_await(Delivery(outcome, i))) for i in range(3)]
    await asyncio.sleep(0)
    early = Delivery(outcome, 5)
    assert not early.done()
    with pytest.raises(asyncio.InvalidStateError):
        early.result()
    outcome.written(HERE)
    assert [m.offset for m in await asyncio.gather(*waiting)] == [40, 41, 42]
    assert (await early).offset == 45
    assert early.exception() is None
    assert Delivery(Outcome(), 0).done() is False


async def _await(delivery: Delivery) -> RecordMetadata:
    return await delivery


def test_delivery_in_a_failed_batch_raises_the_error_of_the_batch():
    outcome, called = Outcome(), []
    delivery = Delivery(outcome, 3)
    delivery.add_done_callback(called.append)
    problem = RequestTimedOut("too late")
    outcome.failed(problem)
    outcome.failed(RequestTimedOut("again"))
    outcome.written(HERE)
    assert called == [delivery] and delivery.exception() is problem
    delivery.add_done_callback(called.append)
    assert len(called) == 2
    with pytest.raises(RequestTimedOut, match="too late"):
        delivery.result()


async def test_delivery_with_a_cancelled_waiter_completes_for_other_waiters():
    outcome = Outcome()
    first, second = (asyncio.ensure_future(_await(Delivery(outcome, i))) for i in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    outcome.written(HERE)
    assert (await second).offset == 41


def test_delivery_in_a_batch_without_an_offset_has_no_offset():
    outcome = Outcome()
    outcome.written(RecordMetadata("t", 1, -1))
    assert Delivery(outcome, 7).result().offset == -1


@given(st.integers(2, 9), st.lists(st.integers(0, 8), max_size=5), st.integers(-1, 2**31 - 1))
def test_split_batch_parts_complete_the_deliveries_of_their_own_records(count, cuts, sequence):
    batch = ProducerBatch("t", 0, 0, 100)
    for i in range(count):
        batch.builder.append(5, None, b"%d" % i)
    batch.base_sequence, batch.encoded = sequence, batch.builder.build()
    called: list[int] = []
    deliveries = [Delivery(batch.outcome, i) for i in range(count)]
    for i, delivery in enumerate(deliveries):
        delivery.add_done_callback(lambda _, i=i: called.append(i))
    parts = [batch]
    for cut in cuts:
        chosen = parts[cut % len(parts)]
        if chosen.builder.count > 1:
            chosen.encoded = chosen.builder.build()
            at = parts.index(chosen)
            parts[at : at + 1] = halves(chosen)
    values = [r.value for p in parts for r in decode_batch(p.builder.build())]
    assert values == [b"%d" % i for i in range(count)]
    first = 0
    for part in parts:
        wanted = -1 if sequence < 0 else (sequence + first) % 2**31
        assert part.base_sequence == wanted
        assert not any(d.done() for d in deliveries[first:])
        part.outcome.written(RecordMetadata("t", 0, 100 + first))
        first += part.builder.count
    assert [d.result().offset for d in deliveries] == [100 + i for i in range(count)]
    assert called == list(range(count))


@given(st.text(min_size=1), st.integers(0, 2**62), st.integers(0, 2**15 - 1), st.booleans())
def test_prepared_transaction_token_is_parsed_from_its_text(name, producer_id, epoch, flag):
    token = PreparedTransaction(name, producer_id, epoch, flag, is_empty=not flag)
    assert PreparedTransaction.parse(str(token)) == token


NO_TOKENS = [
    "",
    "a:b:c:d:e",
    "oncelog-prepared-1:x:1:2",
    "x:y:1:2:1",
    "oncelog-prepared-1:x:one:2:1",
    "oncelog-prepared-1:x:1:2:3",
]


@pytest.mark.parametrize("text", NO_TOKENS)
def test_prepared_transaction_token_of_invalid_text_is_refused(text):
    with pytest.raises(ValueError, match="no token"):
        PreparedTransaction.parse(text)


async def test_delivery_callback_that_raises_does_not_stop_later_callbacks(caplog):
    outcome = Outcome()

    def fails(_):
        raise ZeroDivisionError

    Delivery(outcome, 0).add_done_callback(fails)
    waiting = asyncio.ensure_future(_await(Delivery(outcome, 1)))
    await asyncio.sleep(0)
    outcome.written(HERE)
    assert (await waiting).offset == 41
    assert "ZeroDivisionError" in caplog.text
