"""Test that each outbox row becomes one record, regardless of the order of commits."""

import asyncio
from array import array
from pathlib import Path
from typing import Any

import pytest

from oncelog.client import Admin, BlockingOutboxWriter, OutboxRelay, OutboxWriter
from oncelog.client.dual_write.flow import drive_async
from oncelog.client.dual_write.stop_words import BlockNotWhole, WriterSuperseded
from oncelog.client.failures import IllegalProducerState
from oncelog.client.outbox import records, table
from oncelog.client.outbox.table import RelaySuperseded
from oncelog.wire.errors import InvalidPartitions, InvalidTimestamp, KafkaError

from ...interop.client_peers import read_to_end
from ..dual_write.ledger import Ledger, sqlite_ledger
from ..dual_write.postgresql import PostgresServer

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("dual_write")]
UNSENT = "SELECT count(*) FROM oncelog_outbox"


def transfer(writer: BlockingOutboxWriter, ledger: Ledger, topic: str, number: int) -> None:
    with writer.transaction() as work:
        work.execute(ledger.insert, (number, 5))
        work.send(topic, b"%d" % number)


async def events(bootstrap: str, topic: str) -> list[int]:
    return [int(r.value or b"") for r in await read_to_end(bootstrap, topic)]


async def relayed(bootstrap: str, ledger: Ledger, topic: str, **more: Any) -> int:
    """Run one relay until no row is left, and return the number of rows sent."""
    relay, sent = OutboxRelay(bootstrap, topic, ledger.connect, **more), 0
    try:
        await relay.start()
        while count := await relay.send_batch():
            sent += count
        return sent
    finally:
        await relay.close()


def test_outbox_record_written_to_a_row_is_read_back_equal() -> None:
    headers = (("a", b"\x80"), ("a", None), ("", b""))
    text = records.to_text(b"\xff\0", b"", 3, 5, headers)
    assert records.of_text(text) == {
        "value": b"\xff\0", "key": b"", "partition": 3, "timestamp_ms": 5, "headers": headers
    }  # fmt: skip
    assert records.of_text(records.to_text(None, None, None, None, ())) == {
        "value": None, "key": None, "partition": None, "timestamp_ms": None, "headers": ()
    }  # fmt: skip


def test_outbox_record_that_a_producer_can_send_is_written() -> None:
    """A memoryview has perhaps no adjacent bytes, and Java's producer accepts headers of null."""
    field: Any = memoryview(b"abcd")[::2]
    no_headers: Any = None
    assert records.of_text(records.to_text(field, field, 0, 0, [("a", field)])) == {
        "value": b"ac", "key": b"ac", "partition": 0, "timestamp_ms": 0, "headers": (("a", b"ac"),)
    }  # fmt: skip
    assert records.of_text(records.to_text(b"", None, None, None, no_headers))["headers"] == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"timestamp_ms": 2**63},
        {"timestamp_ms": -1},
        {"partition": 0.0},
        {"partition": "0"},
        {"partition": -1},
        {"headers": [(1, b"")]},
        {"headers": [(b"name", b"")]},
        {"headers": [("\ud800", b"")]},
        {"value": array("H", [1, 2])},
        {"topic": b"t"},
        {"topic": 5},
    ],
    ids=str,
)
def test_outbox_record_that_no_producer_can_send_is_refused(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    """The record would stop the relay if it became a row."""
    rows = sqlite_ledger(tmp_path / "ledger").create()
    refused = pytest.raises((InvalidTimestamp, InvalidPartitions, TypeError, ValueError))
    with BlockingOutboxWriter("outbox", rows.connect) as outbox:
        with outbox.transaction() as block, refused:
            record: dict[str, Any] = {"topic": "t", "value": b"1", **fields}
            block.send(**record)
        assert rows.rows("SELECT count(*) FROM oncelog_outbox") == [0]


async def test_outbox_sends_each_record_of_a_committed_block_once_and_none_of_an_aborted_block(
    bootstrap: str, ledger: Ledger, topic: str
) -> None:
    with BlockingOutboxWriter(topic, ledger.connect) as writer:
        for number in range(5):
            transfer(writer, ledger, topic, number)
        with pytest.raises(ZeroDivisionError), writer.transaction() as work:
            work.send(topic, b"5")
            raise ZeroDivisionError
        with pytest.raises(BlockNotWhole), writer.transaction() as work:
            work.connection.rollback()
            work.send(topic, b"6")
        with writer.transaction() as work:
            work.consumed(topic, 1, 17)
            with pytest.raises(IllegalProducerState, match="one block"), writer.transaction():
                pass
        with pytest.raises(IllegalProducerState, match="over"):
            work.send(topic, b"7")
        assert writer.positions() == {(topic, 1): 17}
        assert await relayed(bootstrap, ledger, topic, batch_rows_max=2) == 5
        transfer(writer, ledger, topic, 8)
    assert await relayed(bootstrap, ledger, topic) == 1
    assert await relayed(bootstrap, ledger, topic) == 0
    assert sorted(await events(bootstrap, topic)) == ledger.rows() == [0, 1, 2, 3, 4, 8]
    assert ledger.rows(f"{UNSENT} WHERE outbox = '{topic}'") == [0]


async def test_superseded_outbox_writer_commits_nothing(ledger: Ledger, topic: str) -> None:
    with BlockingOutboxWriter(topic, ledger.connect) as older:
        transfer(older, ledger, topic, 1)
        async with OutboxWriter(topic, ledger.connect) as newer, newer.transaction() as work:
            await work.execute(ledger.insert, (2, 5))
            await work.send(topic, b"2")
        with pytest.raises(WriterSuperseded):
            transfer(older, ledger, topic, 3)
        with pytest.raises(WriterSuperseded):
            transfer(older, ledger, topic, 4)
    unsent = f"{UNSENT} WHERE outbox = '{topic}'"
    assert ledger.rows() == [1, 2] and ledger.rows(unsent) == [2]


async def test_outbox_row_that_commits_after_a_higher_numbered_row_is_not_skipped(
    bootstrap: str, server: PostgresServer, topic: str
) -> None:
    ledger = Ledger(server.connect, "%s").create()
    with BlockingOutboxWriter(topic, ledger.connect) as writer:
        transfer(writer, ledger, topic, 1)
        late = ledger.connect()
        late.cursor().execute(ledger.insert, (2, 5))
        late.cursor().execute(
            "INSERT INTO oncelog_outbox (outbox, writer_session, number, created_ms, topic, "
            "record) VALUES (%s, %s, 1, 0, %s, %s)",
            (topic, "0" * 16, topic, records.to_text(b"2", None, None, None, ())),
        )
        transfer(writer, ledger, topic, 3)
        assert await relayed(bootstrap, ledger, topic) == 2
        transfer(writer, ledger, topic, 4)
        late.commit()
        late.close()
        assert await relayed(bootstrap, ledger, topic) == 2
    assert sorted(await events(bootstrap, topic)) == ledger.rows() == [1, 2, 3, 4]


class Mortal(OutboxRelay):
    """A relay that raises ConnectionResetError at a point, and then dies without cleanup."""

    point = ""

    def meet(self, point: str) -> None:
        if point == self.point:
            raise ConnectionResetError(point)

    async def _send(self, rows: list[table.Row], batch: int) -> None:
        self.meet("given")
        await super()._send(rows, batch)
        self.meet("sent")

    async def die(self) -> None:
        producer, self._producer = self._producer, None
        assert producer is not None
        await producer.view.close()
        await drive_async(self._close_connection())


@pytest.mark.parametrize("point", ["given", "sent"])
async def test_relay_killed_before_or_after_its_send_loses_and_repeats_no_row(
    bootstrap: str, ledger: Ledger, topic: str, point: str
) -> None:
    unsent = f"{UNSENT} WHERE outbox = '{topic}'"
    with BlockingOutboxWriter(topic, ledger.connect) as writer:
        for number in range(4):
            transfer(writer, ledger, topic, number)
        relay = Mortal(bootstrap, topic, ledger.connect, batch_rows_max=3)
        await relay.start()
        relay.point = point
        with pytest.raises(ConnectionResetError):
            await relay.send_batch()
        await relay.die()
        assert ledger.rows(unsent) == [4], "what was sent is there yet"
        transfer(writer, ledger, topic, 4)
        assert await relayed(bootstrap, ledger, topic) == (5 if point == "given" else 2)
    assert ledger.rows(unsent) == [0]
    assert sorted(await events(bootstrap, topic)) == ledger.rows() == [0, 1, 2, 3, 4]


async def test_outbox_relay_stops_when_a_newer_relay_starts(
    bootstrap: str, ledger: Ledger, topic: str
) -> None:
    unsent = f"{UNSENT} WHERE outbox = '{topic}'"
    with BlockingOutboxWriter(topic, ledger.connect) as writer:
        older = OutboxRelay(bootstrap, topic, ledger.connect)
        running = asyncio.create_task(older.run(every_ms=20))
        for number in range(3):
            transfer(writer, ledger, topic, number)
        async with asyncio.timeout(30):
            while not (older.is_idle and ledger.rows(unsent) == [0]):
                await asyncio.sleep(0.05)
        newer = OutboxRelay(bootstrap, topic, ledger.connect)
        await newer.start()
        transfer(writer, ledger, topic, 3)
        with pytest.raises(RelaySuperseded):
            async with asyncio.timeout(30):
                await running
        await newer.send_batch()
        await newer.close()
    assert sorted(await events(bootstrap, topic)) == ledger.rows() == [0, 1, 2, 3]


async def test_relay_fenced_without_a_successor_continues(
    bootstrap: str, server: PostgresServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction timeout, an expired id, or an operator's abort fences a relay in this way."""
    ledger = Ledger(server.connect, "%s").create()
    unsent = f"{UNSENT} WHERE outbox = '{topic}'"
    with BlockingOutboxWriter(topic, ledger.connect) as writer:
        relay = OutboxRelay(bootstrap, topic, ledger.connect)
        running = asyncio.create_task(relay.run(every_ms=20))
        transfer(writer, ledger, topic, 1)
        async with asyncio.timeout(30):
            while not (relay.is_idle and ledger.rows(unsent) == [0]):
                await asyncio.sleep(0.05)
        producer = relay._producer
        assert producer is not None
        commit = producer.commit_transaction

        async def too_late() -> None:
            await producer.flush()
            async with Admin(bootstrap) as admin:
                await admin.transactions.end(relay.topic)
            await commit()

        monkeypatch.setattr(producer, "commit_transaction", too_late)
        transfer(writer, ledger, topic, 2)
        async with asyncio.timeout(30):
            while ledger.rows(unsent) != [0] and not running.done():
                await asyncio.sleep(0.05)
        assert not running.done(), running
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert sorted(await events(bootstrap, topic)) == ledger.rows() == [1, 2]


async def test_relay_fenced_by_a_newer_relay_stops(
    bootstrap: str, server: PostgresServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error alone does not show the newer relay, since a batch with an old epoch is no fatal
    error.
    """
    ledger = Ledger(server.connect, "%s").create()
    with BlockingOutboxWriter(topic, ledger.connect) as writer:
        transfer(writer, ledger, topic, 1)
        older, newer = (OutboxRelay(bootstrap, topic, ledger.connect) for _ in range(2))
        send = older._send

        async def overtaken(rows: list[table.Row], batch: int) -> None:
            await newer.start()
            await send(rows, batch)

        monkeypatch.setattr(older, "_send", overtaken)
        await older.start()
        with pytest.raises(RelaySuperseded):
            await older.send_batch()
        assert await newer.send_batch() == 1
        await older.close()
        await newer.close()
    assert await events(bootstrap, topic) == [1]


async def test_older_relay_that_resumes_after_numbering_its_rows_sends_no_record(
    bootstrap: str, ledger: Ledger, topic: str
) -> None:
    """The new relay has sent the rows that the old relay numbered before it slept."""
    with BlockingOutboxWriter(topic, ledger.connect) as writer:
        transfer(writer, ledger, topic, 1)
        older = OutboxRelay(bootstrap, topic, ledger.connect)
        await older.start()
        given = await drive_async(older._run(table.next_batch(topic, older._generation, 1, 10)))
        assert len(given) == 1
        assert await relayed(bootstrap, ledger, topic) == 1
        with pytest.raises(KafkaError):
            await older._send(given, 1)
        await older.close()
    assert await events(bootstrap, topic) == [1]


async def test_outbox_relay_that_fails_after_a_newer_one_started_does_not_stop_the_newer_one(
    bootstrap: str, ledger: Ledger, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = (OutboxRelay(bootstrap, topic, ledger.connect) for _ in range(2))

    async def overtaken() -> int:
        await newer.start()
        raise ConnectionResetError

    monkeypatch.setattr(older, "send_batch", overtaken)
    with pytest.raises(RelaySuperseded):
        await older.run()
    with BlockingOutboxWriter(topic, ledger.connect) as writer:
        transfer(writer, ledger, topic, 1)
    assert await newer.send_batch() == 1
    await newer.close()


async def test_relay_start_closes_the_connections_of_the_last_start(
    bootstrap: str, server: PostgresServer, topic: str
) -> None:
    relay = OutboxRelay(bootstrap, topic, server.connect)
    await relay.start()
    first, connection = relay._producer, relay.connection
    assert first is not None
    await relay.start()
    await relay.close()
    assert first._is_closed and connection.closed
