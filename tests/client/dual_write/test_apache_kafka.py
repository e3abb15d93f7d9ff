"""Test dual writes on Apache Kafka with two-phase commit, and their refusal without it."""

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

from .job import POINTS, Job, begin
from .ledger import assert_equal, sqlite_ledger

pytestmark = pytest.mark.kafka


async def sweep(bootstrap: str, resolver: DatabaseResolver) -> int:
    async with Admin(bootstrap) as admin:
        found = await CheckBack(admin.view, resolver, older_than_ms=0).sweep()
    await resolver.close()
    return len(found)


@pytest.mark.xdist_group("our client")
def test_dual_writer_on_apache_kafka_keeps_rows_and_events_equal_after_kills_and_check_backs(
    kafka_that_prepares: str, tmp_path: Path
) -> None:
    file, bootstrap = tmp_path / "ledger", kafka_that_prepares
    ledger = sqlite_ledger(file).create()
    with BlockingAdmin(bootstrap) as admin:
        admin.create_topic("transfers", partitions=2)
    for at, point in enumerate(POINTS):
        job = Job(bootstrap, "transfers", str(file), str(tmp_path), 10 * at, 2, point, at=1)
        begin(job).communicate(timeout=120)
        assert job.mark.exists()
    assert asyncio.run(sweep(bootstrap, DatabaseResolver(ledger.connect))) <= 1
    assert_equal(bootstrap, "transfers", ledger)
    with BlockingDualWriter(bootstrap, "transfers", ledger.connect) as writer:
        with pytest.raises(CheckedBackError), writer.transaction() as work:
            work.send("transfers", b"100").result(timeout_s=20)
            work.connection.rollback()  # sqlite's lock, which the check-back needs
            assert asyncio.run(sweep(bootstrap, DatabaseResolver(ledger.connect))) == 1
            work.connection.execute("BEGIN IMMEDIATE")
            work.connection.execute("SAVEPOINT oncelog_block")
        with writer.transaction() as work:
            work.execute(ledger.insert, (101, 5))
            work.send("transfers", b"101")
    assert_equal(bootstrap, "transfers", ledger)


@pytest.mark.xdist_group("kafka as it comes")
def test_dual_writer_on_kafka_without_two_phase_commit_names_the_missing_setting(
    kafka_as_it_comes: str, tmp_path: Path
) -> None:
    ledger = sqlite_ledger(tmp_path / "ledger").create()
    writer = BlockingDualWriter(kafka_as_it_comes, "transfers", ledger.connect)
    with pytest.raises(KafkaError, match=r"transaction\.two\.phase\.commit\.enable=true"):
        writer.start()
