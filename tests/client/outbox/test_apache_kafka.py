"""Test the outbox on one broker of Apache Kafka with default settings.

The broker has no two-phase commit.
"""

from pathlib import Path

import pytest

from oncelog.client import BlockingAdmin, BlockingOutboxWriter

from ..dual_write.ledger import sqlite_ledger
from .test_outbox import events, relayed, transfer

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka as it comes")]


async def test_outbox_relay_on_apache_kafka_sends_each_row_once(
    kafka_as_it_comes: str, tmp_path: Path
) -> None:
    bootstrap = kafka_as_it_comes
    ledger = sqlite_ledger(tmp_path / "ledger").create()
    with BlockingAdmin(bootstrap) as admin:
        admin.create_topic("transfers", partitions=2)
    with BlockingOutboxWriter("bank", ledger.connect) as writer:
        for number in range(5):
            transfer(writer, ledger, "transfers", number)
        assert await relayed(bootstrap, ledger, "transfers") == 0, "another outbox"
        assert await relayed(bootstrap, ledger, "bank", batch_rows_max=2) == 5
        assert await relayed(bootstrap, ledger, "bank") == 0
    assert sorted(await events(bootstrap, "transfers")) == ledger.rows()
