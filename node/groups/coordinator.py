"""The group coordinator of one broker, with a shard for each led partition of __consumer_offsets.

    becomes leader -> loading (COORDINATOR_LOAD_IN_PROGRESS) -> serving -> resigns (NOT_COORDINATOR)

`shard` defines a shard. The rules of groups are in coordinator/groups. This file executes the
decisions of these rules: it answers requests, appends records, and sets timers for deadlines. The
live sessions of groups (members that wait in a rebalance, deadlines) are not in the log. They are
lost with the leadership, and the clients reconnect.

If the replicas do not acknowledge a group's record in time, its outcome is unknown, and the shard
is loaded again.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ...coordinator.groups.consumer.known_topics import KnownTopics
from ...coordinator.groups.consumer.settings import ConsumerGroupSettings
from ...coordinator.groups.group_messages import GroupSettings
from ...coordinator.groups.turn import Turn
from ...coordinator.metadata.cluster_state import ClusterState
from ...coordinator.sharding import shard_for as partition_for
from ...runtime.earliest_timer import EarliestTimer
from ...runtime.event_log import EventLog
from ...runtime.sliced_work import SlicedWork
from ...runtime.steps import Steps
from ...storage.partition_log import AppendInfo, Origin
from ...wire.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    KafkaError,
    KafkaStorageError,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
)
from ...wire.record_batch import decode_header
from ..clock import Clock
from ..config.broker_config import BrokerConfig
from ..config.coordinator_keys import BIDIRECTIONAL, DOWNGRADE, UPGRADE
from ..config.group_configs import consumer_group_settings
from ..partitions.hosted_partition import ACKS_ALL, HostedPartition
from ..partitions.replica_manager import ReplicaManager
from .shard import GroupShard, Replayed, ShardState
from .turn_execution import TurnExecution, call_safely


class ConsumerSettingsByGroup:
    """The effective settings of consumer groups. Groups without own configs share one object."""

    def __init__(self, config: BrokerConfig, state: ClusterState) -> None:
        self._config = config
        self._state = state
        self._default = consumer_group_settings(config, {})

    def of(self, group_id: str) -> ConsumerGroupSettings:
        """Return the current settings of a group."""
        configs = self._state.group_configs.get(group_id)
        return consumer_group_settings(self._config, configs) if configs else self._default


logger = logging.getLogger(__name__)
OFFSETS_TOPIC = "__consumer_offsets"
# of about 0.5 ms each, so that an offset commit is replayed in the turn of its commit
STEPS_AT_ONCE = 4
GROUPS_A_STEP = 32
# mostly session timeouts, each of which ends a generation; fewer if they take long
DEADLINES_AT_ONCE = 16
Result = TypeVar("Result")


class GroupCoordinator:
    """The group coordinator of one broker, with its shards, on one event loop."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        state: ClusterState,
        replicas: ReplicaManager,
        clock: Clock,
        events: EventLog,
    ) -> None:
        self.clock = clock
        self.events = events
        self._state = state
        self._replicas = replicas
        self._append_timeout_ms = config.offsets_commit_timeout_ms
        policy = config.group_consumer_migration_policy.lower()
        self._settings = GroupSettings(
            max_size=config.group_max_size,
            may_upgrade=policy in (UPGRADE, BIDIRECTIONAL),
            may_downgrade=policy in (DOWNGRADE, BIDIRECTIONAL),
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            consumer=ConsumerSettingsByGroup(config, state).of,
        )
        self.topics = KnownTopics(state)
        self._shards: dict[int, GroupShard] = {}
        self._is_appending = False
        self.is_stopping = False
        self._execution = TurnExecution(self)
        self._timer = EarliestTimer(clock.monotonic_ms, self._due)

    def start(self) -> None:
        """Create a shard for each partition of __consumer_offsets that this broker leads."""
        self._replicas.role_listeners.append(self._role_changed)
        self._state.on_change(self.topics.note)
        for partition in self._replicas:
            self._role_changed(partition)

    def stop(self) -> None:
        """Answer all waiting requests and unload all shards."""
        self.is_stopping = True
        for shard in self.shards:
            self._unload(shard)
        self._timer.cancel()

    # -- which shard

    def shard_for(self, group_id: str) -> GroupShard:
        """Return the shard of a group, ready to serve.

        Raises CoordinatorNotAvailable while __consumer_offsets does not exist or this broker shuts
        down, NotCoordinator, and CoordinatorLoadInProgress.
        """
        topic = self._state.topics.get(OFFSETS_TOPIC)
        if topic is None or self.is_stopping:
            raise CoordinatorNotAvailable
        shard = self._shards.get(partition_for(group_id, len(topic.partitions)))
        if shard is None:
            raise NotCoordinator
        if shard.state is ShardState.LOADING:
            raise CoordinatorLoadInProgress
        return shard

    def has_topic(self, name: str) -> bool:
        """Return whether the topic exists, so that offsets of it may be committed."""
        return name in self._state.topics

    @property
    def work(self) -> SlicedWork:
        """The queue of the broker's long jobs, which run in slices on the event loop."""
        return self._replicas.work

    @property
    def shards(self) -> list[GroupShard]:
        """All shards, including those that are loading."""
        return list(self._shards.values())

    # -- appending

    async def append(
        self, shard: GroupShard, batch: bytes | bytearray, *, guard: int | None = None
    ) -> int:
        """Append a batch of `encode_batch`, and return its first offset once it is committed.

        The batch is in the log before the first await of this coroutine, so a check made in the
        same turn of the event loop is still valid. On return the batch has been replayed into the
        shard. The append has acks=all and the origin COORDINATOR (Kafka: AppendOrigin).

        guard: a verification of the batch's transaction (KIP-890). Raises NotCoordinator,
        CoordinatorNotAvailable (too few replicas, or not committed within
        offsets.commit.timeout.ms; the batch may still be committed later), MessageTooLarge,
        RecordListTooLarge, and the errors of the log's producer checks for transactional batches.
        """
        offset, done = self.append_now(shard, batch, guard=guard)
        try:
            await done
        finally:
            # an exception in the future refers to this frame, a reference cycle that keeps the
            # shard
            del done
        return offset

    async def until_settled(self, shard: GroupShard) -> None:
        """Wait until all batches that the shard's log has now are committed and replayed.

        A require_stable fetch must see a transactional offset commit that is still being replicated
        (KIP-447). Raises the errors of `append`.
        """
        self.check_serving(shard)
        await self._wait(shard, shard.partition.log.log_end_offset)

    def append_now(
        self,
        shard: GroupShard,
        batch: bytes | bytearray,
        *,
        guard: int | None = None,
        is_group_record: bool = False,
    ) -> "tuple[int, asyncio.Future[None]]":
        """Append a batch, and return its first offset and a future.

        The future is done when the batch is committed and replayed into the shard. If this method
        raises an error of `append`, the batch has not been appended. is_group_record: the batch
        holds a group's state, so the shard is loaded again if the append times out.
        """
        info = self._append(shard, batch, guard)
        return info.first_offset, self._wait(shard, info.last_offset + 1, is_group_record)

    def append_then(
        self,
        shard: GroupShard,
        batch: bytes | bytearray,
        replayed: Replayed,
        *,
        is_group_record: bool = False,
    ) -> int:
        """Append a batch, and return the next offset after the batch.

        `replayed` is called with None when the batch is committed and replayed into the shard, or
        with the error if the append times out or the shard is unloaded. When many batches are
        committed together, some callbacks run in later turns of the event loop.
        """
        info = self._append(shard, batch)
        self.call_when_replayed(shard, info.last_offset + 1, replayed, is_group_record)
        return info.last_offset + 1

    def call_when_replayed(
        self, shard: GroupShard, next_offset: int, replayed: Replayed, is_group_record: bool = False
    ) -> None:
        """Call `replayed` with None when the shard has replayed all batches before an offset.

        `replayed` is called with the error if the batches are not committed in time or the shard is
        unloaded.
        """
        deadline_ms = self.clock.monotonic_ms() + self._append_timeout_ms

        def settled(error: Exception | None) -> None:
            self.work.share.do(partial(call_safely, replayed, error))

        shard.call_when_replayed(next_offset, deadline_ms, settled, is_group_record)
        self._timer.set(deadline_ms)

    def _append(
        self, shard: GroupShard, batch: bytes | bytearray, guard: int | None = None
    ) -> AppendInfo:
        self.check_serving(shard)
        view = memoryview(bytearray(batch))
        header = decode_header(view)
        if len(view) > shard.partition.log.config.max_message_bytes:
            raise MessageTooLarge
        self._is_appending = True
        try:
            info = self._replicas.append(
                shard.partition, view, header, ACKS_ALL, origin=Origin.COORDINATOR, guard=guard
            )
        except NotEnoughReplicas as error:
            raise CoordinatorNotAvailable(str(error)) from error
        except (NotLeaderOrFollower, KafkaStorageError) as error:
            raise NotCoordinator from error
        finally:
            self._is_appending = False
        if not info.is_duplicate:
            shard.keep(info.first_offset, view)
        return info

    def _wait(
        self, shard: GroupShard, next_offset: int, is_group_record: bool = False
    ) -> "asyncio.Future[None]":
        deadline_ms = self.clock.monotonic_ms() + self._append_timeout_ms
        done = shard.wait_until_replayed(next_offset, deadline_ms, is_group_record)
        self._timer.set(deadline_ms)
        return done

    @staticmethod
    def check_serving(shard: GroupShard) -> None:
        """Raise NotCoordinator unless the shard serves, since the leadership may be lost."""
        if shard.state is not ShardState.SERVING:
            raise NotCoordinator

    # -- leading and resigning

    def _role_changed(self, partition: HostedPartition) -> None:
        if partition.topic != OFFSETS_TOPIC:
            return
        shard = self._shards.get(partition.index)
        if shard is not None:
            is_ours = shard.partition is partition and partition.leader is not None
            if is_ours and shard.leader_epoch == partition.leader_epoch:
                return
            self._unload(shard)
        if partition.leader is None or self.is_stopping or self._is_cut_off(partition):
            return
        self._load(partition)

    def _is_cut_off(self, partition: HostedPartition) -> bool:
        """Return whether this broker is isolated, so that another broker may lead the partition.

        The other broker would expire the members, because their heartbeats arrive here. This broker
        would still confirm their sessions, because a heartbeat appends nothing. So an isolated
        coordinator resigns.
        """
        return partition in self._replicas.stalled

    def _load(self, partition: HostedPartition) -> None:
        shard = GroupShard(partition, self.clock, self._settings, self.topics)
        self._shards[partition.index] = shard
        partition.observer = self._moved
        self._replay(shard, at_once=False)

    def _unload(self, shard: GroupShard) -> None:
        logger.info(
            "%r: this broker is no longer the coordinator of its %d groups",
            shard,
            len(shard.groups),
        )
        shard.state = ShardState.CLOSED
        shard.partition.observer = None
        del self._shards[shard.index]
        self._run("resigning groups", self._releasing(shard))
        shard.fail_waiters(NotCoordinator())

    def _releasing(self, shard: GroupShard) -> Steps[None]:
        """Answer the waiting requests of all groups of an unloaded shard, and free its memory."""
        group_ids = list(shard.groups)
        for start in range(0, len(group_ids), GROUPS_A_STEP):
            turn = shard.turn()
            for group_id in group_ids[start : start + GROUPS_A_STEP]:
                shard.table.remove(group_id, turn, ErrorCode.NOT_COORDINATOR)
            self._execution.answer(turn)
            yield
        yield from shard.offsets.clearing()

    def _moved(self, partition: HostedPartition) -> None:
        """Replay the records of a partition that are now committed into its shard.

        The shard is unloaded instead if this broker has lost the leadership or is isolated.
        """
        shard = self._shards[partition.index]
        if partition.leader is None or self._is_cut_off(partition):
            self._unload(shard)
        else:
            is_serving = shard.state is ShardState.SERVING
            self._replay(shard, at_once=is_serving and not self._is_appending)

    def _replay(self, shard: GroupShard, *, at_once: bool = True) -> None:
        """Replay committed records. A replay that is already running includes them."""
        if not shard.is_replaying:
            shard.is_replaying = True
            self._run("replaying groups", self._replaying(shard), at_once=at_once)

    def _run(self, name: str, steps: Steps[None], *, at_once: bool = True) -> None:
        """Run the first of the steps now, and the rest in slices. Short work is complete on return.

        The first steps stay within the time budget of one turn of the event loop, because one fetch
        of a follower may raise the high watermarks of many partitions. Without `at_once` all steps
        run in slices.
        """
        share = self.work.share
        for _ in range(STEPS_AT_ONCE if at_once else 0):
            if not share.has_room():
                break
            is_done = next(steps, self) is self
            share.ended()
            if is_done:
                return
        self.work.run(name, steps)

    def _replaying(self, shard: GroupShard) -> Steps[None]:
        try:
            while True:
                yield from shard.replaying()
                if shard.state is not ShardState.LOADING or shard.replayed < shard.load_until:
                    return
                yield from self._beginning_to_serve(shard)
        except KafkaStorageError:
            self._replicas.fail(shard.partition)
        except Exception:
            # The broker continues without this partition's groups.
            logger.exception("%r cannot read its log", shard)
            if shard.state is not ShardState.CLOSED:
                self._unload(shard)
        finally:
            shard.is_replaying = False

    def _beginning_to_serve(self, shard: GroupShard) -> Steps[None]:
        turns = []
        group_ids = shard.loaded_groups()
        for start in range(0, len(group_ids), GROUPS_A_STEP):
            turn = shard.turn()
            shard.on_loaded(group_ids[start : start + GROUPS_A_STEP], turn)
            for steps in turn.steps:
                yield from steps
            turn.steps.clear()
            if turn.appends or turn.answers or turn.notes or turn.failures:
                turns.append(turn)
            yield
            if shard.state is ShardState.CLOSED:
                return
        shard.state = ShardState.SERVING
        logger.info(
            "%r: this broker is now the coordinator of its %d groups", shard, len(shard.groups)
        )
        for turn in (*turns, shard.turn()):
            self.execute(shard, turn)
        shard.free_waiters()

    # -- execution of a turn

    def decide(self, shard: GroupShard, group_id: str, decide: Callable[[Turn], Result]) -> Result:
        """Call `decide`, a rule of groups that fills a `Turn`, and execute the turn.

        Returns the result of `decide`, or raises its error. After an error other than a KafkaError
        a classic group is removed. Its members get UNKNOWN_SERVER_ERROR, and may join again. A
        consumer group stays.
        """
        turn = shard.turn()
        try:
            return decide(turn)
        except KafkaError:
            raise
        except Exception as error:
            shard.table.set_aside(group_id, turn, error)
            raise
        finally:
            self.execute(shard, turn)

    def execute(self, shard: GroupShard, turn: Turn) -> None:
        """Send the answers and append the records of `turn`, and set the timer of deadlines.

        turn: the outcome of one request or deadline, by the rules of groups.
        """
        self._execution.execute(shard, turn)
        if (next_ms := shard.table.deadlines.next_ms) is not None:
            self._timer.set(next_ms)

    # -- time

    def _due(self) -> None:
        now_ms, left = self.clock.monotonic_ms(), DEADLINES_AT_ONCE
        for shard in list(self._shards.values()):
            try:
                left -= self._meet_deadlines(shard, now_ms, left)
            except Exception:
                logger.exception(
                    "%r: handling a deadline failed, so the shard is loaded again", shard
                )
                self.load_anew(shard)
            next_ms = shard.next_look_ms(now_ms)
            if shard.state is not ShardState.CLOSED and next_ms is not None:
                self._timer.set(next_ms)

    def _meet_deadlines(self, shard: GroupShard, now_ms: int, count_max: int) -> int:
        """Handle at most `count_max` expired deadlines of a shard's groups. Return their number.

        If an append of a group's record has timed out, the shard is loaded again instead.
        """
        if shard.fail_waiters(CoordinatorNotAvailable(), until_ms=now_ms):
            # The record may or may not be committed later, so the shard is loaded again from its
            # log.
            logger.warning(
                "%r: a record of a group was not replicated in time, so the shard is loaded again",
                shard,
            )
            self.load_anew(shard)
            return 0
        if shard.state is not ShardState.SERVING:
            return 0
        # the remaining deadlines are handled in the next turn, since they stay overdue
        for count in range(count_max):
            turn, is_first = shard.turn(), count_max - count == DEADLINES_AT_ONCE
            may_begin = is_first or self.work.share.has_room()
            # One deadline in each turn object, so that each one sees the changes of the one before.
            if not may_begin or not shard.table.due(turn, 1):
                return count
            self.execute(shard, turn)
            self.work.share.ended()
        return max(0, count_max)

    def load_anew(self, shard: GroupShard) -> None:
        self._unload(shard)
        self._role_changed(shard.partition)
