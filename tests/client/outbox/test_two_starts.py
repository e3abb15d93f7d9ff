"""Test that no row is lost or sent twice if two relays of a name start at the same moment."""

import contextlib
from pathlib import Path

import pytest

from oncelog.client import BlockingOutboxWriter, OutboxRelay
from oncelog.client.dual_write.flow import drive_async
from oncelog.client.outbox import table
from oncelog.client.producer import Producer
from oncelog.wire.errors import KafkaError

from ..dual_write.ledger import Ledger, sqlite_ledger
from .test_outbox import events, relayed, transfer

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("dual_write")]


class Overtaken(OutboxRelay):
    """A relay that, at a given step of its start, lets another relay start and number rows."""

    behind = ""
    other: OutboxRelay
    given: list[table.Row]

    async def _last_sent(self) -> int:
        last = await super()._last_sent()
        await self.meet("last_sent")
        return last

    async def meet(self, step: str) -> None:
        if step == self.behind:
            await self.other.start()
            script = table.next_batch(self.name, self.other._generation, 1, 10)
            self.given = await drive_async(self.other._run(script))


async def settle(
    relay: Overtaken, bootstrap: str, topic: str, ledger: Ledger, writer: BlockingOutboxWriter
) -> list[int]:
    """Let both relays continue, let a third one send the remaining rows, and return the events."""
    relay.other = OutboxRelay(bootstrap, topic, ledger.connect)
    is_started = False
    with contextlib.suppress(KafkaError):
        await relay.start()
        is_started = True
    transfer(writer, ledger, topic, 2)
    await relay.other._send(relay.given, 1)
    if is_started:
        with contextlib.suppress(KafkaError):
            await relay.send_batch()
    await relay.close()
    await relay.other.close()
    await relayed(bootstrap, ledger, topic)
    return sorted(await events(bootstrap, topic))


async def test_relay_superseded_before_numbering_rows_sends_no_row_twice(
    bootstrap: str, tmp_path: Path, topic: str
) -> None:
    """The successor is sending these rows, so the older relay must not send them."""
    ledger = sqlite_ledger(tmp_path / "bank").create()
    with BlockingOutboxWriter(topic, ledger.connect) as writer:
        transfer(writer, ledger, topic, 1)
        relay = Overtaken(bootstrap, topic, ledger.connect)
        relay.behind = "last_sent"
        assert await settle(relay, bootstrap, topic, ledger, writer) == [1, 2]


async def test_relay_superseded_during_its_start_numbers_no_row_of_its_successor(
    bootstrap: str, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of a batch that the successor is sending would be lost if the older relay renumbered
    it.
    """
    ledger = sqlite_ledger(tmp_path / "bank").create()
    initialize = Producer.init_transactions
    with BlockingOutboxWriter(topic, ledger.connect) as writer:
        transfer(writer, ledger, topic, 1)
        relay = Overtaken(bootstrap, topic, ledger.connect)
        relay.behind = "init"

        async def init_transactions(producer: Producer, **options: bool) -> None:
            await initialize(producer, **options)
            if producer is relay._producer:
                await relay.meet("init")

        monkeypatch.setattr(Producer, "init_transactions", init_transactions)
        assert await settle(relay, bootstrap, topic, ledger, writer) == [1, 2]
