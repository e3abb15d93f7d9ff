"""Test that an exception of a message handler is logged with its peer, at a limited rate."""

import logging
from typing import Any

import pytest

from oncelog.replication.messages import MalformedPeerMessage
from oncelog.replication.peer.handlers import PeerHandlers, What
from oncelog.runtime.rate_limited_log import LINES_PER_PERIOD

KIND, PEER = 7, 3


def _raise(error: Exception) -> Any:
    def handle(*_: Any) -> None:
        raise error

    return handle


def _handlers(error: Exception) -> PeerHandlers:
    handlers = PeerHandlers(1)
    handlers.on_message(KIND, _raise(error))
    handlers.on_request(KIND, _raise(error))
    return handlers


async def test_peer_messages_that_are_malformed_are_logged_ten_times_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handlers, replies = _handlers(MalformedPeerMessage("not msgpack")), []
    for _ in range(100):
        handlers._asked(PEER, (KIND, False), b"", [], lambda *_, what: replies.append(what))
        handlers._deliver(PEER, KIND, b"")
    assert replies == [What.FAILURE] * 100
    assert len(caplog.records) == 2 * LINES_PER_PERIOD
    lines = {record.getMessage() for record in caplog.records}
    assert {line.partition(": Malformed")[0] for line in lines} == {
        "node 1: a request of kind 7 from broker 3 failed",
        "node 1: a message of kind 7 from broker 3 failed",
    }
    assert not any(record.exc_info for record in caplog.records)


async def test_peer_handler_with_an_unexpected_error_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _handlers(KeyError("a bug"))._asked(PEER, (KIND, False), b"", [], lambda *_, what: what)
    [record] = caplog.records
    assert record.exc_info and record.levelno == logging.ERROR
    assert "from broker 3" in record.getMessage()
