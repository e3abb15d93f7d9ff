"""Test that a produce of many partitions is appended in parts, in order, and answered once."""

import asyncio
import gc
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from oncelog.node.handlers.produce.large_produce import LargeProduce
from oncelog.runtime.sliced_work import SlicedWork
from oncelog.runtime.steps import run_to_end
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages import produce
from oncelog.wire.messages.large_produce import (
    PARTITIONS_MAX,
    decode_parts_steps,
    encode_parts_steps,
)
from oncelog.wire.messages.produce import (
    ProducedPartition,
    ProducedTopic,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceTopic,
)
from oncelog.wire.records import Record, encode_batch

from ....awaiting import until
from ....size.connection import Connection
from ...leading_broker import LeadingBroker
from ...own_broker import OwnBroker, running

PARTITIONS = 250
CREATED = 240
TOPIC_ID = b"t".ljust(16)


def request(version: int, *, acks: int = -1, sequence: int = 0) -> bytes:
    """Return an encoded Produce request with a batch for each partition."""

    def batch(index: int) -> bytearray:
        records = [Record(0, 1_700_000_000_000, b"k", b"%d" % index)]
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        return bytearray(encode_batch(records, **fields))  # type: ignore[arg-type]

    partitions = [ProducePartition(index, batch(index)) for index in range(PARTITIONS)]
    by_id = version >= 13
    topic = ProduceTopic(None if by_id else "t", TOPIC_ID if by_id else None, partitions)
    return b"".join(produce.encode_request(ProduceRequest(None, acks, 5_000, [topic]), version))


def run(root: Path, ask: Callable[[Connection], Any]) -> Any:
    async def main() -> Any:
        async with running(root) as broker:
            await broker.create("t", CREATED)
            await until(lambda: broker.serves("t", CREATED))
            asked = await asyncio.get_running_loop().run_in_executor(None, _asked, broker, ask)
            return asked, [
                broker.replicas.partition("t", index).log.log_end_offset for index in range(CREATED)
            ]

    return asyncio.run(main())


def _asked(broker: OwnBroker, ask: Callable[[Connection], Any]) -> Any:
    connection = Connection(("127.0.0.1", broker.server.port))
    try:
        return ask(connection)
    finally:
        connection.close()


@pytest.mark.parametrize("version", [3, 9, 13])
def test_large_produces_of_a_connection_are_answered_once_and_in_order(
    tmp_path: Path, version: int
) -> None:
    def ask(connection: Connection) -> list[ProduceResponse]:
        for sequence in range(3):  # the second must not be appended before the first
            connection.send(0, version, request(version, sequence=sequence))
        return [produce.decode_response(connection.receive(0, version), version) for _ in range(3)]

    answers, ends = run(tmp_path, ask)
    for offset, answer in enumerate(answers):
        (topic,) = answer.topics
        assert [each.index for each in topic.partitions] == list(range(PARTITIONS))
        assert {(each.error_code, each.base_offset) for each in topic.partitions[:CREATED]} == {
            (0, offset)
        }
        assert {each.error_code for each in topic.partitions[CREATED:]} == {3}
    assert ends == [3] * CREATED


def test_large_produce_with_acks_zero_that_fails_closes_the_connection(tmp_path: Path) -> None:
    def ask(connection: Connection) -> None:
        connection.send(0, 9, request(9, acks=0))
        with pytest.raises(ConnectionError):
            connection.receive(0, 9)

    _, ends = run(tmp_path, ask)
    assert ends == [1] * CREATED


def test_large_produce_that_is_truncated_appends_no_batch(tmp_path: Path) -> None:
    def ask(connection: Connection) -> None:
        connection.send(0, 9, request(9)[:-3])
        with pytest.raises(ConnectionError):
            connection.receive(0, 9)

    _, ends = run(tmp_path, ask)
    assert ends == [0] * CREATED


@pytest.mark.in_turn
@pytest.mark.parametrize("acks", [-1, 0, 5])
@pytest.mark.parametrize("transactional_id", [None, "x"])
def test_large_produce_with_an_error_of_the_request_fails_all_its_parts(
    tmp_path: Path, acks: int, transactional_id: str | None
) -> None:
    def batch(index: int) -> bytearray:
        """Return a plain batch, or for the last ten partitions a batch of producer 7 or 8."""
        fields: dict[str, Any] = {"producer_epoch": 0, "base_sequence": 0}
        if index >= CREATED - 10:
            fields |= {"transactional": True, "producer_id": 7 + index % 2}
        return bytearray(encode_batch([Record(0, 1_700_000_000_000, b"k", b"v")], **fields))

    partitions = [ProducePartition(index, batch(index)) for index in range(CREATED)]
    asked = ProduceRequest(transactional_id, acks, 5_000, [ProduceTopic("t", None, partitions)])

    def ask(connection: Connection) -> set[int]:
        connection.send(0, 9, b"".join(produce.encode_request(asked, 9)))
        if acks == 0:
            with pytest.raises(ConnectionError):
                connection.receive(0, 9)
            return set()
        (topic,) = produce.decode_response(connection.receive(0, 9), 9).topics
        assert [each.index for each in topic.partitions] == list(range(CREATED))
        return {each.error_code for each in topic.partitions}

    errors, ends = run(tmp_path, ask)
    assert ends == [0] * CREATED
    if acks == 5:
        assert errors == {ErrorCode.INVALID_REQUIRED_ACKS}
    elif acks == -1:
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert errors == {ErrorCode.INVALID_PRODUCER_ID_MAPPING if transactional_id else refused}


async def test_large_produce_of_a_closed_connection_is_not_appended(tmp_path: Path) -> None:
    context = LeadingBroker(tmp_path).connect()
    large = LargeProduce(context, memoryview(request(9)), 9)
    parts = asyncio.ensure_future(large.parts())
    await asyncio.sleep(0)
    large.pending.abandon()
    assert await parts == []


async def test_large_produce_of_a_closed_connection_is_not_decoded(tmp_path: Path) -> None:
    body = memoryview(b"\0\0\1 malformed")  # no id, acks=1
    large = LargeProduce(LeadingBroker(tmp_path).connect(), body, 9)
    large.pending.abandon()
    assert await large.parts() == []
    assert large.pending.is_abandoned and large.pending.close_reason is None


@pytest.mark.parametrize("turns", [1, 2, 3, 4])
async def test_large_produce_of_a_closed_connection_is_freed(tmp_path: Path, turns: int) -> None:
    """Brokers run no full garbage collection, so a cycle would keep up to 100 MB."""
    context = LeadingBroker(tmp_path).connect()
    context.broker.work = SlicedWork(clock=count(0.0, 0.0015).__next__)  # two steps in a turn
    body = bytearray(request(9))
    gc.disable()
    try:
        large = LargeProduce(context, memoryview(body), 9)
        parts = asyncio.ensure_future(large.parts())
        for _ in range(turns):
            await asyncio.sleep(0)
        large.pending.abandon()
        assert await parts == []
        del large, parts
        await asyncio.sleep(0)
        body.append(0)  # raises BufferError while a view of the body exists
    finally:
        gc.enable()


@pytest.mark.parametrize("version", [3, 9, 13])
def test_large_produce_decoded_in_parts_equals_the_request(version: int) -> None:
    body = memoryview(request(version))
    parts = run_to_end(decode_parts_steps(body, version))
    (topic,) = produce.decode_request(body, version).topics
    found = [each for part in parts for each in part.topics[0].partitions]
    assert found == topic.partitions
    assert max(len(part.topics[0].partitions) for part in parts) == PARTITIONS_MAX
    assert {(part.topics[0].name, part.topics[0].topic_id) for part in parts} == {
        (topic.name, topic.topic_id)
    }


def test_large_produce_answers_of_its_parts_are_merged() -> None:
    leader = (4, 2)
    parts = [
        ProduceResponse(
            [ProducedTopic("t", None, [ProducedPartition(n, 6, current_leader=leader)])],
            node_endpoints=[(4, "h", 9092, None)],
        )
        for n in range(3)
    ]
    body = b"".join(run_to_end(encode_parts_steps(parts, 10)))
    whole = produce.decode_response(memoryview(body), 10)
    assert [each.index for each in whole.topics[0].partitions] == [0, 1, 2]
    assert list(whole.node_endpoints) == [(4, "h", 9092, None)]
