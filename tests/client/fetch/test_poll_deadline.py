"""Test that a poll ends at its deadline, even if the cluster does not answer."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from oncelog.client import Consumer
from oncelog.client.cluster_view import ClusterView
from oncelog.client.fetch import positions as positions_module
from oncelog.client.fetch.positions import Positions
from oncelog.client.fetch.state import FetchState
from oncelog.client.long_work import LongWork
from oncelog.client.retries import now_ms
from oncelog.client.settings import consumer_settings
from oncelog.wire.errors import NetworkException
from oncelog.wire.identifiers import TopicPartition

NOWHERE = "127.0.0.1:1"
API_TIMEOUT_MS, SOON_S = 60_000, 30.0  # a busy machine is slow, but not that slow


async def test_poll_without_a_broker_ends_at_its_deadline() -> None:
    async with Consumer(NOWHERE, default_api_timeout_ms=API_TIMEOUT_MS) as consumer:
        consumer.assign([("t", 0)])
        for _ in range(2):
            begun = time.monotonic()
            assert await consumer.poll(300) == []
            assert 0.25 < time.monotonic() - begun < SOON_S
    async with Consumer(NOWHERE, default_api_timeout_ms=700) as consumer:
        consumer.assign([("t", 0)])
        with pytest.raises(NetworkException):  # default.api.timeout.ms spans several polls
            while True:
                await consumer.poll(300)


async def test_member_poll_and_close_without_a_broker_end_at_their_deadlines() -> None:
    consumer = Consumer(NOWHERE, group_id="g", default_api_timeout_ms=API_TIMEOUT_MS)
    consumer.subscribe(["t"])
    for _ in range(2):
        begun = time.monotonic()
        assert await consumer.poll(300) == []
        assert 0.25 < time.monotonic() - begun < SOON_S
    begun = time.monotonic()
    await consumer.close()
    assert time.monotonic() - begun < SOON_S


async def test_consumer_position_set_by_the_application_during_an_offset_lookup_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = asyncio.Event()

    async def slow(
        view: Any, wanted: Mapping[TopicPartition, int], **_: Any
    ) -> dict[TopicPartition, int]:
        await answered.wait()
        return dict.fromkeys(wanted, 7)

    monkeypatch.setattr(positions_module, "list_offsets", slow)
    settings = consumer_settings({"bootstrap.servers": NOWHERE}, {})
    positions = Positions(ClusterView(NOWHERE), settings, None)
    keys: Iterable[TopicPartition] = [("t", 0), ("t", 1), ("t", 2)]
    positions.states = {key: FetchState(*key, -1) for key in keys}
    finding = LongWork()
    assert not await finding.until(now_ms(), positions.find)
    positions.of("t", 1).seek(42)
    positions.states[("t", 2)] = FetchState("t", 2, -1)  # assigned again
    answered.set()
    assert await finding.until(now_ms() + 10_000, positions.find)
    assert [positions.of(*key).position for key in keys] == [7, 42, -1]
    assert positions.unknown == [("t", 2)]
