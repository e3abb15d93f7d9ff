"""Test that batches sent after a refused batch get the same error, until it is sent again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from oncelog.coordinator.metadata.topic_names import NAME_CHARS_MAX
from oncelog.node.listener.dispatch import RequestContext
from oncelog.node.partitions import refused_batches
from oncelog.node.partitions.refused_batches import HELD_MS, RefusedBatches
from oncelog.wire.errors import ErrorCode, UnknownTopicOrPartition
from oncelog.wire.record_batch import decode_header

from ...present import present
from ..leading_broker import LeadingBroker, plain

E = ErrorCode
NER, OUT_OF_ORDER = E.NOT_ENOUGH_REPLICAS, E.OUT_OF_ORDER_SEQUENCE_NUMBER


class Broker(LeadingBroker):
    """A leader of two replicas. The test lets the follower leave and join the ISR."""

    def isr_is(self, *members: int) -> None:
        leader = present(self.partition().leader)
        now_ms, epoch = self.clock.monotonic_ms(), leader.partition_epoch + 1
        leader.metadata_applied(isr=members, partition_epoch=epoch, now_ms=now_ms)

    def go_on_ms(self, ms: int) -> None:
        """Advance the broker's clock by `ms` milliseconds."""
        real = self.clock.monotonic_ms
        self.replicas.clock.monotonic_ms = lambda: real() + ms  # type: ignore[method-assign]

    async def error_of(self, connection: RequestContext, sequence: int, epoch: int = 0) -> int:
        """Produce a batch, and return its error code, or -1 while it waits for the follower."""
        answer = self.put(plain(sequence, epoch=epoch), connection=connection)
        return (await answer.errors())[0] if answer.is_there else -1

    async def errors_of(self, connection: RequestContext, *sequences: int) -> list[int]:
        return [await self.error_of(connection, sequence) for sequence in sequences]

    async def connect_with_a_batch(self) -> RequestContext:
        """Return the connection of a producer that has already sent a batch with sequence 0."""
        connection = self.connect()
        assert await self.error_of(connection, 0) == -1
        return connection

    async def refuse(self, connection: RequestContext, sequence: int) -> None:
        """Let a batch be refused, because the follower is not in the ISR."""
        self.isr_is(1)
        assert await self.error_of(connection, sequence) == NER
        self.isr_is(1, 2)


@pytest.fixture
@asynccontextmanager
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    yield Broker(tmp_path, replicas=(1, 2), min_insync_replicas=2)


@pytest.mark.parametrize("known", [True, False])
async def test_batches_sent_after_a_refused_batch_are_refused_until_the_first_is_resent(
    broker: Broker, known: bool
) -> None:
    """Apache Kafka answers OUT_OF_ORDER_SEQUENCE_NUMBER, or appends an unknown producer's batch."""
    connection, first = broker.connect(), 0
    if known:
        connection, first = await broker.connect_with_a_batch(), 1
    await broker.refuse(connection, first)
    assert await broker.errors_of(connection, first + 1, first + 2) == [NER] * 2
    assert await broker.errors_of(connection, first, first + 1, first + 2) == [-1] * 3
    assert await broker.error_of(connection, first + 4) == OUT_OF_ORDER, "nothing was refused here"


async def test_batch_after_a_batch_refused_without_a_leader_is_refused(broker: Broker) -> None:
    connection = await broker.connect_with_a_batch()
    broker.resign()
    assert await broker.error_of(connection, 1) == E.NOT_LEADER_OR_FOLLOWER
    broker.make_leader(broker.partition(), broker.record)
    assert await broker.errors_of(connection, 2, 1) == [E.NOT_LEADER_OR_FOLLOWER, -1]


async def test_batch_after_a_refused_batch_is_accepted_once_another_connection_appended_that_batch(
    broker: Broker,
) -> None:
    """The producer has retried the refused batch on another connection."""
    connection, other = await broker.connect_with_a_batch(), broker.connect()
    await broker.refuse(connection, 1)
    assert await broker.errors_of(other, 2, 1) == [OUT_OF_ORDER, -1], (
        "the refusal counts only for its connection"
    )
    assert await broker.error_of(connection, 2) == -1


async def test_producer_that_abandons_a_refused_batch_is_accepted_with_a_new_epoch(
    broker: Broker,
) -> None:
    """After HELD_MS a gap is OUT_OF_ORDER_SEQUENCE_NUMBER again, and a new epoch is accepted."""
    connection = await broker.connect_with_a_batch()
    await broker.refuse(connection, 1)
    broker.go_on_ms(HELD_MS + 1)
    assert await broker.error_of(connection, 2) == OUT_OF_ORDER
    assert await broker.error_of(connection, 0, epoch=1) == -1


async def test_batch_refused_again_is_remembered_for_the_full_time_again(broker: Broker) -> None:
    """A partition may be without a leader for longer than HELD_MS."""
    connection, hosted = await broker.connect_with_a_batch(), broker.partition()
    broker.replicas.remove(hosted)
    assert await broker.error_of(connection, 1) == E.NOT_LEADER_OR_FOLLOWER
    broker.go_on_ms(HELD_MS + 1)
    assert await broker.error_of(connection, 1) == E.NOT_LEADER_OR_FOLLOWER
    broker.replicas.add(hosted)
    assert await broker.errors_of(connection, 2, 1) == [E.NOT_LEADER_OR_FOLLOWER, -1]


@pytest.mark.parametrize("known", [True, False])
async def test_batch_with_a_new_epoch_is_refused_like_its_refused_predecessor(
    broker: Broker, known: bool
) -> None:
    """If the batch with the new epoch were appended, the refused batch would be lost."""
    connection, hosted = broker.connect(), broker.partition()
    if known:
        assert await broker.error_of(connection, 0) == -1
    broker.replicas.remove(hosted)
    assert await broker.error_of(connection, 1) == E.NOT_LEADER_OR_FOLLOWER
    assert await broker.error_of(connection, 0, epoch=1) == E.NOT_LEADER_OR_FOLLOWER
    broker.replicas.add(hosted)
    assert await broker.error_of(connection, 1, epoch=1) == E.NOT_LEADER_OR_FOLLOWER
    assert await broker.error_of(connection, 0, epoch=1) == -1
    assert await broker.error_of(connection, 1, epoch=1) == -1


async def test_batches_refused_in_any_order_are_accepted_after_the_first_is_resent(
    broker: Broker,
) -> None:
    connection, hosted = await broker.connect_with_a_batch(), broker.partition()
    broker.replicas.remove(hosted)
    assert await broker.errors_of(connection, 2, 1) == [E.NOT_LEADER_OR_FOLLOWER] * 2
    broker.replicas.add(hosted)
    assert await broker.errors_of(connection, 3, 1) == [E.NOT_LEADER_OR_FOLLOWER, -1]


async def test_fenced_producer_after_a_refused_batch_gets_the_fencing_error(
    broker: Broker,
) -> None:
    connection, successor = await broker.connect_with_a_batch(), broker.connect()
    await broker.refuse(connection, 1)
    assert await broker.error_of(successor, 0, epoch=1) == -1
    assert await broker.error_of(connection, 2) == E.INVALID_PRODUCER_EPOCH
    assert broker.services.events.counts == {("fence", "older epoch"): 1}


async def test_refused_batches_are_remembered_in_bounded_number_and_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused_batches, "BATCHES_MAX", 20)
    broker = Broker(tmp_path, replicas=(1, 2), min_insync_replicas=2)
    connection = broker.connect()
    broker.isr_is(1)
    for producer_id in range(25):
        answer = broker.put(plain(0, producer_id=producer_id), connection=connection)
        assert await answer.errors() == {0: NER}
    assert len(broker.services.refused_batches) == 20
    broker.go_on_ms(HELD_MS + 1)
    assert await broker.error_of(connection, 0) == NER
    assert len(broker.services.refused_batches) == 1


def test_refused_batches_of_invalid_topic_names_are_not_remembered() -> None:
    """An invalid topic name may have 32,767 bytes."""
    refused = RefusedBatches()
    header = decode_header(plain(0))
    for length in (NAME_CHARS_MAX + 1, NAME_CHARS_MAX):
        assert len(refused) == 0
        refused.note(1, "t" * length, 0, header, UnknownTopicOrPartition(), 0)
    assert len(refused) == 1


async def test_refused_batch_that_is_malformed_is_not_remembered(broker: Broker) -> None:
    connection = broker.connect()
    for records in (b"", b"no batch", bytes(61)):
        answer = broker.put([(5, records)], connection=connection, acks=1)
        assert await answer.errors() == {5: E.NOT_LEADER_OR_FOLLOWER}
    assert not broker.services.refused_batches
    assert await broker.error_of(connection, 1) == -1
