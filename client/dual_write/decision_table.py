"""The decision table of dual writes, in SQL that every database understands.

    writer, transactional_id, producer_id, producer_epoch    one transaction (steps.TransactionKey)
    outcome      committed or aborted; the primary key prevents a second outcome
    generation   the generation of the writer that wrote the row
    decisions    in the row of a writer or a session: a count that each decision (a commit in
                 the writer's row, an abort in the session's) increments, which locks the row

A decision is the outcome of one transaction, and a session is one start of a writer. There are
three more kinds of rows (names.py). A writer's row holds the generation. A session's row exists
from before the first transaction until a successor has ended the session. The row of the database
holds an id that is part of the ids of its sessions, so no other database is asked about them. The
file does no I/O. A script yields statements and receives answers or exceptions, and database.py
runs the script on a connection, with or without awaiting.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, TypeVar

from . import steps, stop_words
from .names import DATABASE, SESSION, WRITER, database_of, writer_of
from .steps import DecidedOutcome, TransactionKey

TABLE, POSITIONS = "oncelog_decisions", "oncelog_positions"
SAVEPOINT = "oncelog_block"
CLAIMS_MAX = 5
OWN = TransactionKey("database", DATABASE, 0)  # the key of the row with the database's own id
NO_SAVEPOINT = ("3B001", "25P01")  # of PostgreSQL: no such savepoint, no transaction
INTEGRITY_ERRORS = ("IntegrityError", "IntegrityConstraintViolationError")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Statement:
    """An SQL statement with its parameters. Each `?` in the text stands for one parameter."""

    text: str
    parameters: tuple[Any, ...] = ()


class SqlEnding(Enum):
    COMMIT = auto()
    ROLLBACK = auto()


@dataclass(frozen=True, slots=True)
class SqlResult:
    rows: Sequence[Sequence[Any]] = ()
    row_count: int = -1


Script = Generator[Statement | SqlEnding, SqlResult, T]
KEY = "transactional_id = ? AND producer_id = ? AND producer_epoch = ?"
COLUMNS = {
    TABLE: "writer VARCHAR(150) NOT NULL, transactional_id VARCHAR(190) NOT NULL, "
    "producer_id BIGINT NOT NULL, producer_epoch BIGINT NOT NULL, outcome VARCHAR(10) NOT NULL, "
    "generation BIGINT NOT NULL, decisions BIGINT NOT NULL, "
    "PRIMARY KEY (transactional_id, producer_id, producer_epoch)",
    POSITIONS: "writer VARCHAR(150) NOT NULL, topic VARCHAR(249) NOT NULL, "
    "partition_id INTEGER NOT NULL, next_offset BIGINT NOT NULL, "
    "PRIMARY KEY (writer, topic, partition_id)",
}


def is_integrity_error(problem: BaseException) -> bool:
    """Return whether an error means a violated constraint, by the name of its class."""
    return any(each.__name__ in INTEGRITY_ERRORS for each in type(problem).__mro__)


def _parameters(key: TransactionKey) -> tuple[str, int, int]:
    return key.transactional_id, key.producer_id, key.producer_epoch


def _insert(
    writer: str, key: TransactionKey, outcome: str, generation: int, decisions: int = 0
) -> Statement:
    return Statement(
        f"INSERT INTO {TABLE} (writer, transactional_id, producer_id, producer_epoch, outcome, "
        "generation, decisions) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (writer, *_parameters(key), outcome, generation, decisions),
    )


def create_tables() -> Script[None]:
    """Create the missing tables of this module."""
    return create_missing(COLUMNS)


def find_table() -> Script[None]:
    """Raise the database's error if the decision table is missing."""
    yield Statement(f"SELECT 1 FROM {TABLE} WHERE 1 = 0")
    yield SqlEnding.ROLLBACK


def create_missing(tables: Mapping[str, str]) -> Script[None]:
    """Create the missing tables among `tables`, which has the columns of each table by name."""
    for table, columns in tables.items():
        try:
            yield Statement(f"SELECT 1 FROM {table} WHERE 1 = 0")
            yield SqlEnding.ROLLBACK
            continue
        except Exception:
            yield SqlEnding.ROLLBACK
        try:
            yield Statement(f"CREATE TABLE {table} ({columns})")
            yield SqlEnding.COMMIT
        except Exception:  # another process has just created it, or creating is not allowed
            yield SqlEnding.ROLLBACK
            yield Statement(f"SELECT 1 FROM {table} WHERE 1 = 0")
            yield SqlEnding.ROLLBACK


def _find_database_id() -> Script[str | None]:
    answer = yield Statement(f"SELECT writer FROM {TABLE} WHERE {KEY}", _parameters(OWN))
    return str(answer.rows[0][0]) if answer.rows else None


def database_id(drawn: str) -> Script[str]:
    """Return the id of this database. If it has none yet, store `drawn` as its id."""
    found = yield from _find_database_id()
    yield SqlEnding.ROLLBACK
    if found is not None:
        return found
    try:
        yield _insert(drawn, OWN, "database", 0)
        yield SqlEnding.COMMIT
    except Exception:  # another process has just stored one
        yield SqlEnding.ROLLBACK
        found = yield from _find_database_id()
        yield SqlEnding.ROLLBACK
        if found is None:
            raise
        return found
    return drawn


def claim(asked: steps.Claim) -> Script[steps.Claimed]:
    """Increment the writer's generation, and insert the row of the new session.

    Returns the generation and the ids of older sessions.
    """
    name, session = asked.name, TransactionKey(asked.transactional_id, SESSION, 0)
    generation = yield from _raise_generation(name)
    answer = yield Statement(
        f"SELECT transactional_id FROM {TABLE} WHERE writer = ? AND producer_id = ? "
        "ORDER BY generation",
        (name, SESSION),
    )
    older = tuple(str(row[0]) for row in answer.rows)
    yield _insert(name, session, "session", generation)
    yield SqlEnding.COMMIT
    return steps.Claimed(generation, older)


def raise_generation(name: str) -> Script[int]:
    """Increment and return the writer's generation. Older writers can then no longer commit."""
    generation = yield from _raise_generation(name)
    yield SqlEnding.COMMIT
    return generation


def _raise_generation(name: str) -> Script[int]:
    """Increment and return the writer's generation, without a COMMIT.

    The statement waits while another connection holds the lock of the writer's row to commit a
    block.
    """
    for attempt in range(CLAIMS_MAX):
        answer = yield Statement(
            f"UPDATE {TABLE} SET generation = generation + 1 WHERE {KEY}", (name, WRITER, 0)
        )
        if answer.row_count == 1:
            break
        try:
            yield _insert(name, TransactionKey(name, WRITER, 0), "writer", 1)
            break
        except Exception:  # the first two writers of a name start at the same moment
            yield SqlEnding.ROLLBACK
            if attempt == CLAIMS_MAX - 1:
                raise
    return (yield from generation_of(name))


def _find(key: TransactionKey) -> Script[DecidedOutcome | None]:
    answer = yield Statement(f"SELECT outcome FROM {TABLE} WHERE {KEY}", _parameters(key))
    return DecidedOutcome(str(answer.rows[0][0])) if answer.rows else None


def read_outcome(key: TransactionKey) -> Script[DecidedOutcome | None]:
    found = yield from _find(key)
    yield SqlEnding.ROLLBACK
    return found


def read_decisions(transactional_id: str) -> Script[tuple[TransactionKey, ...]]:
    answer = yield Statement(
        f"SELECT producer_id, producer_epoch FROM {TABLE} WHERE transactional_id = ? "
        "AND outcome = ? AND producer_id >= 0 ORDER BY producer_id, producer_epoch",
        (transactional_id, DecidedOutcome.COMMITTED.value),
    )
    yield SqlEnding.ROLLBACK
    return tuple(TransactionKey(transactional_id, int(i), int(e)) for i, e in answer.rows)


def read_or_abort(key: TransactionKey) -> Script[steps.OutcomeRead]:
    """Return the outcome of a transaction. If the table has none, insert `aborted` and return it.

    A transaction of another database has no outcome here, and one of a session that is over gets no
    row. After an error the script may be run again.
    """
    own_id = yield from _find_database_id()
    found = yield from read_outcome(key)
    if found is not None:
        return steps.OutcomeRead(found)
    if own_id is None or own_id != database_of(key.transactional_id):
        return steps.OutcomeRead(None)
    try:
        answer = yield Statement(
            f"UPDATE {TABLE} SET decisions = decisions + 1 WHERE {KEY}",
            (key.transactional_id, SESSION, 0),
        )
        # a successor waits for this lock, too, before it deletes the row
        if answer.row_count != 1:
            yield SqlEnding.ROLLBACK
            return steps.OutcomeRead(None, is_session_over=True)
        writer = writer_of(key.transactional_id) or ""
        yield _insert(writer, key, DecidedOutcome.ABORTED.value, 0)
        yield SqlEnding.COMMIT
    except Exception:
        yield SqlEnding.ROLLBACK
        found = yield from read_outcome(key)
        if found is None:
            raise
        return steps.OutcomeRead(found)
    return steps.OutcomeRead(DecidedOutcome.ABORTED)


def decide(asked: steps.Decide) -> Script[None]:
    """Insert the row of a committed transaction and delete the finished ones, without a COMMIT.

    Raises WriterSuperseded or CheckedBackError.
    """
    yield from check_generation(asked.name, asked.generation)
    for key in asked.finished:
        yield Statement(f"DELETE FROM {TABLE} WHERE {KEY}", _parameters(key))
    try:
        yield _insert(asked.name, asked.key, DecidedOutcome.COMMITTED.value, asked.generation)
    except Exception as problem:
        if not is_integrity_error(problem):
            raise
        raise stop_words.checked_back(asked.key) from problem


def check_generation(name: str, generation: int) -> Script[None]:
    """Lock the writer's row until the database transaction ends.

    Raises WriterSuperseded if the row has another generation.
    """
    answer = yield Statement(
        f"UPDATE {TABLE} SET decisions = decisions + 1 WHERE {KEY} AND generation = ?",
        (name, WRITER, 0, generation),
    )
    if answer.row_count != 1:
        raise stop_words.superseded(name, generation)


def begin_block(before: Sequence[str]) -> Script[None]:
    """Run the statements in `before`, and begin a block with a savepoint.

    The savepoint disappears if the application itself commits or rolls back in the block.
    """
    for text in before:
        yield Statement(text)
    yield Statement(f"SAVEPOINT {SAVEPOINT}")


def end_block() -> Script[None]:
    """Release the savepoint, or raise BlockNotWhole if the savepoint has disappeared."""
    try:
        yield Statement(f"RELEASE SAVEPOINT {SAVEPOINT}")
    except Exception as problem:
        if not is_without_savepoint(problem):
            raise  # the connection is lost, or the block ignored a failed statement
        raise stop_words.not_whole(problem) from problem


def is_without_savepoint(problem: BaseException) -> bool:
    """Return whether this error means that the block's savepoint has disappeared."""
    is_gone = getattr(problem, "sqlstate", None) in NO_SAVEPOINT
    return is_gone or "savepoint" in str(problem).lower()


def delete_session(transactional_id: str) -> Script[None]:
    """Delete the rows of a session, the session's own row first.

    A check-back that is inserting `aborted` holds a lock on that row, so the deletion waits for the
    check-back.
    """
    yield from delete_session_row(transactional_id)
    yield Statement(f"DELETE FROM {TABLE} WHERE transactional_id = ?", (transactional_id,))
    yield SqlEnding.COMMIT


def delete_session_row(transactional_id: str) -> Script[None]:
    yield Statement(f"DELETE FROM {TABLE} WHERE {KEY}", (transactional_id, SESSION, 0))


def generation_of(name: str) -> Script[int]:
    """Return the generation of a writer, or 0 without a row. The transaction stays open."""
    answer = yield Statement(f"SELECT generation FROM {TABLE} WHERE {KEY}", (name, WRITER, 0))
    return int(answer.rows[0][0]) if answer.rows else 0


def read_generation(name: str) -> Script[int]:
    found = yield from generation_of(name)
    yield SqlEnding.ROLLBACK
    return found


def script_of(effect: steps.Effect) -> Script[steps.Event]:
    """Return the script that executes an effect in a database transaction of its own."""
    match effect:
        case steps.Claim():
            return (yield from claim(effect))
        case steps.ReadDecisions(transactional_id):
            return steps.DecisionsRead((yield from read_decisions(transactional_id)))
        case steps.ReadOrAbort(key):
            return (yield from read_or_abort(key))
        case steps.DeleteSession(transactional_id):
            yield from delete_session(transactional_id)
            return steps.SessionDeleted()
        case steps.ReadGeneration(name):
            return steps.GenerationRead((yield from read_generation(name)))
        case _:
            raise AssertionError(effect)


# --- consumed positions


def write_position(name: str, topic: str, partition: int, next_offset: int) -> Script[None]:
    """Store the next offset of a partition in the open database transaction."""
    where = (name, topic, partition)
    answer = yield Statement(
        f"UPDATE {POSITIONS} SET next_offset = ? "
        "WHERE writer = ? AND topic = ? AND partition_id = ?",
        (next_offset, *where),
    )
    if answer.row_count == 0:
        yield Statement(
            f"INSERT INTO {POSITIONS} (next_offset, writer, topic, partition_id) "
            "VALUES (?, ?, ?, ?)",
            (next_offset, *where),
        )


def read_positions(name: str) -> Script[dict[tuple[str, int], int]]:
    answer = yield Statement(
        f"SELECT topic, partition_id, next_offset FROM {POSITIONS} WHERE writer = ?", (name,)
    )
    yield SqlEnding.ROLLBACK
    return {(str(topic), int(partition)): int(at) for topic, partition, at in answer.rows}
