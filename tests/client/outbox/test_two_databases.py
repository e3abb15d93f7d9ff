"""Test that two databases lose no row silently if their outboxes have one name by mistake."""

import contextlib
from pathlib import Path

import pytest

from oncelog.client import BlockingOutboxWriter, OutboxRelay
from oncelog.client.dual_write.flow import drive_async
from oncelog.client.outbox import table
from oncelog.wire.errors import KafkaError

from ..dual_write.ledger import sqlite_ledger
from .test_outbox import UNSENT, events, relayed, transfer

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("dual_write")]


async def test_relay_start_after_a_batch_of_another_database_is_refused(
    bootstrap: str, tmp_path: Path, topic: str
) -> None:
    one, two = (sqlite_ledger(tmp_path / each).create() for each in ("one", "two"))
    for number, ledger in enumerate((one, two)):
        with BlockingOutboxWriter(topic, ledger.connect) as writer:
            transfer(writer, ledger, topic, number)
    fenced = OutboxRelay(bootstrap, topic, two.connect)
    await fenced.start()
    given = await drive_async(fenced._run(table.next_batch(topic, fenced._generation, 1, 10)))
    assert await relayed(bootstrap, one, topic) == 1
    with contextlib.suppress(KafkaError):
        await fenced._send(given, 1)
    await fenced.close()
    with pytest.raises(table.OtherDatabase, match="another database"):
        await OutboxRelay(bootstrap, topic, two.connect).run()
    assert two.rows(UNSENT) == [1], "it would have been deleted, unsent"
    assert await events(bootstrap, topic) == [0]
