"""The table of an outbox, and that of its relays, in SQL that every database understands.

    outbox, writer_session, number   one record of a writer's session, and its number there
    created_ms      its time; rows are sent in this order, which is the order of each session
    topic, record   the topic; the rest of the record as text (records.py)
    batch           the number of the batch that sends the record, or NULL

    outbox, generation, batch        a relay's generation, and the last assigned batch
    origin          a random id that the first relay draws; an outbox of the same name in
                    another database has another id

The next rows are not found by a position in the table, since a row of a late commit could come
before that position. The next rows are the rows without a batch. Kafka has the number of the last
sent batch. The file does no I/O, as dual_write/decision_table.py.
"""

import itertools
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from ...wire.errors import ErrorCode, KafkaError
from ..dual_write.decision_table import Script, SqlEnding, Statement, create_missing

TABLE, RELAYS = "oncelog_outbox", "oncelog_outbox_relays"
CLAIMS_MAX = 5
ORIGIN_BYTES = 8
BATCH_BYTES_MAX = 8 << 20
NO_OFFICE = (0, "")
COLUMNS = {
    TABLE: "outbox VARCHAR(150) NOT NULL, writer_session VARCHAR(16) NOT NULL, "
    "number BIGINT NOT NULL, created_ms BIGINT NOT NULL, topic VARCHAR(249) NOT NULL, "
    "record TEXT NOT NULL, batch BIGINT, "
    "PRIMARY KEY (outbox, created_ms, writer_session, number)",  # the order in which it is sent
    RELAYS: "outbox VARCHAR(150) NOT NULL PRIMARY KEY, "
    "generation BIGINT NOT NULL, batch BIGINT NOT NULL, origin VARCHAR(16) NOT NULL",
}


@dataclass(frozen=True, slots=True)
class Row:
    writer_session: str
    number: int
    created_ms: int
    topic: str
    record: str


class RelaySuperseded(KafkaError):
    """Another relay of this outbox has started, and this relay must end."""

    code = ErrorCode.PRODUCER_FENCED


class ClaimInDoubt(Exception):
    """The answer to COMMIT was lost, so it is unknown whether the generation was claimed."""


def superseded(outbox: str) -> RelaySuperseded:
    return RelaySuperseded(
        f"another relay of outbox {outbox!r} has started: one at a time sends its rows"
    )


class OtherDatabase(KafkaError):
    """Another database's outbox of the same name has sent the last batch."""

    code = ErrorCode.INVALID_CONFIG


def create_tables() -> Script[None]:
    """Create the missing tables of an outbox."""
    return create_missing(COLUMNS)


def insert(outbox: str, row: Row) -> Script[None]:
    """Insert a record as a row in the block's transaction.

    The record is sent if the transaction commits.
    """
    yield Statement(
        f"INSERT INTO {TABLE} (outbox, writer_session, number, created_ms, topic, record) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (outbox, row.writer_session, row.number, row.created_ms, row.topic, row.record),
    )


def claim(outbox: str, latest: int | None = None) -> Script[tuple[int, str]]:
    """Increment the relay's generation, and return the generation and the outbox's origin.

    Afterwards older relays can give batch numbers to no rows. latest: raise RelaySuperseded if the
    current generation is higher. Raises ClaimInDoubt if the answer to COMMIT is lost.
    """
    newest = "" if latest is None else f" AND generation <= {latest:d}"
    for attempt in range(CLAIMS_MAX):
        answer = yield Statement(
            f"UPDATE {RELAYS} SET generation = generation + 1 WHERE outbox = ?{newest}", (outbox,)
        )
        if answer.row_count == 1:
            break
        if latest is not None and (yield from _office(outbox)) != NO_OFFICE:
            yield SqlEnding.ROLLBACK
            raise superseded(outbox)
        try:
            yield Statement(
                f"INSERT INTO {RELAYS} (outbox, generation, batch, origin) VALUES (?, 1, 0, ?)",
                (outbox, secrets.token_hex(ORIGIN_BYTES)),
            )
            break
        except Exception:  # the first two relays start at the same moment
            yield SqlEnding.ROLLBACK
            if attempt == CLAIMS_MAX - 1:
                raise
    office = yield from _office(outbox)
    try:
        yield SqlEnding.COMMIT
    except Exception as problem:
        raise ClaimInDoubt(str(problem)) from problem
    return office


def read_generation(outbox: str) -> Script[int]:
    """Return the current generation of an outbox's relays."""
    generation, _ = yield from _office(outbox)
    yield SqlEnding.ROLLBACK
    return generation


def _office(outbox: str) -> Script[tuple[int, str]]:
    """Return the generation and origin of an outbox's relays, or NO_OFFICE without a row."""
    answer = yield Statement(f"SELECT generation, origin FROM {RELAYS} WHERE outbox = ?", (outbox,))
    generation, origin = answer.rows[0] if answer.rows else NO_OFFICE
    return int(generation), str(origin)


def delete_sent(outbox: str, batch: int) -> Script[None]:
    """Delete the rows of batches up to `batch`, because these batches were sent.

    The script reads the whole outbox, so it is run only when a relay starts.
    """
    yield Statement(f"DELETE FROM {TABLE} WHERE outbox = ? AND batch <= ?", (outbox, batch))
    yield SqlEnding.COMMIT


def delete_batch(outbox: str, batch: int, rows: Sequence[Row]) -> Script[None]:
    """Delete the rows of a batch that was sent, by a range of the table's key."""
    created_ms = [row.created_ms for row in rows]
    yield Statement(
        f"DELETE FROM {TABLE} WHERE outbox = ? AND created_ms BETWEEN ? AND ? AND batch = ?",
        (outbox, min(created_ms), max(created_ms), batch),
    )
    yield SqlEnding.COMMIT


def take_back(outbox: str, generation: int, batch: int) -> Script[None]:
    """Clear the batch number of rows in batches after `batch`, because those were not sent.

    Raises RelaySuperseded if the relay has an old generation, so that a relay that was suspended
    during its start cannot clear the batch of its successor.
    """
    yield from _hold_office(outbox, generation, batch)
    yield Statement(
        f"UPDATE {TABLE} SET batch = NULL WHERE outbox = ? AND batch > ?", (outbox, batch)
    )
    yield SqlEnding.COMMIT


def _hold_office(outbox: str, generation: int, batch: int) -> Script[None]:
    """Store `batch` as the last batch, which locks the relays' row until the COMMIT.

    Raises RelaySuperseded if the relay's generation is not the current one.
    """
    answer = yield Statement(
        f"UPDATE {RELAYS} SET batch = ? WHERE outbox = ? AND generation = ?",
        (batch, outbox, generation),
    )
    if answer.row_count != 1:
        yield SqlEnding.ROLLBACK
        raise superseded(outbox)


def next_batch(
    outbox: str, generation: int, batch: int, rows_max: int, bytes_max: int = BATCH_BYTES_MAX
) -> Script[list[Row]]:
    """Give rows without a batch this batch number, and return them, or raise RelaySuperseded.

    Lengths are read first, because rows_max records of a megabyte each would need too much memory.
    """
    answer = yield Statement(
        f"SELECT created_ms, writer_session, number, LENGTH(record) FROM {TABLE} "
        "WHERE outbox = ? AND batch IS NULL "
        f"ORDER BY created_ms, writer_session, number LIMIT {rows_max:d}",
        (outbox,),
    )
    yield SqlEnding.ROLLBACK
    sizes = itertools.accumulate(int(length) for *_, length in answer.rows)
    keys = [key for (*key, _), size in zip(answer.rows, sizes, strict=True) if size <= bytes_max]
    keys = keys or [key for *key, _ in answer.rows[:1]]
    if not keys:
        return []
    yield from _hold_office(outbox, generation, batch)
    for key in keys:
        yield Statement(
            f"UPDATE {TABLE} SET batch = ? "
            "WHERE outbox = ? AND created_ms = ? AND writer_session = ? AND number = ?",
            (batch, outbox, *key),
        )
    answer = yield Statement(
        f"SELECT writer_session, number, created_ms, topic, record FROM {TABLE} "
        "WHERE outbox = ? AND created_ms BETWEEN ? AND ? AND batch = ? "
        "ORDER BY created_ms, writer_session, number",
        (outbox, keys[0][0], keys[-1][0], batch),
    )
    yield SqlEnding.COMMIT
    return [Row(str(s), int(n), int(c), str(t), str(r)) for s, n, c, t, r in answer.rows]
