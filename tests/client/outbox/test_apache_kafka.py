"""The outbox on an Apache Kafka as it comes: no two-phase commit, a broker of one."""

from pathlib import Path

import pytest

from oncelog.client import BlockingAdmin, BlockingOutboxWriter

from ...interop.kafka_peer import KafkaPeer, is_enabled
from ..dual_write.ledger import sqlite_ledger
from .test_outbox import events, relayed, transfer

pytestmark = pytest.mark.kafka


async def test_rows_become_records_once(tmp_path: Path) -> None:
    if not is_enabled():
        pytest.skip("ONCELOG_KAFKA is not 1")
    ledger = sqlite_ledger(tmp_path / "ledger").create()
    with KafkaPeer(tmp_path / "kafka") as kafka:
        with BlockingAdmin(kafka.bootstrap) as admin:
            admin.create_topic("transfers", partitions=2)
        with BlockingOutboxWriter("bank", ledger.connect) as writer:
            for number in range(5):
                transfer(writer, ledger, "transfers", number)
            assert await relayed(kafka.bootstrap, ledger, "transfers") == 0, "another outbox"
            assert await relayed(kafka.bootstrap, ledger, "bank", batch_rows_max=2) == 5
            assert await relayed(kafka.bootstrap, ledger, "bank") == 0
        assert sorted(await events(kafka.bootstrap, "transfers")) == ledger.rows()
