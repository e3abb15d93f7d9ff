"""Test positions after damaged data and new leaders (KIP-320), and the offsets to commit."""

import asyncio
from typing import Any

import pytest

from oncelog.client import Consumer, OffsetAndMetadata
from oncelog.client.cluster_view import BrokerNode, ClusterSnapshot, ClusterView, PartitionInfo
from oncelog.client.failures import LogTruncated, PartitionNotAssigned
from oncelog.client.fetch import fetcher as fetcher_module
from oncelog.client.fetch.epoch_queries import EpochEnd
from oncelog.client.fetch.fetcher import Fetcher
from oncelog.client.fetch.state import FetchState
from oncelog.client.settings import consumer_settings
from oncelog.wire.errors import CorruptMessage, ErrorCode, OffsetOutOfRange
from oncelog.wire.messages.fetch_answer import FetchedPartition, FetchedTopic, FetchResponse
from oncelog.wire.records import Record, encode_batch

KEY = ("t", 0)


def batch(base: int, count: int = 2, epoch: int = 0) -> bytes:
    rows = [Record(base + i, 1, None, b"%d" % (base + i)) for i in range(count)]
    return encode_batch(rows, base_offset=base, leader_epoch=epoch)


@pytest.mark.parametrize("take", ["take", "take_columns", "take_raw"])
def test_consumer_raises_at_a_damaged_batch_instead_of_skipping_it(take):
    damaged = bytearray(batch(2))
    damaged[-1] ^= 1
    state = FetchState("t", 0, 0)
    state.load(batch(0) + bytes(damaged) + batch(4), None)

    def step() -> Any:
        if take == "take":
            return state.take(10, read_committed=False)
        if take == "take_columns":
            return state.take_columns(read_committed=False)
        return state.take_raw()

    step()
    with pytest.raises(CorruptMessage):
        step()
    assert (state.position, state.fetch_offset, state.has_data) == (2, 2, False)
    state.load(batch(2) + batch(4), None)  # batch 2 was damaged in transit, and is loaded again
    step()
    assert state.position == 4


# --- another leader


def test_consumer_position_is_checked_when_the_leader_epoch_changes():
    state = FetchState("t", 0, 0)
    assert not state.needs_check(9), "nothing is known of what was before it"
    state.load(batch(0, epoch=3), None, 3)
    assert not state.needs_check(3)
    assert state.needs_check(4)
    assert not state.is_truncated(3, 2, 4)
    assert not state.needs_check(4)
    assert state.needs_check(5)
    state.seek(1, 3)
    assert state.needs_check(3), "a committed offset with its epoch"


async def test_consumer_position_is_reset_after_its_topic_was_created_again(monkeypatch):
    """The leader epochs of a new topic restart at 0.

    The Java client also checks the position at each change of the leader epoch.
    """
    peer = Peer(monkeypatch, "earliest")
    async with peer.consumer as consumer:
        consumer.assign({KEY: 0})
        assert len(await consumer.poll(1_000)) == 2
        peer.log = [batch(0, count=9, epoch=0), batch(2, count=7, epoch=0)]
        peer.lead(epoch=0)
        peer.ends = {1: EpochEnd(0, -1, -1)}
        await consumer.poll(100)
        assert peer.asked == [(1, 0)]
        assert consumer.position(*KEY) == -1, (
            "found by auto.offset.reset, not by what was committed"
        )


def test_records_fetched_ahead_are_fetched_again_after_a_truncation():
    state = FetchState("t", 0, 0)
    state.load(batch(0, epoch=1), None, 1)
    assert len(state.take(10, read_committed=False)) == 2
    state.load(batch(2, epoch=2), None, 2)
    assert not state.is_truncated(1, 5, 3), "epoch 2 is not known there"
    assert (state.fetch_offset, state.fetch_epoch, state.has_data) == (2, 1, False)
    assert state.needs_check(3)
    assert not state.is_truncated(1, 5, 3)
    assert not state.needs_check(3)


def test_log_that_lost_records_already_returned_by_a_poll_is_reported_as_truncated():
    for known_epoch, end_offset in ((2, 1), (1, 2), (1, 50), (-1, -1)):
        state = FetchState("t", 0, 0)
        state.load(batch(0, epoch=2), None, 2)
        state.take(10, read_committed=False)
        assert state.is_truncated(known_epoch, end_offset, 3)


class Peer:
    """The leader of one partition, with scripted answers."""

    def __init__(self, monkeypatch, reset: str) -> None:
        self.view = ClusterView("127.0.0.1:1")
        self.view.snapshot.brokers[1] = BrokerNode(1, "127.0.0.1", 1)
        self.lead(epoch=1)
        self.consumer = Consumer(self.view, auto_offset_reset=reset)
        self.log: list[bytes] = [batch(0, epoch=1)]
        self.ends: dict[int, EpochEnd] = {}
        self.asked: list[tuple[int, int]] = []
        monkeypatch.setattr(fetcher_module, "epoch_ends", self.epoch_ends)
        monkeypatch.setattr(Fetcher, "_fetch", self.fetch)

    def lead(self, epoch: int) -> None:
        self.view.snapshot.partitions[KEY] = PartitionInfo(
            topic="t", partition=0, leader=1, leader_epoch=epoch, replicas=(1,), isr=(1,)
        )

    async def fetch(self, leader: int, states: list[FetchState]) -> None:
        for state in states:
            for each in self.log:
                if int.from_bytes(each[:8], "big") == state.fetch_offset:
                    epoch = self.view.snapshot.partitions[KEY].leader_epoch
                    state.load(each, None, epoch)
                    return
        await asyncio.sleep(0.01)

    async def epoch_ends(self, view, leader, asked):
        (place,) = asked.values()
        self.asked.append(place)
        return {KEY: self.ends[place[0]]}


@pytest.mark.parametrize(
    ("end", "position"),
    [(EpochEnd(0, 1, 1), 1), (EpochEnd(0, 0, 50), 2), (EpochEnd(0, 1, 2), 2)],
)
async def test_consumer_of_a_truncated_log_continues_where_the_logs_diverge(
    monkeypatch, end, position
):
    peer = Peer(monkeypatch, "earliest")
    async with peer.consumer as consumer:
        consumer.assign({KEY: 0})
        assert len(await consumer.poll(1_000)) == 2
        assert consumer._positions.given_out() == {KEY: OffsetAndMetadata(2, leader_epoch=1)}
        peer.lead(epoch=3)
        peer.ends = {1: end, 0: EpochEnd(0, 0, 99)}
        assert await consumer.poll(100) == []
        assert (1, 3) in peer.asked
        assert consumer.position(*KEY) == position
        peer.log = [batch(position, epoch=3)]
        rows = await consumer.poll(1_000)
        assert [r.offset for r in rows] == [position, position + 1]


async def test_truncation_without_a_reset_raises_in_every_poll_until_a_seek(monkeypatch):
    peer = Peer(monkeypatch, "none")
    async with peer.consumer as consumer:
        consumer.assign({KEY: 0})
        await consumer.poll(1_000)
        peer.lead(epoch=3)
        peer.ends = {1: EpochEnd(0, 1, 1)}
        for _ in range(2):
            with pytest.raises(LogTruncated, match=r"read up to offset 2 .* up to 1") as caught:
                await consumer.poll(5_000)
            assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        peer.log = [batch(1, epoch=3)]
        consumer.seek(*KEY, 1)
        assert [r.offset for r in await consumer.poll(1_000)] == [1, 2]


def test_metadata_of_a_lagging_broker_does_not_restore_an_old_leader():
    def snapshot(epoch: int, topic_id: bytes | None) -> ClusterSnapshot:
        made = ClusterSnapshot()
        made.partitions[KEY] = PartitionInfo(
            topic="t", partition=0, leader=epoch, leader_epoch=epoch, replicas=(1,), isr=(1,)
        )
        if topic_id is not None:
            made.topic_ids["t"] = topic_id
        return made

    for theirs, expected in ((b"a", 5), (b"b", 4), (None, 4)):
        late = snapshot(4, theirs)
        late.keep_newer(snapshot(5, b"a"))
        assert late.partitions[KEY].leader_epoch == expected
    newer = snapshot(6, b"a")
    newer.keep_newer(snapshot(5, b"a"))
    assert newer.partitions[KEY].leader_epoch == 6


async def test_late_answer_about_the_previous_position_does_not_undo_a_seek(monkeypatch):
    peer = Peer(monkeypatch, "latest")
    async with peer.consumer as consumer:
        for late in ("out_of_range", "truncated"):
            consumer.assign({KEY: 50})
            state = consumer._positions.of(*KEY)
            if late == "out_of_range":
                consumer._fetcher._take(beyond_the_end(), {KEY: (state, 50, 1)})
            else:
                consumer._fetcher.truncated.append((state, 50, EpochEnd(0, 1, 0)))
            consumer.seek(*KEY, 1)
            await consumer.poll(0)
            assert consumer.position(*KEY) == 1


@pytest.mark.parametrize("begins_at, words", [(7, "; it begins at 7"), (-1, "")])
async def test_out_of_range_error_names_the_log_start_only_if_it_is_known(
    monkeypatch, begins_at, words
):
    peer = Peer(monkeypatch, "none")
    async with peer.consumer as consumer:
        consumer.assign({KEY: 50})
        state = consumer._positions.of(*KEY)
        consumer._fetcher._take(beyond_the_end(begins_at), {KEY: (state, 50, 1)})
        with pytest.raises(OffsetOutOfRange) as caught:
            await consumer.poll(0)
    assert str(caught.value) == f"t/0 has no offset 50{words}"


def beyond_the_end(log_start_offset: int = -1) -> FetchResponse:
    error = int(ErrorCode.OFFSET_OUT_OF_RANGE)
    partition = FetchedPartition(0, error_code=error, log_start_offset=log_start_offset)
    return FetchResponse(topics=[FetchedTopic("t", None, [partition])])


async def test_deleted_partition_is_left_out_of_offset_for_leader_epoch_requests(monkeypatch):
    peer = Peer(monkeypatch, "none")
    state = FetchState("t", 0, 0)
    state.load(batch(0, epoch=1), None, 1)
    del peer.view.snapshot.partitions[KEY]
    fetcher = Fetcher(peer.view, consumer_settings({"bootstrap.servers": "x:1"}, {}))
    await fetcher._check(1, [state])
    assert peer.asked == []


# --- bounds


async def test_fetcher_with_enough_buffered_data_stops_fetching(monkeypatch):
    settings = consumer_settings({"bootstrap.servers": "x:1"}, {"fetch_max_bytes": 500})
    peer = Peer(monkeypatch, "none")
    fetcher = Fetcher(peer.view, settings)
    full, other = FetchState("t", 1, 0), FetchState("t", 0, 0)
    full.load(batch(0, 200), None)
    assert full.buffered_bytes > 1_000
    fetcher.start([full, other])
    assert not fetcher._tasks
    full.is_paused = True  # partitions that are not fetched do not count
    fetcher.start([full, other])
    assert fetcher._tasks
    await fetcher.close()


# --- offsets to commit


async def test_records_returned_by_the_last_poll_are_auto_committed_only_after_the_next_poll(
    monkeypatch,
):
    peer = Peer(monkeypatch, "none")
    async with peer.consumer as consumer:
        consumer.assign({KEY: 0})
        await consumer.poll(1_000)
        positions = consumer._positions
        assert positions.settled() == {KEY: OffsetAndMetadata(0)}
        assert positions.given_out() == {KEY: OffsetAndMetadata(2, leader_epoch=1)}
        await consumer.poll(20)
        assert positions.settled() == {KEY: OffsetAndMetadata(2, leader_epoch=1)}
        consumer.seek(*KEY, 1)
        assert positions.settled() == {KEY: OffsetAndMetadata(1)}


def test_consumer_call_about_an_unassigned_partition_is_refused():
    consumer = Consumer("127.0.0.1:1")
    for call in (consumer.position, lambda topic, partition: consumer.seek(topic, partition, 0)):
        with pytest.raises(PartitionNotAssigned, match="t/0 is not assigned"):
            call(*KEY)
    with pytest.raises(PartitionNotAssigned):
        consumer.pause(KEY)
