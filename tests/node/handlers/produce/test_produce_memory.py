"""Test that the memory of a produce is freed when the memory budget stops to count it."""

import asyncio
import gc
import logging
from pathlib import Path

import pytest

from oncelog.node.handlers.produce.record_checks import AT_ONCE_ITEMS_MAX
from oncelog.node.listener.pending_answer import PendingAnswer
from oncelog.node.listener.server import KafkaServer
from oncelog.wire.framing import encode_request_header
from oncelog.wire.messages import produce
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from oncelog.wire.records import Record, encode_batch

from ....awaiting import settle, until
from ...fake_broker import PRODUCE, plain_listener
from ...leading_broker import LeadingBroker, batch, plain


def send(
    broker: LeadingBroker, records: bytearray, transactional_id: str | None = None
) -> tuple[bytearray, PendingAnswer]:
    """Send a produce that has to wait. Return its frame and the pending answer."""
    wanted = ProduceTopic("t", None, [ProducePartition(0, records)])
    body = produce.encode_request(ProduceRequest(transactional_id, -1, 60_000, [wanted]), 9)
    frame = bytearray(encode_request_header(PRODUCE, 9, 1, "test") + b"".join(body))
    view = memoryview(frame)
    answer = broker.dispatcher.dispatch(broker.connect(), broker.dispatcher.find(view), view)
    assert isinstance(answer, PendingAnswer) and not answer.is_done
    return frame, answer


def is_in_memory(frame: bytearray) -> bool:
    """Return whether a view of the frame still exists."""
    gc.collect()
    try:
        frame.append(0)
    except BufferError:
        return True
    return False


@pytest.mark.parametrize("end", ["answered", "failed", "gone"])
async def test_produce_that_waited_is_freed_after_its_answer(tmp_path: Path, end: str) -> None:
    """The purgatory keeps some completed requests for a while, and one may have 100 MB."""
    broker = LeadingBroker(tmp_path, replicas=(1, 2), min_insync_replicas=2)
    frame, answer = send(broker, plain())
    match end:
        case "answered":
            broker.replicate()
        case "failed":
            broker.resign()
        case _:
            answer.abandon()
    assert answer.is_done and answer.is_abandoned == (end == "gone")
    assert not is_in_memory(frame)


@pytest.mark.uvloop
async def test_produces_with_acks_zero_are_appended_after_their_client_closed(
    tmp_path: Path,
) -> None:
    """As in Kafka, a client does not repeat produces with acks=0 after its connection closed."""
    broker = LeadingBroker(tmp_path, log_config={"is_compacted": True})
    server = KafkaServer(broker.dispatcher, broker.services, logging.getLogger("oncelog.test"))
    await server.start(plain_listener())
    records = [Record(n, 1_700_000_000_000, b"k", b"v") for n in range(AT_ONCE_ITEMS_MAX + 1)]
    wanted = ProduceTopic("t", None, [ProducePartition(0, bytearray(encode_batch(records)))])
    body = b"".join(produce.encode_request(ProduceRequest(None, 0, 60_000, [wanted]), 9))
    request = encode_request_header(PRODUCE, 9, 1, "test") + body
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write((len(request).to_bytes(4, "big") + request) * 40)
    writer.close()
    try:
        await until(lambda: broker.log().log_end_offset == 40 * len(records))
        await until(lambda: not server.connection_count)
    finally:
        await server.stop(0)


async def test_produce_in_a_queue_is_dropped_with_its_connection(tmp_path: Path) -> None:
    """The produce waits for a verification. The memory budget no longer counts its bytes."""
    broker = LeadingBroker(tmp_path)
    broker.verifier.hold = True
    frame, answer = send(broker, batch(0), "tx")
    await settle()
    assert broker.verifier.questions and is_in_memory(frame)
    answer.abandon()
    assert not is_in_memory(frame)
    broker.verifier.release()
    await settle()
    assert broker.contents() == []
