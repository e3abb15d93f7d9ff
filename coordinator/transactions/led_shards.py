"""The shards that this node leads, and what time brings about in them.

Elections and resignations come from the Raft groups. Two timers look for transactions past their
timeout, which are aborted with a raised epoch so that their producer is fenced, and for ids that
have been without a transaction for so long that they are forgotten.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any

from ...wire.errors import ErrorCode
from .commands import SetShardCount, encode_transaction_command
from .connection_fence import ConnectionFence
from .decisions import Decision, abort_open
from .leader import Decide, LeaderPorts, ShardLeader
from .ports import ShardGroup
from .record import TransactionRecord
from .settings import TransactionSettings
from .shard import TransactionShard
from .states import MAY_EXPIRE

ABORTS_PER_SCAN = 1_000
EXPIRIES_PER_COMMAND = 1_000
SHARD_COUNT_TIMEOUT_MS = 5_000


class ShardCountMismatch(ValueError):
    """This node is configured with another number of shards than the cluster has."""

    @classmethod
    def between(cls, here: int, count: int) -> "ShardCountMismatch":
        """With a sentence for the operator."""
        return cls(
            f"transaction.state.log.num.partitions is {here} here, but this cluster began with "
            f"{count}, and that is for ever: set it to {count}."
        )


class LedShards:
    """One for each node. newest_connection: the highest number of a connection accepted so far."""

    def __init__(
        self,
        *,
        node_id: int,
        shards: Sequence[TransactionShard],
        groups: Sequence[ShardGroup],
        settings: TransactionSettings,
        ports: LeaderPorts,
        newest_connection: Callable[[], int],
    ) -> None:
        self.node_id = node_id
        self.shards = shards
        self.groups = groups
        self._settings = settings
        self._ports = ports
        self._loop = ports.loop
        self._newest_connection = newest_connection
        self._leaders: dict[int, ShardLeader] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        # (id, start of the transaction) -> when it was first seen here, in ms of the event loop: a
        # wall clock that is set back must not keep transactions open.
        self._open_since_ms: dict[tuple[str, int], float] = {}
        self._is_stopped = False
        self._log = logging.getLogger(f"{__name__}.{node_id}")
        for number, group in enumerate(groups):
            group.on_elected(partial(self._elected, number))
            group.on_resigned(partial(self._resigned, number))

    def start(self) -> None:
        """Begin to look for timeouts and expiries."""
        self._repeat(self._settings.timeout_scan_interval_ms, self.abort_overdue)
        self._repeat(self._settings.id_scan_interval_ms, self.forget_expired)

    async def stop(self) -> None:
        """Cease; what is under way is answered NOT_COORDINATOR, and goes on elsewhere."""
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        for number in list(self._leaders):
            self._resigned(number)
        self._ports.markers.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def find(self, number: int) -> ShardLeader | ErrorCode:
        """The leader of a shard, if that is here and ready."""
        leader = self._leaders.get(number)
        if leader is not None:
            return leader
        return (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            if self._is_loading(number)
            else ErrorCode.NOT_COORDINATOR
        )

    def __iter__(self) -> Iterator[ShardLeader]:
        """Those that are ready, by number."""
        return (self._leaders[number] for number in sorted(self._leaders))

    @property
    def is_loading(self) -> bool:
        """Whether a shard that this node leads is not ready."""
        return any(map(self._is_loading, range(len(self.groups))))

    async def confirm_shard_count(self) -> None:
        """Wait until the cluster says how many shards it has. Raises ShardCountMismatch.

        A transactional id would have two coordinators if nodes disagreed.
        """
        known: asyncio.Future[None] = self._loop.create_future()

        def look(_index: int = 0) -> None:
            if self.shards[0].shard_count and not known.done():
                known.set_result(None)

        self.groups[0].on_applied(look)
        look()
        await known
        count = self.shards[0].shard_count
        if count != len(self.shards):
            raise ShardCountMismatch.between(len(self.shards), count)

    # -- elections

    def _elected(self, number: int, term: int) -> None:
        if self._is_stopped:
            return
        self._resigned(number)
        shard = self.shards[number]
        leader = ShardLeader(
            shard,
            self.groups[number],
            term,
            settings=self._settings,
            ports=self._ports,
            fence=ConnectionFence(self._newest_connection()),
        )
        self._leaders[number] = leader
        self._log.info(
            "leads transaction shard %d in term %d: %d ids, %d ends to finish",
            number, term, len(shard), len(shard.prepared_ids),
        )  # fmt: skip
        leader.begin()
        if number == 0 and not shard.shard_count:
            command = encode_transaction_command(SetShardCount(term, len(self.shards)))
            self.groups[0].propose(command, SHARD_COUNT_TIMEOUT_MS, self._count_said)

    def _resigned(self, number: int) -> None:
        leader = self._leaders.pop(number, None)
        if leader is not None:
            leader.resign()

    def _count_said(self, _result: Any, error: Exception | None) -> None:
        if error is not None:
            self._log.info("the number of shards is not written yet: %s", error)
            leader = self._leaders.get(0)
            if leader is not None:
                self._loop.call_later(1, self._say_count_again, leader)

    def _say_count_again(self, leader: ShardLeader) -> None:
        if leader.is_current and not leader.shard.shard_count:
            command = encode_transaction_command(SetShardCount(leader.term, len(self.shards)))
            self.groups[0].propose(command, SHARD_COUNT_TIMEOUT_MS, self._count_said)

    def _is_loading(self, number: int) -> bool:
        is_ready = number in self._leaders
        return (
            not is_ready and not self._is_stopped and self.groups[number].leader_id == self.node_id
        )

    # -- time

    def abort_overdue(self) -> None:
        """Begin to abort every transaction that is open for longer than its timeout."""
        loop_ms, before = self._loop.time() * 1_000, self._open_since_ms
        self._open_since_ms = {
            key: before.get(key, loop_ms)
            for leader in self
            for name in leader.shard.open_ids
            if (key := (name, leader.shard.records[name].start_ms))
        }
        for leader in self:
            overdue = [
                name
                for name in leader.shard.open_ids
                if self._is_overdue(name, leader.shard.records[name])
            ]
            for name in overdue[:ABORTS_PER_SCAN]:
                self._spawn(self._abort_overdue(leader, name))

    def _is_overdue(self, transactional_id: str, record: TransactionRecord) -> bool:
        loop_ms = self._loop.time() * 1_000
        since_ms = self._open_since_ms.get((transactional_id, record.start_ms), loop_ms)
        return record.is_overdue(self._ports.wall_ms(), loop_ms - since_ms)

    def forget_expired(self) -> None:
        """Begin to forget every id that has had no transaction for the time of its expiry."""
        before_ms = self._ports.wall_ms() - self._settings.id_expiration_ms
        for leader in self:
            expired = [
                name
                for name, record in leader.shard.records.items()
                if record.state in MAY_EXPIRE and record.last_update_ms < before_ms
            ]
            for first in range(0, len(expired), EXPIRIES_PER_COMMAND):
                self._spawn(leader.forget(expired[first : first + EXPIRIES_PER_COMMAND]))

    async def abort(self, leader: ShardLeader, transactional_id: str) -> ErrorCode:
        """End an open transaction whatever its producer says; the producer is fenced."""
        decide = self._aborting(lambda record: record is not None)
        error, _ = await leader.carry_out(transactional_id, decide, ends_with_fence=True)
        return error

    async def _abort_overdue(self, leader: ShardLeader, transactional_id: str) -> None:
        decide = self._aborting(
            lambda record: record is not None and self._is_overdue(transactional_id, record)
        )
        error, _ = await leader.carry_out(transactional_id, decide, ends_with_fence=True)
        if error in (ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE):
            outcome = "aborted" if not error else "ended by itself"
            self._log.info("transaction of %r timed out: %s", transactional_id, outcome)
        else:
            self._log.info("transaction of %r timed out: %s", transactional_id, error.name)

    def _aborting(self, is_due: Callable[[TransactionRecord | None], bool]) -> Decide:
        def decide(
            record: TransactionRecord | None, is_pending: bool, fresh_producer_id: int | None
        ) -> Decision:
            return abort_open(
                record if is_due(record) else None,
                is_pending=is_pending,
                now_ms=self._ports.wall_ms(),
                fresh_producer_id=fresh_producer_id,
            )

        return decide

    def _repeat(self, interval_ms: int, work: Callable[[], None]) -> None:
        def run() -> None:
            self._timers[work] = self._loop.call_later(interval_ms / 1_000, run)
            work()

        self._timers[work] = self._loop.call_later(interval_ms / 1_000, run)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("a task of the transaction coordinator failed", exc_info=error)
