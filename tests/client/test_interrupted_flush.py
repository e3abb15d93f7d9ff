"""Test that interrupted calls of a blocking producer lose no error and no outcome of a record."""

import contextlib
from collections.abc import Callable, Generator

import pytest

from oncelog.client import blocking_producer, loop_thread
from oncelog.client.blocking_producer import BlockingProducer
from oncelog.client.produce.delivery import UNSEEN_MAX, Outcome
from oncelog.wire.errors import RecordListTooLarge

from ..interruptions import interrupted

pytestmark = pytest.mark.filterwarnings("ignore:coroutine")
NOWHERE = "127.0.0.1:1"
TRACED = blocking_producer.__file__, loop_thread.__file__
TOO_LARGE = bytes(2_000_000)  # the loop refuses it without a broker


@pytest.fixture
def producer() -> Generator[BlockingProducer]:
    """Yield a producer without a broker."""
    with BlockingProducer(NOWHERE) as made:
        yield made


def refuse(producer: BlockingProducer) -> None:
    producer.send("orders", TOO_LARGE)


def fail(producer: BlockingProducer) -> None:
    producer._client._sender.unseen.fail(Outcome(), RecordListTooLarge("in its batch"))


@pytest.mark.parametrize("break_one", [refuse, fail])
def test_flush_after_an_interrupted_flush_raises_the_unread_error(
    producer: BlockingProducer, break_one: Callable[[BlockingProducer], None]
) -> None:
    number, is_whole = 0, False
    while not is_whole:
        number += 1
        break_one(producer)
        try:
            interrupted(producer.flush, number, TRACED)
        except RecordListTooLarge:
            is_whole = True
        else:
            with pytest.raises(RecordListTooLarge):
                producer.flush()
        producer.flush()  # it was read
    assert number > 10


def test_error_of_a_refused_record_outlasts_more_interrupted_flushes_than_are_remembered(
    producer: BlockingProducer,
) -> None:
    refuse(producer)
    for _ in range(UNSEEN_MAX + 1):
        assert interrupted(producer.flush, 8, TRACED)
    with pytest.raises(RecordListTooLarge):
        producer.flush()


def test_flushes_raise_the_error_of_a_batch_and_of_a_refused_record(
    producer: BlockingProducer,
) -> None:
    fail(producer)
    refuse(producer)
    with pytest.raises(RecordListTooLarge, match="in its batch"):
        producer.flush()
    with pytest.raises(RecordListTooLarge, match="is above"):
        producer.flush()
    producer.flush()


def test_flush_keeps_its_error_during_the_flush_of_a_signal_handler(
    producer: BlockingProducer,
) -> None:
    number, has_ended, late = 0, False, 0
    unseen, heard = producer._client._sender.unseen, list[str]()

    def flush() -> None:
        try:
            producer.flush()
        except RecordListTooLarge as problem:
            heard.append(str(problem))

    def handle() -> None:
        nonlocal late
        late += not unseen._failed  # the interrupted flush has taken its error
        unseen.fail(Outcome(), RecordListTooLarge("of the handler"))
        flush()

    while not has_ended:
        number += 1
        heard.clear()
        unseen.fail(Outcome(), RecordListTooLarge("of the flush"))
        has_ended = not interrupted(flush, number, TRACED, handle)
        assert heard in (["of the flush"], ["of the handler", "of the flush"]), number
    assert number > 10 and late


def test_records_of_a_close_that_was_interrupted_twice_have_failed_after_the_next_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def leave(_: object) -> None:
        raise KeyboardInterrupt

    number, is_whole = 0, False
    while not is_whole:
        number += 1
        producer = BlockingProducer(NOWHERE)
        deliveries = [producer.send("orders", b"%d" % each) for each in range(3)]
        monkeypatch.setattr(producer, "run", leave)
        is_whole = not interrupted(producer.close, number, TRACED)
        with contextlib.suppress(KeyboardInterrupt):
            producer.close()
        assert all(each.done() for each in deliveries), number
    assert number > 10
