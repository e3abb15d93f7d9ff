"""The common part of the two outbox writers, as flows that run with or without an event loop.

A writer's block is an ordinary transaction of the database, with the records as rows. A generation
row fences older writers of the name, as with a dual write. When a suspended process resumes after a
successor has continued from its positions, it cannot commit.
"""

import secrets
import time
from typing import Any

from ...wire.batch_builder import Headers
from ...wire.identifiers import TopicPartition
from ..dual_write import decision_table, stop_words
from ..dual_write.connection_flow import CLOSED, ConnectionFlow
from ..dual_write.database import Dialect
from ..dual_write.flow import Flow
from ..dual_write.names import NONCE_BYTES
from ..failures import ClientClosed, IllegalProducerState
from ..produce.topic_lookup import require_text
from . import records, table


class OutboxFlow(ConnectionFlow):
    """The base class of outbox writers with a name and a connection, for one thread or task."""

    def __init__(self, name: str, connection: Any, *, creates_tables: bool = True) -> None:
        super().__init__(name, connection)
        self._creates_tables = creates_tables
        self._session = secrets.token_hex(NONCE_BYTES)
        self._number = self._last_ms = 0
        self._generation: int | None = None
        self._is_open = self._must_end = False  # the block, and its transaction of the database
        self._stopped: Exception | None = None

    def _start(self) -> Flow[None]:
        yield from self._end_strays()
        try:
            yield from self._open_first()
            if self._creates_tables:
                yield from self._run(decision_table.create_tables())
                yield from self._run(table.create_tables())
            self._generation = yield from self._run(decision_table.raise_generation(self.name))
        except BaseException:
            yield from self._roll_back()  # its lock would delay the next start
            yield from self._close_connection()
            raise

    def _close(self) -> Flow[None]:
        self._generation = None
        if self._must_end and not self._is_taken:  # a block of another thread ends by itself
            yield from self._block_failed()
        yield from self._close_connection()

    def _begin_block(self) -> Flow[None]:
        self.refuse_forked()
        if self._must_end:  # the last block was interrupted, and left open
            yield from self._block_failed()
        self._require_started()
        yield from self._end_strays()
        self._must_end = True
        try:
            yield from self._begin()
        except BaseException:
            yield from self._block_failed()
            raise
        self._is_open = True

    def _require_started(self) -> None:
        self.refuse_forked()
        if self._stopped is not None:
            raise self._stopped
        if self._generation is None:
            raise IllegalProducerState("the writer is not ready: start it first (`with` does)")

    def _block_failed(self) -> Flow[None]:
        self._is_open = False
        yield from self._roll_back()
        if self._generation is None:  # closed by another thread, which SQLite refuses
            yield from self._close_connection()
        self._must_end = False

    def _block_done(self) -> Flow[None]:
        self.refuse_forked()
        self._is_open = False
        generation = self._generation
        try:
            if generation is None:
                raise ClientClosed(CLOSED)
            yield from self._run(Dialect(self.connection).before_commit())
            yield from self._run(decision_table.check_generation(self.name, generation))
        except BaseException as problem:
            if isinstance(problem, stop_words.WriterSuperseded):
                self._stopped = problem
            yield from self._block_failed()
            raise
        try:
            yield self.connection.commit
        except GeneratorExit:
            raise
        except BaseException as problem:
            is_refused = self._is_refused(problem)
            # interrupted, too: else the next block would find it open
            yield from self._block_failed()
            if is_refused or not isinstance(problem, Exception):
                raise
            raise stop_words.outbox_in_doubt(self.name, problem) from problem
        self._must_end = False

    def write_record(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Flow[None]:
        self.refuse_forked()
        if not self._is_open:
            raise IllegalProducerState("the block is over")
        require_text(topic)
        self._number += 1
        self._last_ms = max(self._last_ms, time.time_ns() // 1_000_000)
        text = records.to_text(value, key, partition, timestamp_ms, headers)
        row = table.Row(self._session, self._number, self._last_ms, topic, text)
        yield from self._run(table.insert(self.name, row))

    def _positions(self) -> Flow[dict[TopicPartition, int]]:
        self._require_started()
        return (yield from self._read_positions())
