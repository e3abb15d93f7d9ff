"""The replicas that this broker hosts, and the consequences of their changes.

Three events change a partition: an append, a follower's fetch, a change of the metadata. Each has
the same consequences here: waiting followers are served, the high watermark is raised, and the
requests that waited for it are completed. Followers are served once per turn of the event loop,
however many batches that turn appended, so a burst becomes one answer.

Everything runs on the broker's event loop; only fsync is elsewhere (`log_flusher`).
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterator
from functools import partial

from ...replication.delayed_operations import DelayedFetch, DelayedProduce
from ...replication.follower_progress import PeerView
from ...replication.purgatory import Purgatory
from ...runtime.earliest_timer import EarliestTimer
from ...runtime.fault_point import FaultPoint, no_fault_point
from ...runtime.rate_limited_log import LimitedLog
from ...runtime.sliced_work import SlicedWork
from ...storage.compaction.log_cleaner import LogCleaner
from ...storage.partition_log import AppendInfo, Origin
from ...storage.segments.damage import SteppedDown
from ...storage.segments.recent_writes import NO_RECENT_WRITES, RecentWrites
from ...wire.errors import (
    ErrorCode,
    KafkaStorageError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ...wire.identifiers import TopicPartition
from ...wire.record_batch import BatchHeader
from ..clock import Clock
from ..traffic import Traffic
from .awaited_leaders import AwaitedLeaders
from .checkpoint_writer import CheckpointWriter
from .hosted_partition import ACKS_ALL, HostedPartition
from .log_flusher import LogFlusher
from .ports import DiskReport, FailedLogs, Followers, InSyncReplicas

logger = logging.getLogger(__name__)


def nothing() -> None:
    """Ignore the failure of a log that is not hosted any more."""


class ReplicaManager:
    """All replicas of one broker, by name and by topic id."""

    def __init__(
        self,
        *,
        clock: Clock,
        partition_exists: Callable[[str, int], bool],
        fault_point: FaultPoint = no_fault_point,
        work: SlicedWork | None = None,
    ) -> None:
        self.work = work or SlicedWork()
        self.peers = PeerView()
        self.purgatory = Purgatory()
        self.clock = clock
        self._loop = asyncio.get_running_loop()
        self.partition_exists = partition_exists
        self._fault_point = fault_point
        self._by_name: dict[TopicPartition, HostedPartition] = {}
        self._by_id: dict[tuple[bytes, int], HostedPartition] = {}
        # (topic id, index) -> the replica, if it is hosted here.
        self.get_by_id = self._by_id.get
        self._by_topic: dict[bytes, set[int]] = {}  # topic id -> the indexes hosted
        self.traffic = Traffic()
        self._changed: list[HostedPartition] = []
        self._recent_writes = RecentWrites()
        self.stalled: frozenset[HostedPartition] = frozenset()  # see `isolated_leader`
        # Led partitions whose ISR may change without an event: see `isr_proposer`.
        self.unsettled: dict[HostedPartition, None] = {}
        self.written: set[HostedPartition] = set()  # since `log_maintenance` looked last
        self.checkpoints: tuple[CheckpointWriter, ...] = ()  # those that are lowered before a cut
        self.cleaner: LogCleaner | None = None
        self.flusher = LogFlusher(flushed=self._flushed, failed=self.fail)
        self._expiry = EarliestTimer(clock.monotonic_ms, self._expire)
        self.followers, self.in_sync = Followers(), InSyncReplicas()
        self.failed_logs = FailedLogs()
        self.disk = DiskReport()
        self.awaited = AwaitedLeaders(clock.monotonic_ms)
        self.role_listeners: list[Callable[[HostedPartition], None]] = []
        self._limited_log = LimitedLog(logger)

    # -- the table

    def __iter__(self) -> Iterator[HostedPartition]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, topic: str, index: int) -> HostedPartition | None:
        """Return the replica, if it is hosted here."""
        return self._by_name.get((topic, index))

    def add(self, partition: HostedPartition) -> None:
        """Host a replica from now on."""
        partition.log.local.disk.on_failure = lambda: self._loop.call_soon_threadsafe(
            self.fail, partition
        )
        partition.log.damage.on_found = lambda: self._damaged(partition)
        # `log_maintenance` rebuilds an index when it checks the written logs.
        partition.log.aborted_transactions.on_damaged = lambda: self.written.add(partition)
        partition.log.segments.recent = self._recent_writes
        self._by_name[partition.topic, partition.index] = partition
        self._by_id[partition.key] = partition
        self._by_topic.setdefault(partition.topic_id, set()).add(partition.index)
        partition.traffic = self.traffic.of(partition.topic_id, partition.topic)
        self.written.add(partition)  # it may have many records that were not flushed

    def remove(self, partition: HostedPartition) -> None:
        """Host a replica no longer; the caller calls `release_waiters`."""
        self._by_name.pop((partition.topic, partition.index), None)
        self._by_id.pop(partition.key, None)
        indexes = self._by_topic.get(partition.topic_id, set())
        indexes.discard(partition.index)
        if not indexes:
            self._by_topic.pop(partition.topic_id, None)
            self.traffic.drop(partition.topic_id)
        self.let_go(partition)

    def remove_topic(self, topic_id: bytes) -> list[HostedPartition]:
        """Host no partition of a topic any longer; return those that were hosted.

        None is found from now on. The caller releases each of them later, since there may be
        thousands.
        """
        hosted = []
        for index in sorted(self._by_topic.pop(topic_id, ())):
            partition = self._by_id.pop((topic_id, index))
            self._by_name.pop((partition.topic, index), None)
            hosted.append(partition)
        self.traffic.drop(topic_id)
        return hosted

    def let_go(self, partition: HostedPartition) -> None:
        """Release the log of a partition that is hosted no longer."""
        self.unsettled.pop(partition, None)
        self.written.add(partition)  # for the last time
        partition.log.local.disk.on_failure = partition.log.damage.on_found = nothing
        partition.log.aborted_transactions.on_damaged = nothing
        partition.log.segments.drop_cached_reads()
        partition.log.segments.recent = NO_RECENT_WRITES

    def partition(self, topic: str, index: int) -> HostedPartition:
        """Return the replica for a client's request by name, or raise Kafka's error."""
        hosted = self._by_name.get((topic, index))
        if hosted is None:
            if self.partition_exists(topic, index):
                raise NotLeaderOrFollower(f"{topic}-{index} is not on this broker")
            raise UnknownTopicOrPartition
        return hosted

    def partition_by_id(self, topic_id: bytes, topic: str | None, index: int) -> HostedPartition:
        """Return the replica by topic id (KIP-516); `topic` is its name in the metadata."""
        if topic is None:
            raise UnknownTopicId
        hosted = self._by_id.get((topic_id, index))
        return self.partition(topic, index) if hosted is None else hosted

    # -- events of a partition

    def append(
        self,
        partition: HostedPartition,
        records: memoryview,
        header: BatchHeader,
        acks: int,
        *,
        origin: Origin = Origin.CLIENT,
        guard: int | None = None,
        transaction_version: int = 0,
        prepare_index: int = 0,
    ) -> AppendInfo:
        """Append a validated batch, and serve the followers that wait for it.

        A duplicate appends nothing and is answered with its first offsets; with acks=all it
        waits for the same high watermark (the caller uses `wait_key`). `origin` and the arguments
        behind it are those of PartitionLog.append_as_leader. Raises NotEnoughReplicas before
        anything is written when acks=all cannot be satisfied.
        """
        if self.stalled and acks == ACKS_ALL and partition in self.stalled:
            raise NotLeaderOrFollower("this broker is cut off: another leads by now, or soon")
        try:
            leader = partition.leader
            if leader is None or partition.log.disk_failure is not None:
                leader = partition.leading()
            if acks == ACKS_ALL and leader.is_under_min_isr:
                raise NotEnoughReplicas(
                    f"{partition} has {len(leader.isr)} in-sync replicas,"
                    f" min.insync.replicas is {leader.min_insync_replicas}"
                )
            info = partition.log.append_as_leader(
                records,
                header,
                leader_epoch=leader.leader_epoch,
                now_ms=self.clock.wall_ms(),
                origin=origin,
                guard=guard,
                transaction_version=transaction_version,
                prepare_index=prepare_index,
            )
        except KafkaStorageError as error:
            self.disk.note(error)
            self.fail(partition)
            raise
        if not info.is_duplicate:
            self.appended(partition, len(records))
        return info

    def appended(self, partition: HostedPartition, size_bytes: int) -> None:
        """React to an append to a log that we lead."""
        leader, log = partition.leader, partition.log
        assert leader is not None
        partition.note_unseen(size_bytes)
        self.written.add(partition)
        is_flushed = log.log_end_offset - log.flushing.recovery_point < log.config.flush_messages
        if not is_flushed:
            self.flusher.flush(partition)  # due before the acknowledgement
        now_ms = self.clock.monotonic_ms()
        raised = leader.appended(log.log_end_offset, now_ms, is_flushed=is_flushed)
        if raised is not None:
            self.raise_high_watermark(partition, raised)
        if leader.followers and not partition.is_changed:
            partition.is_changed = True
            if not self._changed:
                self._loop.call_soon(self._serve_followers)
            self._changed.append(partition)

    def _serve_followers(self) -> None:
        changed, self._changed = self._changed, []
        for partition in changed:
            partition.is_changed = False
            self.unsettled[partition] = None
        self.followers.appended(changed)

    def raise_high_watermark(self, partition: HostedPartition, offset: int | None) -> None:
        """Raise the high watermark to an offset, and complete the requests that waited for it.

        None leaves it unchanged.
        """
        if offset is None:
            return
        if self._fault_point is no_fault_point:
            partition.log.advance_high_watermark(offset)
        else:
            self._fault_point("replica.before-high-watermark")
            partition.log.advance_high_watermark(offset)
            self._fault_point("replica.after-high-watermark")
        for produce in self.purgatory.advance(partition, offset):
            self._free(produce)
        self.followers.offsets_moved(partition)
        seen_bytes = partition.take_seen(offset)
        freed = self.purgatory.made_visible(partition, offset, seen_bytes, partition.stable_end)
        for fetch in freed:
            self._free(fetch)
        if partition.observer is not None:
            partition.observer(partition)

    def truncated(self, partition: HostedPartition, end_offset: int) -> None:
        """React to a truncation of the log to this offset."""
        if self.cleaner is not None:
            self.cleaner.truncated(partition.topic, partition.index, end_offset)

    def _flushed(self, partition: HostedPartition) -> None:
        """React to a flush of our log: our own copy may raise the high watermark."""
        leader = partition.leader
        if leader is None:
            return
        raised = leader.flushed(partition.log.flushing.own_end_offset, self.clock.monotonic_ms())
        self.raise_high_watermark(partition, raised)
        for produce in self.purgatory.advance(partition.flushed_key, leader.own_end_offset):
            self._free(produce)

    def role_changed(self, partition: HostedPartition) -> None:
        """React to the begin or the end of a leadership."""
        self.followers.role_changed(partition)
        for fetch in self.purgatory.wake_standing(partition):
            self._free(fetch)
        for listener in self.role_listeners:
            listener(partition)

    def note_stalled(self, stalled: frozenset[HostedPartition]) -> None:
        """Set the partitions that take no writes now; report those that take them again."""
        before, self.stalled = self.stalled, stalled
        for partition in before - stalled:
            for listener in self.role_listeners:
                listener(partition)

    def release_waiters(self, partition: HostedPartition, error: int) -> None:
        """Fail waiting produces with the error, and let fetches read again: we lead no longer."""
        for key in (partition, partition.flushed_key):
            for produce in self.purgatory.fail_produces(key, error):
                self._free(produce)
        for fetch in self.purgatory.wake_fetches(partition):
            self._free(fetch)
        if partition.observer is not None:
            partition.observer(partition)

    def fail(self, partition: HostedPartition) -> None:
        """Acknowledge nothing more after a failure of the disk; report that another must lead."""
        if not partition.log.is_failed or partition.leader_id == -2:
            return
        if self._by_id.get(partition.key) is not partition:
            return  # its log is only retired
        if (failure := partition.log.disk_failure) is not None:
            self.disk.note(failure, is_log_lost=True)
        logger.error("storage of %r failed; this broker steps down from it", partition)
        partition.leader_id = -2
        partition.leader = partition.follower = None
        self.release_waiters(partition, ErrorCode.KAFKA_STORAGE_ERROR)
        self.awaited.settled(partition.topic, partition.index)
        self.failed_logs.report(*partition.key)

    def _damaged(self, partition: HostedPartition) -> None:
        """Step down because of a damaged file, if another replica is in sync.

        The last replica in sync continues: it serves the intact records, and refuses the rest.
        """
        leader, disk = partition.leader, partition.log.local.disk
        is_last = leader is not None and leader.isr <= {leader.node_id}
        has_part = leader is not None or partition.follower is not None
        if has_part and not is_last and disk.failure is None:
            disk.failure = SteppedDown(partition.log.damage.words)
            self._loop.call_soon(self.fail, partition)

    # -- requests that wait

    @staticmethod
    def wait_key(partition: HostedPartition, info: AppendInfo, acks: int) -> Hashable | None:
        """Return the key of a wait: acks=all waits for the commit, acks=1 for a flush that is due.

        None when the batch may be acknowledged now.
        """
        if acks == ACKS_ALL:
            return partition if partition.log.high_watermark <= info.last_offset else None
        leader = partition.leader
        is_flushed = leader is None or info.last_offset < leader.own_end_offset
        return None if is_flushed else partition.flushed_key

    def wait_produce(self, operation: DelayedProduce) -> None:
        """Let a produce wait for the high watermark; its context is called when it is done."""
        self.purgatory.watch_produce(operation)
        if operation.deadline_ms < self._expiry.at_ms:
            self._expiry.set(operation.deadline_ms)

    def wait_fetch(self, operation: DelayedFetch) -> None:
        """Let a fetch wait for bytes; its context is called when it is done."""
        self.purgatory.watch_fetch(operation)
        self._expiry.set(operation.deadline_ms)

    def note_unreadable(self, topic: str | None, index: int, error: Exception) -> None:
        """Log an unexpected error of reading a partition."""
        self._limited_log.log(
            logging.ERROR,
            "partitions that cannot be read",
            self._loop.time(),
            "partition %d of topic %r cannot be read: %r",
            index,
            topic,
            error,
            error=error,
        )

    def free_fetch(self, operation: DelayedFetch) -> None:
        """Let a waiting fetch read again now."""
        for fetch in self.purgatory.free_fetch(operation):
            self._free(fetch)

    def log_start_moved(self, partition: HostedPartition) -> None:
        """Send a new log start offset to followers and fetch sessions with their next answer."""
        self.followers.offsets_moved(partition)
        self.purgatory.standing.note_all(partition)

    def _expire(self) -> None:
        for operation in self.purgatory.expire(self.clock.monotonic_ms()):
            self._free(operation)
        next_deadline_ms = self.purgatory.next_deadline_ms
        if next_deadline_ms is not None:
            self._expiry.set(next_deadline_ms)

    def _free(self, operation: DelayedProduce | DelayedFetch) -> None:
        self.work.share.do(partial(self._answer, operation))

    def _answer(self, operation: DelayedProduce | DelayedFetch) -> None:
        if isinstance(operation, DelayedFetch):
            self.purgatory.unlink(operation)
        context, operation.context = operation.context, None  # no request stays in a heap
        assert callable(context)
        try:
            context(operation)
        except Exception:  # an error of one answer must not affect the others
            logger.exception("a request that waited could not be answered")
