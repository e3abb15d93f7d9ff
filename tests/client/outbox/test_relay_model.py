"""Test in a model with random failures that relays send each row as one record.

The model must also find a difference when a part of the relay is removed. Otherwise it would prove
nothing. The order of claim and InitProducerId changes the result too rarely for the model, so
test_two_starts.py tests this order.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from oncelog.client.dual_write.decision_table import Script, SqlEnding, Statement
from oncelog.client.dual_write.flow import drive_async
from oncelog.client.outbox import relay, table
from oncelog.client.outbox.table import Row

from .relay_model import ModelRelay, run

SEEDS = int(os.environ.get("ONCELOG_OUTBOX_SEEDS", "100"))


@pytest.mark.in_turn
def test_outbox_model_with_random_faults_sends_each_row_once(tmp_path: Path) -> None:
    rows = 0
    for seed in range(SEEDS):
        verdict = run(seed, tmp_path)
        assert verdict[:3] == (0, 0, 0) and verdict.left == 0, f"seed {seed}: {verdict}"
        rows += verdict.rows
    assert rows > 20 * SEEDS


class WithoutTheNumberInItsTransaction(ModelRelay):
    async def _send(self, rows: list[Row], batch: int) -> None:
        producer: Any = self._producer
        send = producer.send

        async def send_apart(topic: str, *arguments: Any, **keywords: Any) -> None:
            if topic == self.topic:
                await producer.commit_transaction()
            await send(topic, *arguments, **keywords)

        producer.send = send_apart
        await super()._send(rows, batch)
        producer.send = send


class ReadsBeforeItInitializes(ModelRelay):
    """A relay that reads the last batch before InitProducerId ends older transactions."""

    async def _mark_start(self) -> int:
        async with relay.Admin(self._source) as admin:
            known: Any = admin
            return known._world.kafka.end[self.topic]

    async def _start(self, latest: int | None) -> None:
        await self.close()
        await drive_async(self._open())
        await drive_async(self._run(table.create_tables()))
        await self._create_topic()
        claim = table.claim(self.name, latest)
        self._generation, self._origin = await drive_async(self._run(claim))
        self._sent = await self._last_sent()
        self._producer = relay.Producer(self._source, transactional_id=self.topic)
        await self._producer.init_transactions()
        await drive_async(self._run(table.take_back(self.name, self._generation, self._sent)))
        await drive_async(self._run(table.delete_sent(self.name, self._sent)))


class AsksForTheEnd(ModelRelay):
    """A relay that reads up to the end offset of ListOffsets, even from a deposed leader."""

    async def _mark_start(self) -> int:
        async with relay.Admin(self._source) as admin:
            return (await admin.list_offsets({(self.topic, 0): -1}))[self.topic, 0]


class DeletesBeforeItSends(ModelRelay):
    async def _send(self, rows: list[Row], batch: int) -> None:
        await drive_async(self._run(table.delete_batch(self.name, batch, rows)))
        await super()._send(rows, batch)


class TakesTheNextBatchForSent(ModelRelay):
    """A relay that counts the batch after the last sent one as sent, though it may be aborted."""

    async def _last_sent(self) -> int:
        last = await super()._last_sent()
        return last + 1 if last else 0


def hold_no_office(outbox: str, generation: int, batch: int) -> Script[None]:
    yield from ()


def take_back_from_anyone(outbox: str, generation: int, batch: int) -> Script[None]:
    yield Statement(
        f"UPDATE {table.TABLE} SET batch = NULL WHERE outbox = ? AND batch > ?", (outbox, batch)
    )
    yield SqlEnding.COMMIT


def is_missed(tmp_path: Path, kind: type[ModelRelay], first: int = 0) -> bool:
    """Return whether one of the seeds from `first` on loses or repeats a row."""
    for seed in range(first, first + 10 * SEEDS):
        verdict = run(seed, tmp_path, kind)
        if verdict.lost or verdict.doubled:
            return True
    return False


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        (WithoutTheNumberInItsTransaction, 0),
        (AsksForTheEnd, 0),
        (ReadsBeforeItInitializes, 100),
        (DeletesBeforeItSends, 0),
        (TakesTheNextBatchForSent, 0),
    ],
)
def test_outbox_model_without_a_safeguard_loses_or_repeats_a_row(
    tmp_path: Path, kind: type[ModelRelay], first: int
) -> None:
    assert is_missed(tmp_path, kind, first)


@pytest.mark.parametrize(
    ("part", "without", "first"),
    [("_hold_office", hold_no_office, 20), ("take_back", take_back_from_anyone, 25)],
)
def test_outbox_model_without_a_database_fence_loses_or_repeats_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, without: Any, first: int
) -> None:
    monkeypatch.setattr(table, part, without)
    assert is_missed(tmp_path, ModelRelay, first)
