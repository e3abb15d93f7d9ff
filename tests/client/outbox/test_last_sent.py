"""Test that a relay start reads only the end of its topic, however long the topic is."""

import json
from pathlib import Path
from typing import Any

import pytest

from oncelog.client import Consumer, OutboxRelay, Producer
from oncelog.client.outbox import relay as relay_module
from oncelog.client.outbox.relay import KEY

from ..dual_write.ledger import sqlite_ledger

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("dual_write")]
COUNT = 6_000


class Counting(Consumer):
    count = 0

    async def poll(self, *arguments: Any, **options: Any) -> Any:
        records = await super().poll(*arguments, **options)
        Counting.count += len(records)
        return records


async def write(producer: Producer, relay: OutboxRelay, batches: range) -> None:
    await producer.begin_transaction()
    for batch in batches:
        await producer.send(relay.topic, json.dumps({"batch": batch}).encode(), key=KEY)


async def test_outbox_relay_finds_its_last_batch_without_reading_the_whole_topic(
    bootstrap: str, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The active segment is not compacted, and may grow by a million records a day."""
    relay = OutboxRelay(bootstrap, topic, sqlite_ledger(tmp_path / "bank").connect)
    monkeypatch.setattr(relay_module, "Consumer", Counting)
    Counting.count = 0
    try:
        await relay.start()
        assert relay._sent == 0
        assert Counting.count == 0, "an older relay takes each record for a batch"
        async with Producer(bootstrap, transactional_id=topic) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send(relay.topic, b'{"generation": 1}', key=b"start")
            await producer.commit_transaction()
            assert await relay._last_sent() == 0, "a start that was committed is no batch"
            await write(producer, relay, range(1, COUNT + 1))
            await producer.commit_transaction()
            assert await relay._last_sent() == COUNT
            assert 0 < Counting.count < COUNT / 2
            await write(producer, relay, range(COUNT + 1, 2 * COUNT))
            await producer.flush()
            await producer.abort_transaction()
            assert await relay._last_sent() == COUNT, "after many that were aborted"
    finally:
        await relay.close()
