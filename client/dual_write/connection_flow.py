"""Opens and reopens a writer's database connection, and begins and ends database transactions on
it.
"""

import contextlib
import logging
from collections.abc import Callable, Generator
from typing import Any

from ...wire.identifiers import TopicPartition
from ..failures import FORKED, ClientClosed, IllegalProducerState, tell_of_forks
from . import decision_table, stop_words
from .database import Dialect, run
from .decision_table import Script
from .flow import Flow
from .names import checked_name
from .stop_words import UnsafeDatabase

logger = logging.getLogger(__name__)
CLOSED = "the writer is closed"
BUSY = (
    "the connection has a transaction open already: commit it or roll it back before the block, "
    "which is a transaction of its own (a SELECT opens one, too)"
)


class ConnectionFlow:
    """The base class of writers with one database connection, and the flows of its transactions."""

    def __init__(self, name: str, connection: Any) -> None:
        """Take an open DB-API connection, or a function or coroutine function that opens one."""
        self.name = checked_name(name)
        self._connect: Callable[[], Any] | None = None
        self.connection: Any = None
        if hasattr(connection, "cursor"):  # sqlite3's connections are callable, too
            self.connection = connection
        else:
            self._connect = connection
        self._is_lost = False  # the connection
        self._closings = 0
        self._kept: dict[str, tuple[Any, Any]] = {}
        self._is_taken = self._is_forked = False
        # called by each block, as a sign of life of the writer's holder
        self.on_use: Callable[[], object] = lambda: None
        tell_of_forks(self)

    def kept(self, name: str, make: Callable[[Any], Any]) -> Any:
        """Return the object that is stored under `name` for this connection.

        A missing object is created by `make(connection)`.
        """
        of, found = self._kept.get(name, (None, None))
        if of is not self.connection:
            of, found = self._kept[name] = self.connection, make(self.connection)
        return found

    def forked(self) -> None:
        """Use the connection no more in a forked child, since it belongs to the parent."""
        self._is_forked = True

    def refuse_forked(self) -> None:
        """Raise ClientClosed in a forked child if the parent has opened the connection.

        The child's statements would mix with the statements of the parent.
        """
        if self._is_forked and self.connection is not None:
            raise ClientClosed(FORKED)

    @contextlib.contextmanager
    def _taken(self) -> Generator[None]:
        """Reserve the connection for one block until the context ends."""
        if self._is_taken:
            raise IllegalProducerState("the writer has a block open: one block at a time")
        try:
            self._is_taken = True
            self.on_use()
            yield
        finally:
            self._is_taken = False

    def _open_first(self) -> Flow[None]:
        if self.connection is None:
            yield from self._open()
        else:
            yield from self._refuse_unsafe()

    def _close_connection(self) -> Flow[None]:
        self._closings += 1
        self._kept.clear()
        if self._is_forked:
            return
        if self._connect is not None and self.connection is not None:
            is_closed = False
            with contextlib.suppress(Exception):
                yield self.connection.close
                is_closed = True
            # SQLite lets only the thread of an open block end the block's transaction
            if is_closed or not self._is_taken:
                self.connection = None  # only now, for a close after an interrupted one

    def _run(self, script: Script[Any]) -> Flow[Any]:
        return run(script, self.connection, Dialect(self.connection))

    def _open(self) -> Flow[None]:
        assert self._connect is not None
        if self.connection is not None:
            with contextlib.suppress(Exception):
                yield self.connection.close
        closings = self._closings
        opened = yield self._connect
        if self._closings != closings:
            with contextlib.suppress(Exception):
                yield opened.close
            raise ClientClosed(CLOSED)
        self.connection = opened
        yield from self._refuse_unsafe()
        self._is_lost = False

    def _refuse_unsafe(self) -> Flow[None]:
        yield from self._run(Dialect(self.connection).refuse_unsafe(self.connection))

    def _end_strays(self) -> Flow[None]:
        """Prevent statements between blocks from being committed with the next block.

        On a connection that was given, such statements belong to the application, so raise
        UnsafeDatabase. On the writer's own connection they came too late for their block, and no
        caller waits for them, so roll them back.
        """
        if self.connection is None or self._is_lost:
            return
        is_busy = Dialect(self.connection).is_busy(self.connection)
        if self._connect is None and is_busy:
            raise UnsafeDatabase(BUSY)
        if self._connect is not None and is_busy is not False:
            if is_busy:
                logger.warning(
                    "%s: the statements after the end of a block are rolled back", self.name
                )
            yield from self._roll_back()

    def _begin(self) -> Flow[None]:
        yield from self._open_lost()
        try:
            yield from self._run(Dialect(self.connection).begin(self.connection))
        except Exception:
            if self._connect is None:
                raise
            yield from self._open()  # perhaps the database was restarted since the last block
            yield from self._run(Dialect(self.connection).begin(self.connection))

    def _lost_for_good(self) -> stop_words.DualWriteError | None:
        """Return an error if the connection is lost and the writer cannot reopen it, else None."""
        is_over = self._is_lost and self._connect is None
        return stop_words.connection_lost(self.name) if is_over else None

    def _open_lost(self) -> Flow[None]:
        if over := self._lost_for_good():
            raise over
        if self._is_lost:
            yield from self._open()

    def _roll_back(self) -> Flow[None]:
        if self._is_forked:
            return
        try:
            yield self.connection.rollback
        except Exception:  # a lost connection has rolled back
            self._is_lost = True

    def _is_refused(self, problem: BaseException) -> bool:
        """Return whether a COMMIT that raised this error has certainly committed nothing."""
        try:
            return Dialect(self.connection).is_refused(self.connection, problem)
        except Exception:  # the connection was closed meanwhile
            return False

    def _read_positions(self) -> Flow[dict[TopicPartition, int]]:
        yield from self._end_strays()
        yield from self._open_lost()
        try:
            return (yield from self._run(decision_table.read_positions(self.name)))
        except BaseException:  # cancelled, too: else the next block would find a transaction open
            yield from self._roll_back()
            raise

    def write_position(self, topic: str, partition: int, next_offset: int) -> Flow[None]:
        """Store the next offset of a partition in the database, as a part of the block."""
        self.refuse_forked()
        yield from self._run(
            decision_table.write_position(self.name, topic, partition, next_offset)
        )
