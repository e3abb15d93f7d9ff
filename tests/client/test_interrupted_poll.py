"""Test that a blocking poll that a signal handler interrupts loses no record."""

import asyncio
import contextlib
import random
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from oncelog.client import BlockingConsumer, BlockingProducer, Consumer

from .fetch.test_poll_loses_nothing import batch

PLACE = ("t", 0)
TIMEOUT_S = 10.0
POLLS: list[Callable[[BlockingConsumer], Any]] = [
    lambda consumer: consumer.poll(0),
    lambda consumer: consumer.poll_columns(0),
    lambda consumer: consumer.poll_batches(0),
]


class Interrupted(BaseException):
    pass


def load(consumer: BlockingConsumer) -> None:
    consumer._client._positions.states[PLACE].load(batch(0), ())


committed: list[int] = []


@pytest.fixture(params=POLLS)
def interrupted(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[BlockingConsumer, Callable[[BlockingConsumer], Any]]]:
    """Yield a consumer and a poll method, after a call of that method was interrupted.

    The interruption came after the poll had finished, and before it returned its records.
    """
    with BlockingConsumer("127.0.0.1:1", group_id="g") as consumer:

        async def commit(listed: Any, **_: Any) -> None:
            committed.extend(each.offset for each in listed.values())

        committed.clear()
        consumer._client._commit = commit  # type: ignore[method-assign]
        consumer.assign({PLACE: 0})
        load(consumer)
        run = consumer._thread.run

        def run_and_leave(work: Any, timeout_s: float | None = None) -> None:
            run(work, timeout_s)
            raise Interrupted

        with monkeypatch.context() as patch, pytest.raises(Interrupted):
            patch.setattr(consumer._thread, "run", run_and_leave)
            request.param(consumer)
        yield consumer, request.param


def test_poll_after_an_interrupted_poll_returns_the_same_records(interrupted: Any) -> None:
    consumer, poll = interrupted
    assert len(poll(consumer)) == 1
    assert consumer.position(*PLACE) == 1
    assert len(poll(consumer)) == 0


def test_poll_interrupted_before_it_begins_does_not_repeat_the_records_of_earlier_polls(
    interrupted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer, poll = interrupted
    assert len(poll(consumer)) == 1

    def leave(work: Any, timeout_s: float | None = None) -> None:
        work.close()
        raise Interrupted

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(consumer._thread, "run", leave)
        poll(consumer)
    assert consumer.position(*PLACE) == 1
    assert len(poll(consumer)) == 0


def test_poll_that_ends_after_its_caller_was_interrupted_returns_its_records_to_the_next_poll(
    interrupted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer, poll = interrupted
    run, kept = consumer._thread.run, []

    def leave(work: Any, timeout_s: float | None = None) -> None:
        kept.append(work)
        raise Interrupted

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(consumer._thread, "run", leave)
        poll(consumer)
    run(kept.pop())
    assert len(poll(consumer)) == 1


def test_poll_that_was_interrupted_does_not_move_the_position(interrupted: Any) -> None:
    consumer, _ = interrupted
    assert consumer.position(*PLACE) == 0


def test_commit_after_an_interrupted_poll_does_not_commit_its_records(interrupted: Any) -> None:
    consumer, _ = interrupted
    consumer.commit()
    assert committed == [0]


def test_close_after_an_interrupted_poll_does_not_commit_the_polled_records(
    interrupted: Any,
) -> None:
    consumer, _ = interrupted
    consumer.close()
    assert committed == [0]


def test_poll_interrupted_before_it_begins_keeps_the_position() -> None:
    with BlockingConsumer("127.0.0.1:1") as consumer:
        consumer.assign({PLACE: 0})
        load(consumer)
        assert len(consumer.poll(0)) == 1
        with pytest.raises(Interrupted), pytest.MonkeyPatch.context() as patch:
            patch.setattr(consumer._thread, "run", leave_before_it_begins)
            consumer.poll(0)
        assert consumer.position(*PLACE) == 1


def test_poll_refused_on_the_event_loop_keeps_the_position() -> None:
    with BlockingConsumer("127.0.0.1:1") as consumer:
        consumer.assign({PLACE: 0})
        load(consumer)
        assert len(consumer.poll(0)) == 1

        async def poll_on_the_loop() -> None:
            consumer.poll(0)

        with pytest.raises(RuntimeError):
            consumer._thread.run(poll_on_the_loop())
        assert consumer.position(*PLACE) == 1


def leave_before_it_begins(work: Any, timeout_s: float | None = None) -> None:
    work.close()
    raise Interrupted


def test_seek_after_an_interrupted_poll_sets_the_position(interrupted: Any) -> None:
    consumer, _ = interrupted
    consumer.seek(*PLACE, 7)
    assert consumer.position(*PLACE) == 7


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a finalizer
def test_polls_interrupted_by_signals_return_every_record_once(bootstrap: str, topic: str) -> None:
    count = 1_000
    with BlockingProducer(bootstrap) as producer:
        producer.send_many(topic, [b"%d" % n for n in range(count)], partition=0)

    def leave(_: int, frame: FrameType | None) -> None:
        while frame is not None:  # records that the application has received are its own
            if frame.f_code is BlockingConsumer._poll.__code__:
                raise Interrupted
            frame = frame.f_back

    before = signal.signal(signal.SIGALRM, leave)
    chance, found = random.Random(1), list[int]()
    try:
        with BlockingConsumer(bootstrap) as consumer:
            consumer.assign({(topic, 0): 0})
            for _ in range(10_000):
                with contextlib.suppress(Interrupted):
                    signal.setitimer(signal.ITIMER_REAL, chance.choice((0.0005, 0.002, 0.01)))
                    records = consumer.poll(200, 20)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    found += [int(record.value or b"") for record in records]
                if len(found) >= count:
                    break
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert found == list(range(count))


def test_call_of_a_callback_continues_after_the_poll_was_interrupted() -> None:
    """A callback runs in another thread while the poll waits for it."""
    may_end, begun, found = threading.Event(), threading.Event(), list[str]()

    async def wait(_: Consumer) -> str:
        begun.set()
        while not may_end.is_set():
            await asyncio.sleep(0.001)
        return "committed"

    with BlockingConsumer("127.0.0.1:1") as consumer:
        consumer.assign({PLACE: 0})
        callback = threading.Thread(target=lambda: found.append(consumer.run(wait)))
        callback.start()
        assert begun.wait(TIMEOUT_S)
        with pytest.raises(Interrupted), pytest.MonkeyPatch.context() as patch:
            patch.setattr(consumer._thread, "run", leave_before_it_begins)
            consumer.poll(0)
        consumer.poll(0)
        may_end.set()
        callback.join(TIMEOUT_S)
    assert found == ["committed"]
