"""The shards that this node leads, with the timeouts of transactions and the expiry of ids.

Elections and resignations come from the Raft groups. One timer aborts timed-out transactions and
raises their epoch, so that their producers are fenced. Another removes transactional ids that had
no transaction for the expiry time.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ...coordinator.raft.group import RaftGroup
from ...coordinator.transactions.commands import SetShardCount, encode_transaction_command
from ...coordinator.transactions.connection_fence import ConnectionFence
from ...coordinator.transactions.decisions import Decision, DecisionContext, abort_transaction
from ...coordinator.transactions.record import TransactionRecord
from ...coordinator.transactions.settings import TransactionSettings
from ...coordinator.transactions.shard import TransactionShard
from ...coordinator.transactions.states import MAY_EXPIRE
from ...runtime.background_task import TaskSet
from ...runtime.steps import Steps
from ...wire.errors import ErrorCode
from ..connection_ids import ConnectionIds
from .leader_ports import LeaderPorts
from .shard_leader import ShardLeader

ABORTS_PER_SCAN = 1_000
ABORTS_AT_ONCE = 32
EXPIRIES_PER_COMMAND = 200
IDS_A_STEP = 256  # some 0.3 ms
SHARD_COUNT_TIMEOUT_MS = 5_000


class ShardCountMismatch(ValueError):
    """The error of a node with another configured number of shards than the cluster."""

    def __init__(self, here: int, count: int) -> None:
        super().__init__(
            f"transaction.state.log.num.partitions is {here} here, but this cluster began with "
            f"{count}, and that is for ever: set it to {count}."
        )


class ShardLeaders:
    """The shard leaders of one node."""

    def __init__(
        self,
        *,
        node_id: int,
        shards: Sequence[TransactionShard],
        raft_groups: Sequence[RaftGroup],
        settings: TransactionSettings,
        ports: LeaderPorts,
        connection_ids: ConnectionIds,
    ) -> None:
        self.node_id = node_id
        self.shards = shards
        self.raft_groups = raft_groups
        self.settings = settings
        self._ports = ports
        self._loop = asyncio.get_running_loop()
        self._connection_ids = connection_ids
        self._leaders: dict[int, ShardLeader] = {}
        # (id, start of the transaction) -> when it was first seen here, in ms of the event loop,
        # because a wall clock that is set back must not keep transactions open.
        self._open_since_ms: dict[tuple[str, int], float] = {}
        self._is_stopped = False
        self.events = ports.events
        self._log = logging.getLogger(f"{__name__}.{node_id}")
        self._tasks = TaskSet(self._log, "a task of the transaction coordinator failed")
        for number, raft_group in enumerate(raft_groups):
            raft_group.on_elected(partial(self._elected, number))
            raft_group.on_resigned(partial(self._resigned, number))

    def start(self) -> None:
        """Start the timers of timeouts and expiries."""
        for name, interval_ms, walk in (
            ("transaction timeouts", self.settings.timeout_scan_interval_ms, self._find_timed_out),
            ("expiry of transactional ids", self.settings.id_scan_interval_ms, self._find_expired),
        ):
            self._tasks.spawn(self._repeat(name, interval_ms, walk))

    async def stop(self) -> None:
        """Stop all shard leaders, and answer requests in flight with NOT_COORDINATOR.

        Clients then retry elsewhere.
        """
        self._is_stopped = True
        for number in list(self._leaders):
            self._resigned(number)
        self._ports.markers.stop()
        await self._tasks.stop()

    def find(self, number: int) -> ShardLeader | ErrorCode:
        """Return the leader of a shard, or an error unless this node leads it and it is ready."""
        leader = self._leaders.get(number)
        if leader is not None:
            return leader
        return (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            if self._is_loading(number)
            else ErrorCode.NOT_COORDINATOR
        )

    def __iter__(self) -> Iterator[ShardLeader]:
        """Yield the ready leaders in the order of their shards."""
        return (self._leaders[number] for number in sorted(self._leaders))

    @property
    def list_error(self) -> ErrorCode:
        """Return NONE if a list of all ids that are coordinated here is complete, else the error.

        If this node knows no leader of a shard, the shard's next leader may have answered before
        its election, and no list would have the shard's ids. A client would call their transactions
        hanging.
        """
        if self._is_stopped or any(group.leader_id is None for group in self.raft_groups):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if any(map(self._is_loading, range(len(self.raft_groups)))):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    async def confirm_shard_count(self) -> None:
        """Wait until the cluster's number of shards is known, or raise ShardCountMismatch.

        With different numbers a transactional id would have two coordinators.
        """
        known: asyncio.Future[None] = self._loop.create_future()

        def look(_index: int = 0) -> None:
            if self.shards[0].shard_count and not known.done():
                known.set_result(None)

        self.raft_groups[0].on_applied(look)
        look()
        await known
        count = self.shards[0].shard_count
        if count != len(self.shards):
            raise ShardCountMismatch(len(self.shards), count)

    # -- elections

    def _elected(self, number: int, term: int) -> None:
        if self._is_stopped:
            return
        self._resigned(number)
        shard = self.shards[number]
        leader = ShardLeader(
            shard,
            self.raft_groups[number],
            term,
            settings=self.settings,
            ports=self._ports,
            fence=ConnectionFence(self._connection_ids.newest),
        )
        self._leaders[number] = leader
        words = (
            f"node {self.node_id} leads transaction shard {number} in term {term}, with"
            f" {len(shard)} ids and {len(shard.prepared_ids)} prepared transactions"
        )
        self.events.tell(
            "election",
            f"transaction shard {number}",
            "shard",
            words,
            node=self.node_id,
            shard=number,
            term=term,
        )
        leader.begin()
        if number == 0:
            self._propose_shard_count(leader)

    def _resigned(self, number: int) -> None:
        leader = self._leaders.pop(number, None)
        if leader is not None:
            leader.resign()

    def _propose_shard_count(self, leader: ShardLeader) -> None:
        """Propose the number of shards, and again a second after each failure."""

        def done(_result: Any, error: Exception | None) -> None:
            if error is not None:
                self._log.info(
                    "the number of transaction shards could not be written to the log of shard 0, "
                    "and will be retried: %s",
                    error,
                )
                self._loop.call_later(1, self._propose_shard_count, leader)

        if leader.is_current and not leader.shard.shard_count:
            command = encode_transaction_command(SetShardCount(leader.term, len(self.shards)))
            self.raft_groups[0].propose(command, SHARD_COUNT_TIMEOUT_MS, done)

    def _is_loading(self, number: int) -> bool:
        if number in self._leaders or self._is_stopped:
            return False
        return self.raft_groups[number].leader_id == self.node_id

    # -- time

    async def look(self) -> None:
        """Check all timeouts and expiries once.

        On return expired ids are removed, and the aborts of timed-out transactions have begun.
        """
        await self._ports.work.run("transaction timeouts", self._find_timed_out())
        removing: list[asyncio.Task[None]] = []
        await self._ports.work.run("expiry of transactional ids", self._find_expired(removing))
        await asyncio.gather(*removing, return_exceptions=True)

    async def _repeat(self, name: str, interval_ms: int, walk: Callable[[], Steps[None]]) -> None:
        """Run a scan of all transactional ids at each interval, in slices."""
        while True:
            await asyncio.sleep(interval_ms / 1_000)
            try:
                await self._ports.work.run(name, walk())
            except Exception:
                self._log.exception("a scan of transactional ids failed")

    def _find_timed_out(self) -> Steps[None]:
        """Begin to abort the transactions that have been open for longer than their timeout.

        At most ABORTS_PER_SCAN of each shard are aborted. Transactions may change between two
        steps, so each abort checks again.
        """
        since_ms: dict[tuple[str, int], float] = {}
        found: list[tuple[ShardLeader, list[str]]] = []
        for leader in list(self):
            timed_out: list[str] = []
            for count, name in enumerate(list(leader.shard.open_ids), 1):
                record = leader.shard.get(name)
                if record is not None and name in leader.shard.open_ids:
                    loop_ms = self._loop.time() * 1_000
                    key = (name, record.start_ms)
                    since_ms[key] = self._open_since_ms.get(key, loop_ms)
                    if self._holds(name, self._is_timed_out, name, record):
                        timed_out.append(name)
                if count % IDS_A_STEP == 0:
                    yield
            if timed_out:
                found.append((leader, timed_out[:ABORTS_PER_SCAN]))
        self._open_since_ms = since_ms
        if found:
            self._tasks.spawn(self._abort_each(found))

    def _holds(self, name: str, question: Callable[..., bool], *about: Any) -> bool:
        """Return the result of a check of this id, or False if the check raises an exception."""
        try:
            return question(*about)
        except Exception:
            self._log.exception("the check of transactional id %r failed, and is repeated", name)
            return False

    async def _abort_each(self, found: Sequence[tuple[ShardLeader, Sequence[str]]]) -> None:
        """Begin to abort timed-out transactions of all shards, some in each turn of the loop."""
        each = ((leader, name) for leader, names in found for name in names)
        for number, (leader, name) in enumerate(each, 1):
            self._tasks.spawn(self._abort_timed_out(leader, name))
            if number % ABORTS_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _is_timed_out(self, transactional_id: str, record: TransactionRecord) -> bool:
        loop_ms = self._loop.time() * 1_000
        since_ms = self._open_since_ms.get((transactional_id, record.start_ms), loop_ms)
        return record.is_timed_out(self._aged_ms(record.start_ms), loop_ms - since_ms)

    def _find_expired(self, removing: "list[asyncio.Task[None]] | None" = None) -> Steps[None]:
        """Begin to remove the ids that have had no transaction for the expiry time.

        removing: collects the tasks of the removals.
        """
        for leader in list(self):
            expired = []
            for count, name in enumerate(list(leader.shard.records), 1):
                if self._holds(name, self._is_expired, leader, name):
                    expired.append(name)
                if count % IDS_A_STEP == 0:
                    yield
            if expired:
                task = self._tasks.spawn(self._remove_each(leader, expired))
                if removing is not None:
                    removing.append(task)

    async def _remove_each(self, leader: ShardLeader, names: Sequence[str]) -> None:
        """Remove the ids that are still expired, in several commands."""
        for first in range(0, len(names), EXPIRIES_PER_COMMAND):
            some = names[first : first + EXPIRIES_PER_COMMAND]
            try:
                still = [name for name in some if self._holds(name, self._is_expired, leader, name)]
                await leader.remove_expired(still)
            except Exception:
                self._log.exception("%d expired transactional ids could not be removed", len(some))

    def _is_expired(self, leader: ShardLeader, name: str) -> bool:
        record = leader.shard.get(name)
        if record is None or record.state not in MAY_EXPIRE:
            return False
        aged_ms = self._aged_ms(record.last_update_ms)
        return record.last_update_ms < aged_ms - self.settings.id_expiration_ms

    def _aged_ms(self, since_ms: int) -> int:
        """Return the current time with which to compute the age of a stored timestamp.

        It is the wall-clock time plus the advances of the cluster's clock since that timestamp.
        """
        return self._ports.wall_ms() + self._ports.advanced_since_ms(since_ms)

    async def _abort_timed_out(self, leader: ShardLeader, transactional_id: str) -> None:
        judged: list[TransactionRecord] = []  # the records on which decisions were based

        def decide(record: TransactionRecord | None, context: DecisionContext) -> Decision:
            if record is not None and not self._is_timed_out(transactional_id, record):
                record = None
            if record is not None:
                judged.append(record)
            return abort_transaction(record, context)

        error, _ = await leader.execute(transactional_id, decide, ends_with_fence=True)
        known = {ErrorCode.NONE: "aborted", ErrorCode.INVALID_TXN_STATE: "it has ended meanwhile"}
        outcome = known.get(error, error.name)
        if error:
            self._log.info(
                "%r: a transaction timed out, but was not aborted: %s", transactional_id, outcome
            )
        elif judged:
            record = judged[0]
            seconds = record.timeout_ms / 1_000
            words = f"its transaction was aborted after {seconds:g} s, and its producer fenced"
            self.events.tell(
                "abort",
                transactional_id,
                "timeout",
                f"{transactional_id}: {words}",
                transactional_id=transactional_id,
                producer_id=record.producer_id,
                epoch=record.producer_epoch,
                timeout_ms=record.timeout_ms,
            )
