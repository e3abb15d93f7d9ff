"""What comes of a turn of a group: answers, records to append, and what their outcome brings.

A request that waits in a group is answered by a turn, and by nothing else. So an exception here, in
an answer, a record or a rule, is held against its group: the others go on, and each client hears.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from ...coordinator.groups.group_messages import JoinAnswer, SyncAnswer
from ...coordinator.groups.turn import GroupAppend, Turn
from ...replication.sliced_work import SlicedWork
from ...wire.errors import ErrorCode, KafkaError, MessageTooLarge, RecordListTooLarge
from ...wire.records import Record, encode_batch
from ..clock import Clock
from .shard import GroupShard, ShardState

logger = logging.getLogger(__name__)


class Appending(Protocol):
    """The coordinator, as far as a turn needs it."""

    clock: Clock

    @property
    def work(self) -> SlicedWork: ...

    def append_now(
        self, shard: GroupShard, batch: bytes | bytearray, *, is_group_record: bool
    ) -> "tuple[int, asyncio.Future[None]]": ...

    def execute(self, shard: GroupShard, turn: Turn) -> None: ...


class TurnExecution:
    """Carries out the turns of all shards of one broker."""

    def __init__(self, coordinator: Appending) -> None:
        self._coordinator = coordinator

    def execute(self, shard: GroupShard, turn: Turn) -> None:
        """Answer and append, and go on with what cannot be appended."""
        turns = deque([turn])
        while turns:
            turn = turns.popleft()
            for group_id, error in turn.failures:
                logger.error("%r: group %s is set aside", shard, group_id, exc_info=error)
                shard.keep_offsets_group(group_id)
            self.answer(turn)
            for steps in turn.steps:
                call_safely(
                    partial(self._coordinator.work.begin, "subscriptions of a group"), steps
                )
            for append in turn.appends:
                error_code = self._append(shard, append)
                if error_code is not None and shard.state is ShardState.SERVING:
                    turns.append(_settled(shard, append, error_code))

    def answer(self, turn: Turn) -> None:
        """Answer the requests that have waited."""
        for sentence in turn.notes:
            logger.info("%.1000s", sentence)  # it names what clients have sent
        for ticket, answer in turn.answers:
            self._coordinator.work.share.do(partial(_give, ticket, answer))

    def _append(self, shard: GroupShard, append: GroupAppend) -> int | None:
        """Append a group's records; the error if that cannot be, None if they are on their way."""
        try:
            now_ms = self._coordinator.clock.wall_ms()
            records = [Record(i, now_ms, *record) for i, record in enumerate(append.records())]
            size_bytes = sum(len(record.value or b"") for record in records)
            if size_bytes > shard.partition.log.config.max_message_bytes:
                raise MessageTooLarge  # before a batch of it is made, in five times as long
            batch = encode_batch(records)
            _, done = self._coordinator.append_now(shard, batch, is_group_record=True)
        except (MessageTooLarge, RecordListTooLarge) as error:
            logger.warning("a record of group %s is too large: %s", append.group_id, error)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        except KafkaError as error:
            return error.number
        except Exception:
            logger.exception("a record of group %s cannot be written", append.group_id)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        done.add_done_callback(partial(self._appended, shard, append))
        return None

    def _appended(
        self, shard: GroupShard, append: GroupAppend, done: "asyncio.Future[None]"
    ) -> None:
        if done.cancelled() or done.exception() or shard.state is not ShardState.SERVING:
            return  # the shard is gone, and everybody who waited was told so
        self._coordinator.execute(shard, _settled(shard, append, ErrorCode.NONE))


def call_safely(waiting: Callable[[Any], object], outcome: object) -> None:
    """Call one of many; an exception is logged, since the others wait, too."""
    try:
        waiting(outcome)
    except Exception:
        logger.exception("answering a request that had waited")


def _give(ticket: object, answer: JoinAnswer | SyncAnswer) -> None:
    assert callable(ticket)
    call_safely(ticket, answer)


def _settled(shard: GroupShard, append: GroupAppend, error: int) -> Turn:
    """Return the turn of records that are in the log, or are known not to be."""
    turn = shard.turn()
    shard.table.attempt(append.group_id, turn, partial(append.settled, error, turn))
    return turn
