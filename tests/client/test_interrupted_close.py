"""Test that the close after an interrupted close of a blocking client closes its connections."""

import asyncio
from collections.abc import Callable

import psutil
import pytest

from oncelog.client import (
    BlockingAdmin,
    BlockingConsumer,
    BlockingProducer,
    blocking_producer,
    loop_thread,
)

from ..interruptions import interrupted

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("dual_write")]
TRACED = blocking_producer.__file__, loop_thread.__file__
Client = BlockingAdmin | BlockingConsumer | BlockingProducer


def producer(bootstrap: str, topic: str) -> Client:
    made = BlockingProducer(bootstrap)
    made.send(topic, b"1").result(10.0)
    return made


def consumer(bootstrap: str, topic: str) -> Client:
    made = BlockingConsumer(bootstrap, group_id=topic)
    made.assign({(topic, 0): 0})
    made.poll(100)
    return made


def admin(bootstrap: str, topic: str) -> Client:
    made = BlockingAdmin(bootstrap)
    made.transactions.list_transactions()
    return made


def connections() -> int:
    return len(psutil.Process().net_connections("tcp"))


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("make", [producer, consumer, admin])
def test_second_close_after_an_interrupted_close_leaves_no_connection(
    bootstrap: str, topic: str, make: Callable[[str, str], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A uvloop closes its sockets itself, an asyncio loop does not."""
    monkeypatch.setattr(loop_thread, "new_event_loop", asyncio.new_event_loop)
    number, is_whole, before = 0, False, connections()
    while not is_whole:
        number += 1
        client = make(bootstrap, topic)
        assert connections() > before
        is_whole = not interrupted(client.close, number, TRACED)
        client.close()
        assert connections() == before, number
    assert number > 10
