"""The execution of a `Turn`, which is the outcome of one request or deadline of a group.

The answers of the turn are sent, and its records are appended. An exception in an answer, a record
or a rule fails only its own group. If it ended the execution, the requests that wait in other
groups would never be answered.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from ...coordinator.groups.consumer.consumer_group import ConsumerGroup
from ...coordinator.groups.consumer.known_topics import KnownTopics
from ...coordinator.groups.turn import Answer, GroupAppend, LogRecord, Turn
from ...runtime.event_log import EventLog
from ...runtime.sliced_work import SlicedWork
from ...wire.errors import ErrorCode, KafkaError, MessageTooLarge, RecordListTooLarge
from ...wire.records import Record, encode_batch
from ..clock import Clock
from .consumer_work import ConsumerWork
from .shard import GroupShard, Replayed, ShardState

logger = logging.getLogger(__name__)


class Appending(Protocol):
    """The part of the group coordinator that `TurnExecution` uses."""

    clock: Clock
    topics: KnownTopics
    events: EventLog

    @property
    def work(self) -> SlicedWork: ...

    def append_now(
        self, shard: GroupShard, batch: bytes | bytearray, *, is_group_record: bool
    ) -> "tuple[int, asyncio.Future[None]]": ...

    def append_then(
        self,
        shard: GroupShard,
        batch: bytes | bytearray,
        replayed: Replayed,
        *,
        is_group_record: bool,
    ) -> int: ...

    def call_when_replayed(
        self, shard: GroupShard, next_offset: int, replayed: Replayed
    ) -> None: ...

    def load_anew(self, shard: GroupShard) -> None: ...

    def execute(self, shard: GroupShard, turn: Turn) -> None: ...


class TurnExecution:
    """The execution of each `Turn` (answers and records of a group) for all shards of a broker."""

    def __init__(self, coordinator: Appending) -> None:
        self._coordinator = coordinator
        self._consumer_work = ConsumerWork(coordinator)

    def execute(self, shard: GroupShard, turn: Turn) -> None:
        """Send the answers of a turn and append its records.

        If an append fails, the group's rules decide the answers, which are sent as a further turn.
        """
        turns = deque([turn])
        while turns:
            turn = turns.popleft()
            for group_id, error in turn.failures:
                logger.error("%r: group %s had an internal error", shard, group_id, exc_info=error)
                shard.keep_offsets_group(group_id)
            self.answer(turn)
            for steps in turn.steps:
                call_safely(
                    partial(self._coordinator.work.begin, "subscriptions of a group"), steps
                )
            for append in turn.appends:
                carry_out = self._append if append.replay is None else self._append_replayed
                error_code = carry_out(shard, append)
                if error_code is None:
                    continue
                if shard.state is ShardState.SERVING:
                    turns.append(_settled(shard, append, error_code))
                elif append.replay is not None:
                    # The removal of a classic group has already answered its requests.
                    self.answer(_settled(shard, append, error_code))
            for kind, group_id in turn.long_work:
                self._consumer_work.begin(shard, kind, group_id)

    def answer(self, turn: Turn) -> None:
        """Send the answers of a turn to their waiting requests, and log the turn's events."""
        for group_id, reason, sentence in turn.notes:
            words = f"group {group_id}: {sentence}"
            self._coordinator.events.tell("group", group_id, reason, words, group=group_id)
        for ticket, answer in turn.answers:
            self._coordinator.work.share.do(partial(_give, ticket, answer))

    def _append(self, shard: GroupShard, append: GroupAppend) -> int | None:
        """Append a classic group's records.

        Returns the error code, or None while the records are being replicated.
        """
        try:
            batch = self._encode(_within_a_batch(shard, append.records()))
            _, done = self._coordinator.append_now(shard, batch, is_group_record=True)
        except Exception as error:
            return _error_of(append, error)
        done.add_done_callback(partial(self._appended, shard, append))
        return None

    def _appended(
        self, shard: GroupShard, append: GroupAppend, done: "asyncio.Future[None]"
    ) -> None:
        if done.cancelled() or done.exception() or shard.state is not ShardState.SERVING:
            return  # the shard is closed, and all its waiting requests were answered
        self._coordinator.execute(shard, _settled(shard, append, ErrorCode.NONE))

    def _append_replayed(self, shard: GroupShard, append: GroupAppend) -> int | None:
        """Append a consumer group's records, and immediately apply them to the group in memory.

        The requests are answered when the records are committed.
        """
        assert append.replay is not None
        try:
            records = _within_a_batch(shard, append.records())
            if not records:
                group = shard.groups.get(append.group_id)
                until = group.appended_until if isinstance(group, ConsumerGroup) else 0
                if until <= shard.replayed:
                    return ErrorCode.NONE
                self._coordinator.call_when_replayed(
                    shard, until, partial(self._replayed, shard, append)
                )
                return None
            until = self._coordinator.append_then(
                shard,
                self._encode(records),
                partial(self._replayed, shard, append),
                is_group_record=True,
            )
        except Exception as error:
            return _error_of(append, error)
        shard.consumer_records_until = until
        turn = shard.turn()
        try:
            append.replay(turn)
        except Exception:
            logger.exception("%r: group %s cannot be replayed", shard, append.group_id)
            self._coordinator.load_anew(shard)
            return None
        group = shard.groups.get(append.group_id)
        if isinstance(group, ConsumerGroup):
            group.appended_until = until
        self.answer(turn)
        return None

    def _replayed(self, shard: GroupShard, append: GroupAppend, error: Exception | None) -> None:
        number = ErrorCode.NONE if error is None else ErrorCode.UNKNOWN_SERVER_ERROR
        turn = _settled(shard, append, error.number if isinstance(error, KafkaError) else number)
        if shard.state is ShardState.SERVING:
            self._coordinator.execute(shard, turn)
        else:
            self.answer(turn)

    def _encode(self, values: Sequence[LogRecord]) -> bytes:
        now_ms = self._coordinator.clock.wall_ms()
        return encode_batch([Record(i, now_ms, *record) for i, record in enumerate(values)])


def _within_a_batch(shard: GroupShard, records: Iterable[LogRecord]) -> list[LogRecord]:
    """Return the records as a list, or raise MessageTooLarge if one batch cannot hold them."""
    fitting, left_bytes = list[LogRecord](), shard.partition.log.config.max_message_bytes
    for key, value in records:
        left_bytes -= len(value or b"")
        if left_bytes < 0:
            raise MessageTooLarge
        fitting.append((key, value))
    return fitting


def _error_of(append: GroupAppend, error: Exception) -> int:
    """Log the failure to append a group's records, and return the error code for the members."""
    if isinstance(error, MessageTooLarge | RecordListTooLarge):
        logger.warning("a record of group %s is too large: %s", append.group_id, error)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if isinstance(error, KafkaError):
        return error.number
    logger.error("a record of group %s cannot be written", append.group_id, exc_info=error)
    return ErrorCode.UNKNOWN_SERVER_ERROR


def call_safely(waiting: Callable[[Any], object], outcome: object) -> None:
    """Call a callback and log its exception, so that the caller can call other callbacks."""
    try:
        waiting(outcome)
    except Exception:
        logger.exception("a request that waited in a group could not be answered")


def _give(ticket: object, answer: Answer) -> None:
    assert callable(ticket)
    call_safely(ticket, answer)


def _settled(shard: GroupShard, append: GroupAppend, error: int) -> Turn:
    """Return the group's answers after its records are committed (error NONE) or have failed."""
    turn = shard.turn()
    shard.table.attempt(append.group_id, turn, partial(append.settled, error, turn))
    return turn
