"""Test sends of a blocking producer that a signal handler interrupts at each of their points."""

import threading
import time
from collections.abc import Generator

import pytest

from oncelog.client import blocking_producer
from oncelog.client.blocking_producer import BlockingProducer

from ..interruptions import interrupted

NOWHERE = "127.0.0.1:1"
TIMEOUT_S = 10.0
TOO_LARGE = bytes(2_000_000)  # the loop refuses it without a broker
TRACED = blocking_producer.__file__, threading.__file__


@pytest.fixture
def producer() -> Generator[BlockingProducer]:
    """Yield a producer without a broker, whose records wait."""
    made = BlockingProducer(NOWHERE)
    yield made
    closing = threading.Thread(target=made._thread.close, daemon=True)  # it may hang
    closing.start()
    closing.join(TIMEOUT_S)


def test_send_interrupted_anywhere_is_taken_with_the_next(producer: BlockingProducer) -> None:
    number, is_whole = 0, False
    while not is_whole:
        number += 1
        is_whole = not interrupted(lambda: producer.send("orders", TOO_LARGE), number, TRACED)
        producer.send("orders", TOO_LARGE)
        deadline_s = time.monotonic() + TIMEOUT_S
        while producer._handed:
            assert time.monotonic() < deadline_s, number
            time.sleep(0.001)
        producer._thread.run(producer._all_taken(), TIMEOUT_S)
        assert producer._given_bytes <= producer._taken_bytes, number
    assert number > 5


def test_wait_for_room_interrupted_anywhere_leaves_the_loop_running(
    producer: BlockingProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking_producer, "HANDED_MAX", 0)
    for number in range(1, 15):
        assert interrupted(producer._wait_for_room, number, TRACED)
        producer._thread.run(producer._all_taken(), TIMEOUT_S)
