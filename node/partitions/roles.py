"""The roles of local replicas, from the replicated metadata.

The metadata is applied on every node in the same order, so this file needs no messages. It compares
the metadata with the hosted replicas, and applies the difference. `apply` collects the changed
partitions. Each is compared with the metadata of the time when it is settled, so that several
changes of a partition may be applied together.

* A few partitions with open logs are settled in the same turn of the event loop, many in slices.
  Until its slice a former leader acts as if it had not received the change, which the protocol
  allows: followers with another epoch refuse it, and the controller refuses its proposals.
* All partitions of a deleted topic are dropped in one turn, because a topic of the same name may
  follow, and no record for it may be acknowledged into the old log.
* A thread opens and removes logs (`logs`). A partition is hosted when its log is open. Until then
  requests of clients wait, for at most a second (`awaited_leaders`), and so do followers.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Iterable
from concurrent.futures import Executor
from itertools import islice

from ...coordinator.metadata.cluster_model import NO_LEADER, Changes, PartitionRegistration, Topic
from ...coordinator.metadata.cluster_state import ClusterState
from ...runtime.background_task import background_task
from ...runtime.sliced_work import Steps
from ...storage.partition_log import PartitionLog
from ...storage.segments.damage import Damaged, SteppedDown
from ...wire.errors import ErrorCode, KafkaStorageError
from ...wire.identifiers import TopicPartition
from .hosted_partition import HostedPartition
from .logs import DirectoryOutcome, Logs, in_words, is_damage, is_temporary
from .replica_fetchers import ReplicaFetchers
from .replica_manager import ReplicaManager

logger = logging.getLogger(__name__)
SETTLED_AT_ONCE_MAX = 16  # partitions, in about 2 ms
RETRY_S = 0.1
REOPEN_S = 1.0
JOBS_AT_A_TIME = 16  # jobs given to the thread at a time, after which their logs are served


class PartitionRoles:
    """The roles of one broker's replicas."""

    def __init__(
        self,
        *,
        node_id: int,
        state: ClusterState,
        replicas: ReplicaManager,
        logs: Logs,
        fetchers: ReplicaFetchers,
        lag_time_max_ms: int,
        executor: Executor,
    ) -> None:
        self.broker_epoch = -1
        self._node_id = node_id
        self._state = state
        self._replicas = replicas
        self._logs = logs
        self._fetchers = fetchers
        self._lag_time_max_ms = lag_time_max_ms
        self._work = replicas.work
        self._executor = executor
        # Dropped partitions that are still to be cleaned up.
        self._left: deque[HostedPartition] = deque()
        self._waiting: dict[TopicPartition, None] = {}  # partitions to be settled
        self._for_thread: dict[TopicPartition, None] = {}  # logs to be opened or removed
        self._removed: set[TopicPartition] = set()  # logs of `_for_thread` to be removed first
        self._waits_for_look: set[TopicPartition] = set()
        # Logs assigned to this broker that could not be opened.
        self._unusable: set[TopicPartition] = set()
        self._is_waiting, self._is_for_thread = asyncio.Event(), asyncio.Event()
        self._is_stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._awaited = replicas.awaited
        self._awaited.is_awaited = self._is_awaited

    async def start(self, broker_epoch: int) -> None:
        """Host every replica that the metadata assigns to this broker, and rename all other logs.

        A renamed log is deleted later, except one of an unknown topic. Returns when each assigned
        replica is served, or could not be opened.

        Call it when this broker is registered and has applied the metadata up to its registration.
        """
        self.broker_epoch = broker_epoch
        self._replicas.peers.live = self._state.live_brokers
        self._waiting = dict.fromkeys(self._state.partitions_held_by(self._node_id))
        while self._waiting or self._left or self._for_thread:
            await self._settle_in_slices()
            await self._do_jobs()
        loop, directory = asyncio.get_running_loop(), self._logs.directory
        found = directory.found.union(directory.set_aside_partitions)
        unplaced = [key for key in sorted(found) if self._placed(key) is None]
        named = (self._state.topics.get(name) for name, _ in unplaced)
        directory.known_elsewhere.update(topic.topic_id for topic in named if topic is not None)
        await loop.run_in_executor(self._executor, self._logs.remove_unplaced, unplaced)
        for key in unplaced:
            self._logs.remove_partition(key)
            self._logs.damaged.words.pop(key, None)
        await loop.run_in_executor(self._executor, directory.note_recovered)
        self._tasks = [
            background_task("partition roles", self._settle_for_ever()),
            background_task("partition directories", self._do_jobs_for_ever()),
        ]
        for key in self._waits_for_look:
            loop.call_later(REOPEN_S, self._look_again, key)

    async def stop(self) -> None:
        """Stop following the metadata, finish removals, and wait for the thread's running jobs."""
        self._is_stopping = True
        self._awaited.close()
        self._is_waiting.set()
        self._is_for_thread.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- changes

    def apply(self, changes: Changes) -> None:
        """Apply one change of the metadata, but before `start` only collect deleted topics."""
        own_configs_changed = self._node_id in changes.broker_configs_changed
        all_logs_changed = changes.cluster_configs_changed or own_configs_changed
        self._logs.configs_changed(None if all_logs_changed else _names_in(changes))
        if self.broker_epoch < 0:
            deleted = (topic_id for _, topic_id in changes.topics_deleted)
            self._logs.directory.known_elsewhere.update(deleted)
            return
        if self._is_stopping:
            return
        if changes.brokers_changed:
            self._replicas.peers.live = self._state.live_brokers
        for name, topic_id in changes.topics_deleted:
            unhosted = self._unusable.union(self._logs.damaged.stopped_logs)
            for key in [key for key in unhosted if key[0] == name]:
                self._remove_log(key)
            self._awaited.topic_deleted(name)
            for hosted in self._replicas.remove_topic(topic_id):
                hosted.leader = hosted.follower = None
                self._left.append(hosted)
        keys = dict.fromkeys(changes.partitions_changed)
        for name in (*changes.topics_created, *changes.configs_changed):
            topic = self._state.topics.get(name)
            if topic is not None:
                keys.update(((name, index), None) for index in range(len(topic.partitions)))
        if all_logs_changed:
            keys.update(((hosted.topic, hosted.index), None) for hosted in self._replicas)
        self._look_at(keys)
        if changes.brokers_changed:
            self._replicas.in_sync.look_at_unsettled()

    def _look_at(self, keys: dict[TopicPartition, None]) -> None:
        if self._is_stopping:
            return
        if len(self._left) <= SETTLED_AT_ONCE_MAX:
            while self._left:
                self._clear_up(self._left.popleft())
        if len(keys) <= SETTLED_AT_ONCE_MAX:
            for key in keys:
                self._settle(key)
        else:
            self._waiting.update(keys)
        if self._waiting or self._left:
            self._is_waiting.set()

    def _look_later(self, key: TopicPartition, delay_s: float) -> None:
        """Compare a partition with the metadata again after a delay, unless already planned.

        During `start` the delay begins when `start` ends. If it began earlier, the attempts to open
        many logs could take longer than the delay, so that `start` would never end.
        """
        if key not in self._waits_for_look:
            self._waits_for_look.add(key)
            if self._tasks:
                asyncio.get_running_loop().call_later(delay_s, self._look_again, key)

    def _look_again(self, key: TopicPartition) -> None:
        self._waits_for_look.discard(key)
        self._look_at({key: None})

    # -- in slices

    async def _settle_for_ever(self) -> None:
        while not self._is_stopping or self._left:
            await self._is_waiting.wait()
            self._is_waiting.clear()
            await self._settle_in_slices()

    def _settle_in_slices(self) -> Awaitable[None]:
        return self._work.run("partition roles", self._settle_all())

    def _settle_all(self) -> Steps[None]:
        while self._left or self._waiting:
            while self._left:
                self._clear_up(self._left.popleft())
                yield
            waiting, self._waiting = self._waiting, {}
            for key in waiting:
                self._settle(key)
                yield

    def _placed(self, key: TopicPartition) -> Topic | None:
        """Return the topic of a partition if the metadata assigns the partition to this broker."""
        name, index = key
        record = self._state.partition(name, index)
        is_here = record is not None and self._node_id in record.replicas
        return self._state.topics[name] if is_here else None

    def _is_awaited(self, name: str, index: int) -> bool:
        """Return whether the metadata makes this broker a leader that will serve soon."""
        record = self._state.partition(name, index)
        if record is None or record.leader != self._node_id or (name, index) in self._unusable:
            return False
        hosted = self._replicas.get(name, index)
        return hosted is None or (hosted.leader is None and not hosted.log.is_failed)

    def _settle(self, key: TopicPartition) -> None:
        """Apply the current metadata to one replica, and wake the requests that wait for it."""
        self._bring_up_to_date(key)
        self._awaited.settled(*key)

    def _bring_up_to_date(self, key: TopicPartition) -> None:
        topic, hosted = self._placed(key), self._replicas.get(*key)
        if hosted is not None and (topic is None or hosted.topic_id != topic.topic_id):
            self._replicas.remove(hosted)
            self._clear_up(hosted)
            hosted = None
        if topic is None:
            if key in self._unusable or key in self._logs.damaged.stopped_logs:
                self._remove_log(key)
            return
        if hosted is None:
            self._have_done(key)
        elif hosted.log.is_failed and not self._revived(hosted, topic.partitions[hosted.index]):
            pass
        else:
            hosted.log.config = self._logs.config_of(topic)
            self._replicas.written.add(hosted)  # flush.ms may have changed
            try:
                self._play(hosted, topic, topic.partitions[hosted.index])
            except KafkaStorageError as error:
                logger.error("%r: %s", hosted, error)
                self._replicas.disk.note(error)
                self._replicas.fail(hosted)
                if not hosted.log.is_failed:  # the process has too many open files
                    self._look_later(key, RETRY_S)

    def _revived(self, hosted: HostedPartition, record: PartitionRegistration) -> bool:
        """Return whether a failed log is served again, because no other replica is in sync.

        If it is not served again, a damaged log is handed over to its repair while another replica
        leads. A log that cannot be repaired now is reported to the controller.
        """
        failure = hosted.log.disk_failure
        # The leader epoch is newer than the replica's.
        is_unknown = record.leader_epoch > hosted.leader_epoch
        if isinstance(failure, Damaged) and is_unknown and self._is_led_elsewhere(record):
            self._replicas.remove(hosted)
            self._fetchers.stop_following(hosted)
            hosted.leader = hosted.follower = None
            key = hosted.topic, hosted.index
            self._logs.damaged.stopped(key, hosted.log)
            self._have_done(key)
        elif isinstance(failure, SteppedDown) and record.isr == (self._node_id,):
            hosted.log.local.disk.failure, hosted.leader_id = None, NO_LEADER
            return True  # no other replica is in sync, so this one serves its intact records
        elif record.leader == self._node_id or (
            isinstance(failure, Damaged) and record.leader != NO_LEADER
        ):
            # The replica was elected although it has failed, or no new leader epoch has begun.
            self._replicas.failed_logs.report(*hosted.key)
        return False

    def _is_led_elsewhere(self, record: PartitionRegistration | None) -> bool:
        """Return whether this replica may be deleted and copied from the leader again.

        A replica in the ISR or ELR may not, because it might be elected with its empty log. A
        replica in the last known ELR may, because it is elected only when no other replica has all
        records.
        """
        return (
            record is not None
            and record.leader not in (NO_LEADER, self._node_id)
            and self._node_id not in (*record.isr, *record.elr)
        )

    def _clear_up(self, hosted: HostedPartition) -> None:
        """Release the requests that wait for a dropped replica, and remove its log.

        Other replicas of a moved partition still have the waiting batches. So only a deleted
        partition is answered with UNKNOWN_TOPIC_OR_PARTITION, which clients understand as "not
        written".
        """
        self._replicas.let_go(hosted)
        self._fetchers.stop_following(hosted)
        hosted.leader = hosted.follower = None
        topic = self._state.topics.get(hosted.topic)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is not None and topic.topic_id == hosted.topic_id:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._replicas.release_waiters(hosted, error)
        self._remove_log((hosted.topic, hosted.index))

    def _remove_log(self, key: TopicPartition) -> None:
        self._unusable.discard(key)
        self._logs.remove_partition(key)
        self._removed.add(key)
        self._have_done(key)

    # -- in the thread

    def _have_done(self, key: TopicPartition) -> None:
        self._for_thread[key] = None
        self._is_for_thread.set()

    async def _do_jobs_for_ever(self) -> None:
        while not self._is_stopping or self._for_thread:
            await self._is_for_thread.wait()
            await self._do_jobs()

    async def _do_jobs(self) -> None:
        """Run the next jobs on partition directories in a thread, and apply their outcomes."""
        if self._left:  # remove their directories before new ones with the same names are created
            await self._settle_in_slices()
        jobs = []
        for key in list(islice(self._for_thread, JOBS_AT_A_TIME)):
            del self._for_thread[key]
            is_removed = key in self._removed
            self._removed.discard(key)
            topic = self._placed(key)
            if self._is_stopping or self._replicas.get(*key) is not None:
                topic = None
            is_led_elsewhere = self._is_led_elsewhere(self._state.partition(*key))
            if topic is not None and not is_removed and not is_led_elsewhere:
                log = self._logs.damaged.give_back(key)
                if log is not None:  # the replica was elected before its repair
                    self._is_usable(key, topic.topic_id)
                    self._replicas.add(HostedPartition(*key, topic.topic_id, log))
                    self._settle(key)
                    topic = None
            if is_removed or topic is not None:
                jobs.append(
                    self._logs.job(
                        key, topic, is_removed=is_removed, is_led_elsewhere=is_led_elsewhere
                    )
                )
        if not self._for_thread:
            self._is_for_thread.clear()
        if jobs:
            loop = asyncio.get_running_loop()
            outcomes = await loop.run_in_executor(self._executor, self._logs.run_jobs, jobs)
            await self._work.run("opened logs", self._apply_outcomes(outcomes))

    def _apply_outcomes(self, outcomes: Iterable[DirectoryOutcome]) -> Steps[None]:
        """Host the opened logs that are still assigned to this broker."""
        for key, topic_id, opened, again in outcomes:
            topic = self._placed(key)
            is_open = isinstance(opened, PartitionLog)
            if not is_open and key not in self._unusable:
                logger.error("%s-%d cannot be opened: %s", *key, in_words(opened))
            # A partition that moved away and back has a directory that is still to be removed.
            if topic is None or topic.topic_id != topic_id or key in self._removed:
                if is_open:
                    opened.local.retire()
                self._remove_log(key)
            elif is_open:
                self._logs.damaged.unusable.discard(key)
                self._is_usable(key, topic_id)
                self._logs.opened(opened, topic)
                self._replicas.add(HostedPartition(*key, topic_id, opened))
                self._settle(key)
            else:
                if is_damage(opened):
                    self._logs.damaged.cannot_open(key, in_words(opened))
                elif again is not None:
                    self._logs.damaged.try_again(key, again)
                is_retried = is_temporary(opened)
                self._replicas.disk.note(opened, is_log_lost=not is_retried)
                self._cannot_open(key, topic_id, is_retried)
            yield

    def _is_usable(self, key: TopicPartition, topic_id: bytes) -> None:
        """Note that a log was opened. Withdraw an earlier report that it could not be opened."""
        if key in self._unusable:
            self._unusable.discard(key)
            self._replicas.failed_logs.withdraw(topic_id, key[1])

    def _cannot_open(self, key: TopicPartition, topic_id: bytes, may_pass: bool) -> None:
        """Report a log that cannot be opened to the controller, and try again if that may help.

        A replica outside of the ISR and the ELR is not reported. The only replica in the ISR is
        reported only after a permanent error.
        """
        record = self._state.partition(*key)
        is_alone = record is not None and set(record.isr) <= {self._node_id}
        is_damaged = key in self._logs.damaged.unusable
        is_candidate = record is not None and self._node_id in (*record.isr, *record.elr)
        if is_candidate and (not may_pass or not (is_alone or key in self._unusable)):
            self._replicas.failed_logs.report(topic_id, key[1])
        self._unusable.add(key)
        self._awaited.settled(*key)
        if is_damaged and self._is_led_elsewhere(record):
            self._have_done(key)
        if may_pass:
            self._look_later(key, REOPEN_S)

    # -- one partition

    def _play(self, hosted: HostedPartition, topic: Topic, record: PartitionRegistration) -> None:
        if self._logs.damaged.words and self._node_id in record.isr:
            if len(record.isr) > 1:
                self._logs.damaged.in_sync((hosted.topic, hosted.index), hosted.log)
            else:
                self._logs.damaged.leads_alone((hosted.topic, hosted.index))
        now_ms = self._replicas.clock.monotonic_ms()
        min_insync_replicas = self._state.min_insync_replicas(topic)
        if record.leader == self._node_id:
            if hosted.leader is not None and hosted.leader_epoch == record.leader_epoch:
                hosted.partition_epoch = record.partition_epoch
                hosted.replicas = record.replicas
                raised = hosted.leader.metadata_applied(
                    isr=record.isr,
                    partition_epoch=record.partition_epoch,
                    now_ms=now_ms,
                    replicas=record.replicas,
                    min_insync_replicas=min_insync_replicas,
                )
                self._replicas.raise_high_watermark(hosted, raised)
                self._replicas.in_sync.isr_may_change(hosted)
                return
            self._fetchers.stop_following(hosted)
            if hosted.log.flushing.is_cut_unsynced:  # elected just after a truncation
                hosted.wait_for_a_leader(record)
                key = topic.name, hosted.index
                self._replicas.flusher.flush(hosted, lambda: self._look_at({key: None}))
                return
            hosted.lead(
                record,
                node_id=self._node_id,
                broker_epoch=self.broker_epoch,
                min_insync_replicas=min_insync_replicas,
                peers=self._replicas.peers,
                now_ms=now_ms,
                lag_time_max_ms=self._lag_time_max_ms,
            )
            assert hosted.leader is not None
            if hosted.log.flushing.is_owed:
                self._replicas.flusher.flush(hosted)
            self._replicas.raise_high_watermark(hosted, hosted.leader.tick(now_ms))
            self._replicas.in_sync.isr_may_change(hosted)
            self._replicas.role_changed(hosted)
            return
        if hosted.leader_epoch == record.leader_epoch and hosted.leader_id == record.leader:
            hosted.partition_epoch = record.partition_epoch
            hosted.replicas = record.replicas
            return
        led_before = hosted.leader is not None
        self._fetchers.stop_following(hosted)
        if record.leader == NO_LEADER:
            hosted.wait_for_a_leader(record)
        else:
            hosted.follow(record)
            self._fetchers.follow(hosted)
        self._replicas.role_changed(hosted)
        if led_before:
            self._replicas.release_waiters(hosted, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _names_in(changes: Changes) -> set[str]:
    """Return the topics that were reconfigured or deleted."""
    return changes.configs_changed | {name for name, _ in changes.topics_deleted}
