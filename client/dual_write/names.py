"""The names of dual writers, their transactional ids, and kinds of rows of the decision table."""

import re

from ...wire.errors import InvalidRequest

PREFIX = "oncelog.dual."
NAME = re.compile(r"[A-Za-z0-9._-]{1,150}")
DATABASE_ID_BYTES, NONCE_BYTES = 4, 8
ID = re.compile(rf"{re.escape(PREFIX)}({NAME.pattern})\.([0-9a-f]{{8}})([0-9a-f]{{16}})")
WRITER, SESSION, DATABASE = -2, -3, -4  # kinds of rows, in place of a producer id


def checked_name(name: str) -> str:
    """Return the name of a writer unchanged, or raise InvalidRequest if it is invalid."""
    if NAME.fullmatch(name) is None:
        raise InvalidRequest(
            f"{name!r} is no name of a writer: 1 to 150 letters, digits, dots, dashes, underscores"
        )
    return name


def session_id(name: str, database_id: str, nonce: bytes) -> str:
    """Return the transactional id of a session, made from the writer, the database and a nonce.

    A nonce is drawn once and never used again.
    """
    return f"{PREFIX}{name}.{database_id}{nonce.hex()}"


def writer_of(transactional_id: str) -> str | None:
    """Return the name of the writer that a session's transactional id contains, else None."""
    found = ID.fullmatch(transactional_id)
    return found[1] if found else None


def database_of(transactional_id: str) -> str | None:
    """Return the id of the database that a session's transactional id contains, else None."""
    found = ID.fullmatch(transactional_id)
    return found[2] if found else None
