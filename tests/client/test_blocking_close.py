"""Test closing blocking clients from several threads while other calls run."""

import asyncio
import signal
import threading
from collections.abc import Callable

import pytest

from oncelog.client.blocking import BlockingConsumer, BlockingProducer
from oncelog.client.failures import ClientClosed
from oncelog.client.loop_thread import BlockingClient
from oncelog.client.producer import Producer

NOWHERE = "127.0.0.1:1"
TIMEOUT_S = 10


class Slow:
    """A client that returns from a second close while the first is still running, as oncelog's
    does.
    """

    def __init__(self) -> None:
        self.is_closing = self.has_flushed = False

    async def close(self) -> None:
        if not self.is_closing:
            self.is_closing = True
            await asyncio.sleep(0.2)
            self.has_flushed = True

    def _drop(self) -> None: ...


def at_once(*works: Callable[[], object]) -> list[BaseException]:
    """Run each call in a thread of its own, and return the exceptions. Fail if a thread hangs."""
    problems: list[BaseException] = []
    begin = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        begin.wait()
        try:
            work()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert not any(thread.is_alive() for thread in threads)
    return problems


@pytest.mark.parametrize("make", [BlockingProducer, BlockingConsumer])
def test_blocking_client_closed_by_two_threads_raises_no_error(
    make: type[BlockingProducer | BlockingConsumer],
) -> None:
    for _ in range(5):
        client = make(NOWHERE)
        assert at_once(client.close, client.close) == []


def test_blocking_client_closed_twice_completes_the_flush_of_the_first_close() -> None:
    client = BlockingClient(slow := Slow(), "slow")
    assert at_once(client.close, client.close) == []
    assert slow.has_flushed


def test_blocking_poll_that_waits_raises_client_closed_at_a_close() -> None:
    consumer = BlockingConsumer(NOWHERE)
    consumer.assign({("t", 0): 0})
    begun = threading.Event()

    def poll() -> None:
        begun.set()
        consumer.poll(60_000)

    (problem,) = at_once(poll, lambda: (begun.wait(), consumer.close()))
    assert isinstance(problem, ClientClosed)
    assert not problem.retriable
    with pytest.raises(ClientClosed):
        consumer.poll(0)


def test_record_waiting_for_its_topic_fails_when_the_close_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = BlockingProducer(NOWHERE)
    waits = threading.Event()

    async def until_sendable(_self: Producer, _topic: str) -> None:
        waits.set()
        await asyncio.sleep(60)

    def interrupted(_work: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Producer, "until_sendable", until_sendable)
    deliveries = [producer.send("t", b"1"), producer.send("t", b"2")]
    assert waits.wait(TIMEOUT_S)
    monkeypatch.setattr(producer, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        producer.close()
    for delivery in deliveries:
        assert delivery.done()
        with pytest.raises(ClientClosed):
            delivery.result()


def test_blocking_client_closed_inside_its_own_callback_is_refused() -> None:
    client = BlockingClient(slow := Slow(), "slow")

    async def closes(_: Slow) -> None:
        client.close()

    with pytest.raises(RuntimeError, match="its own client"):
        client.run(closes)
    client.close()
    assert slow.has_flushed


def test_blocking_client_closed_by_a_signal_handler_during_a_close_is_closed_once() -> None:
    client = BlockingClient(slow := Slow(), "slow")
    main = threading.main_thread().ident
    assert main is not None
    heard: list[bool] = []

    def handle(*_: object) -> None:
        heard.append(not slow.has_flushed)
        client.close()

    before = signal.signal(signal.SIGUSR1, handle)
    timer = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGUSR1))
    try:
        timer.start()
        client.close()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == [True]
    assert slow.has_flushed
