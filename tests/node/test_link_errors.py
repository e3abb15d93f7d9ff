"""Test that errors of a link between brokers end no broker and no background task."""

import asyncio
import errno
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zmq

from oncelog.coordinator.metadata.commands import CreateTopics, NewTopic
from oncelog.replication.peer.control import ControlChannel
from oncelog.replication.peer.streams import PeerStream

from ..awaiting import until
from .three_brokers import three_brokers

ERRORS = (
    partial(AttributeError, "a handle has no 'when'"),
    partial(OSError, errno.ENOBUFS, "no buffer space"),
    partial(RuntimeError, "unable to perform operation on a closed transport"),
    partial(zmq.ZMQError, zmq.ENOTSOCK),
)


@pytest.mark.uvloop
async def test_brokers_with_links_that_raise_at_every_send_keep_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))
    raised: Counter[int] = Counter()

    def raising(self: ControlChannel | PeerStream, *_: object) -> int:
        number = sum(raised.values()) % len(ERRORS)
        raised[id(self)] += 1
        raise ERRORS[number]()

    async with three_brokers(tmp_path) as cluster:
        await cluster.create_topic()
        for link in (ControlChannel, PeerStream):
            monkeypatch.setattr(link, "send", raising)
        await until(lambda: len(raised) >= 6 and sum(raised.values()) > 200)
        monkeypatch.undo()
        for number, broker in enumerate(cluster.brokers):
            new = NewTopic(f"after-{number}", f"topic {number}".encode().ljust(16), 1, 3)
            result = await broker._controller.submit(CreateTopics((new,)), timeout_ms=20_000)
            assert not result.error
    assert not contexts, "no task has ended, and nothing went uncaught"
