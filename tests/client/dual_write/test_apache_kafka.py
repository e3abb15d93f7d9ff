"""The same on an Apache Kafka with two-phase commit switched on, and what others answer."""

import asyncio
from pathlib import Path

import pytest

from oncelog.client import (
    Admin,
    BlockingAdmin,
    BlockingDualWriter,
    CheckBack,
    DatabaseResolver,
)
from oncelog.client.dual_write.stop_words import CheckedBackError
from oncelog.wire.errors import KafkaError

from ...interop.client_peers import PREPARES
from ...interop.kafka_peer import KafkaPeer
from .job import POINTS, Job, begin
from .ledger import assert_equal, sqlite_ledger

pytestmark = pytest.mark.kafka


async def sweep(bootstrap: str, resolver: DatabaseResolver) -> int:
    async with Admin(bootstrap) as admin:
        found = await CheckBack(admin.view, resolver, older_than_ms=0).sweep()
    await resolver.close()
    return len(found)


def test_services_die_and_blocks_are_checked_back(tmp_path: Path) -> None:
    file = tmp_path / "ledger"
    ledger = sqlite_ledger(file).create()
    with KafkaPeer(tmp_path / "kafka", settings=PREPARES) as kafka:
        with BlockingAdmin(kafka.bootstrap) as admin:
            admin.create_topic("transfers", partitions=2)
        for at, point in enumerate(POINTS):
            job = Job(
                kafka.bootstrap, "transfers", str(file), str(tmp_path), 10 * at, 2, point, at=1
            )
            begin(job).communicate(timeout=120)
            assert job.mark.exists()
        assert asyncio.run(sweep(kafka.bootstrap, DatabaseResolver(ledger.connect))) <= 1
        assert_equal(kafka.bootstrap, "transfers", ledger)
        with BlockingDualWriter(kafka.bootstrap, "transfers", ledger.connect) as writer:
            with pytest.raises(CheckedBackError), writer.transaction() as work:
                work.send("transfers", b"100").result(timeout_s=20)
                work.connection.rollback()  # sqlite's lock, which the check-back needs
                assert asyncio.run(sweep(kafka.bootstrap, DatabaseResolver(ledger.connect))) == 1
                work.connection.execute("BEGIN IMMEDIATE")
                work.connection.execute("SAVEPOINT oncelog_block")
            with writer.transaction() as work:
                work.execute(ledger.insert, (101, 5))
                work.send("transfers", b"101")
        assert_equal(kafka.bootstrap, "transfers", ledger)


def test_without_two_phase_commit_it_says_what_is_missing(tmp_path: Path) -> None:
    ledger = sqlite_ledger(tmp_path / "ledger").create()
    with KafkaPeer(tmp_path / "kafka") as kafka:
        writer = BlockingDualWriter(kafka.bootstrap, "transfers", ledger.connect)
        with pytest.raises(KafkaError, match=r"transaction\.two\.phase\.commit\.enable=true"):
            writer.start()
