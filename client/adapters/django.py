"""Lets Django's models write in the block of a dual write or an outbox, without an event loop.

    from oncelog.client.adapters.django import connect, transaction

    with BlockingDualWriter("127.0.0.1:9092", "bank", connect) as writer:
        with transaction(writer) as work:
            Transfer.objects.create(number=1, amount=5)
            work.send("transfers", b"1")

`connect` opens a connection with Django's settings. Within `transaction`, Django's connection of
that alias is the connection of the block, in the current thread, and `atomic()` is a savepoint.
Hooks of `on_commit` run after the block has committed, and their exceptions are logged. The writer
begins and ends the database transaction.
"""

import contextlib
import logging
from collections.abc import Generator
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from ..dual_write.decision_table import is_without_savepoint
from ..dual_write.stop_words import UnsafeDatabase, not_whole
from ..dual_write.work import BlockingDatabaseWork
from .needed import needed

logger = logging.getLogger(__name__)
Work_co = TypeVar("Work_co", bound=BlockingDatabaseWork, covariant=True)


class Writer(Protocol[Work_co]):
    """The interface of a dual writer, an outbox writer or a pool of writers that `transaction`
    needs.
    """

    def transaction(self) -> AbstractContextManager[Work_co]:
        """Open a block, which commits at its end, or rolls back after an exception."""
        ...


def connect(using: str = "default") -> Any:
    """Return a new database connection with the settings of the alias `using`, for a writer.

    Autocommit is off, and the connection is not taken from a pool.
    """
    wrapper = needed("django.db").connections[using].copy()
    wrapper.settings_dict["AUTOCOMMIT"] = False
    wrapper.settings_dict["OPTIONS"].pop("pool", None)
    wrapper.connect()
    return wrapper.connection


@contextlib.contextmanager
def transaction(writer: Writer[Work_co], using: str = "default") -> Generator[Work_co]:
    """Open a block, in which Django uses the block's connection for the alias `using`.

    The writer or pool must have been created with `connect` for the same alias.
    """
    db = needed("django.db")
    own = db.connections[using]
    if own.in_atomic_block:
        raise UnsafeDatabase(
            "the block is a transaction of its own, and cannot be within atomic() "
            "(ATOMIC_REQUESTS: mark the view non_atomic_requests; tests: TransactionTestCase)"
        )
    with writer.transaction() as work:
        bound = own.copy()
        bound.connection, bound.autocommit = work.connection, False
        db.connections[using] = bound
        is_done = False
        try:
            with db.transaction.atomic(using):
                yield work
                if bound.needs_rollback:  # atomic() would undo the rows, without a word
                    raise db.transaction.TransactionManagementError(
                        "the block was marked for rollback: nothing of it counts"
                    )
                is_done = True
        except db.Error as problem:
            if is_done and is_without_savepoint(problem):
                raise not_whole(problem) from problem
            raise
        finally:
            db.connections[using], bound.connection = own, None
    _run_hooks(bound)


def _run_hooks(bound: Any) -> None:
    """Run the hooks of `on_commit`, and log their exceptions.

    A raised exception would invite a retry, and a retry of the committed block would duplicate its
    records.
    """
    hooks, bound.run_on_commit = bound.run_on_commit, []
    for _, hook, *_ in hooks:
        try:
            hook()
        except Exception:
            logger.exception("the on_commit hook %r failed after its block was committed", hook)
