"""Test transactions of a blocking producer with an interruption at each point of a call."""

from collections.abc import Callable, Generator
from typing import Any

import pytest

from oncelog.client import BlockingAdmin, BlockingProducer, blocking_producer, loop_thread
from oncelog.client.failures import ClientClosed, IllegalProducerState
from oncelog.wire.errors import KafkaError

from ..interruptions import interrupted

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.xdist_group("dual_write"),
    pytest.mark.filterwarnings("ignore:coroutine"),
]
TRACED = blocking_producer.__file__, loop_thread.__file__
WAIT_POINTS = 15  # of a send that waits for memory, which has no end here


@pytest.fixture
def producer(bootstrap: str, topic: str) -> Generator[BlockingProducer]:
    with BlockingProducer(bootstrap, transactional_id=topic) as made:
        made.init_transactions()
        yield made


def assert_must_abort(producer: BlockingProducer, number: int) -> None:
    with pytest.raises(KafkaError) as raised:
        producer.commit_transaction()
    assert raised.value.abortable, number
    producer.abort_transaction()


@pytest.mark.parametrize(
    "send",
    [
        lambda producer, topic: producer.send(topic, b"1"),
        lambda producer, topic: producer.send_many(topic, [b"1", b"2"]),
    ],
    ids=["send", "send_many"],
)
def test_transaction_with_an_interrupted_send_must_be_aborted(
    producer: BlockingProducer, topic: str, send: Callable[[BlockingProducer, str], object]
) -> None:
    number, is_whole = 0, False
    while not is_whole:
        number += 1
        producer.begin_transaction()
        is_whole = not interrupted(lambda: send(producer, topic), number, TRACED)
        if not is_whole:
            assert_must_abort(producer, number)
    producer.commit_transaction()
    assert number > 5


def test_transaction_with_a_send_interrupted_in_its_wait_for_memory_must_be_aborted(
    producer: BlockingProducer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, WAIT_POINTS):
        producer.begin_transaction()
        with monkeypatch.context() as patch:
            patch.setattr(producer, "_bytes_max", -1)
            assert interrupted(lambda: producer.send(topic, b"1"), number, TRACED)
        assert_must_abort(producer, number)


@pytest.mark.parametrize(
    "columns",
    [{"values": [5]}, {"keys": [2**64]}, {"keys": ["text"]}, {"headers": [[(1, b"")]]}],
    ids=str,
)
def test_transaction_after_an_invalid_record_may_be_committed(
    producer: BlockingProducer, topic: str, columns: dict[str, Any]
) -> None:
    producer.begin_transaction()
    with pytest.raises(TypeError):
        producer.send_many(topic, **{"values": [b"1"], **columns})
    producer.commit_transaction()


def test_close_after_an_interrupted_prepare_aborts_the_transaction(
    bootstrap: str, topic: str
) -> None:
    number, is_whole = 0, False
    with BlockingAdmin(bootstrap) as admin:
        while not is_whole:
            number += 1
            with BlockingProducer(
                bootstrap, transactional_id=topic, transaction_two_phase_commit_enable=True
            ) as producer:
                producer.init_transactions()
                producer.begin_transaction()
                producer.send(topic, b"1")
                is_whole = not interrupted(producer.prepare, number, TRACED)
            listed = admin.transactions.list_transactions(prefix=topic, states=["Ongoing"])
            assert bool(listed) == is_whole, (number, listed)
    assert number > 10


def test_close_after_an_interrupted_second_prepare_keeps_the_prepared_transaction(
    bootstrap: str, topic: str
) -> None:
    with (
        BlockingAdmin(bootstrap) as admin,
        BlockingProducer(
            bootstrap, transactional_id=topic, transaction_two_phase_commit_enable=True
        ) as producer,
    ):
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"1")
        token, number = producer.prepare(), 1
        while interrupted(producer.prepare, number, TRACED):
            number += 1
        producer.close()
        assert number > 10
        assert admin.transactions.list_transactions(prefix=topic, states=["Ongoing"])
        with BlockingProducer(bootstrap) as other:
            other.complete(token, commit=True)


def test_send_outside_of_a_transaction_raises_and_loses_no_record_silently(
    bootstrap: str, topic: str
) -> None:
    """Nothing else would report the error: the next begin clears the errors of records."""
    with BlockingProducer(bootstrap, transactional_id=topic) as producer:
        with pytest.raises(IllegalProducerState, match="UNINITIALIZED"):
            producer.send(topic, b"1")
        producer.init_transactions()
        with pytest.raises(IllegalProducerState, match="READY"):
            producer.send(topic, b"2")
        producer.begin_transaction()
        producer.send(topic, b"3")
        producer.commit_transaction()
        with pytest.raises(IllegalProducerState, match="READY"):
            producer.send(topic, b"4")
    with pytest.raises(ClientClosed):
        producer.send(topic, b"5")


def test_send_during_which_another_thread_begins_a_transaction_is_refused(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record would be in no transaction, and no commit would raise its error."""
    with BlockingProducer(bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        monkeypatch.setattr(producer._client, "require_transaction", producer.begin_transaction)
        with pytest.raises(IllegalProducerState, match="began during this send"):
            producer.send(topic, b"1")
        producer.send(topic, b"2")
        producer.commit_transaction()
