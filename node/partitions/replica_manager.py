"""The replicas that this broker hosts, and the consequences of their changes.

Three events change a partition: an append, a follower's fetch, a change of the metadata. Each has
the same consequences: waiting followers are answered, the high watermark is raised, and the
requests that waited for it are completed. Followers are answered once per turn of the event loop,
however many batches were appended in that turn, so that a burst of appends leads to one answer.

Everything runs on the broker's event loop, except fsync (`log_flusher`).
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
    """Do nothing. This replaces the callback for failures of a log that is no longer hosted."""


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
        # The hosted replica by (topic id, index), or None.
        self.get_by_id = self._by_id.get
        # Topic id -> the indexes of its hosted partitions.
        self._by_topic: dict[bytes, set[int]] = {}
        self.traffic = Traffic()
        self._changed: list[HostedPartition] = []
        self._recent_writes = RecentWrites()
        self.stalled: frozenset[HostedPartition] = frozenset()  # set by `isolated_leader`
        # Led partitions whose ISR may change without an event; see `isr_proposer`.
        self.unsettled: dict[HostedPartition, None] = {}
        self.written: set[HostedPartition] = set()  # since the last check of `log_maintenance`
        # The checkpoints that are lowered before a truncation.
        self.checkpoints: tuple[CheckpointWriter, ...] = ()
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
        """Start to host a replica, whose log is open."""
        partition.log.local.disk.on_failure = lambda: self._loop.call_soon_threadsafe(
            self.fail, partition
        )
        partition.log.damage.on_found = lambda: self._damaged(partition)
        # `log_maintenance` rebuilds the index when it checks the written logs.
        partition.log.aborted_transactions.on_damaged = lambda: self.written.add(partition)
        partition.log.segments.recent = self._recent_writes
        self._by_name[partition.topic, partition.index] = partition
        self._by_id[partition.key] = partition
        self._by_topic.setdefault(partition.topic_id, set()).add(partition.index)
        partition.traffic = self.traffic.of(partition.topic_id, partition.topic)
        self.written.add(partition)  # the log may have many unflushed records

    def remove(self, partition: HostedPartition) -> None:
        """Stop hosting a replica, after which the caller must call `release_waiters`."""
        self._by_name.pop((partition.topic, partition.index), None)
        self._by_id.pop(partition.key, None)
        indexes = self._by_topic.get(partition.topic_id, set())
        indexes.discard(partition.index)
        if not indexes:
            self._by_topic.pop(partition.topic_id, None)
            self.traffic.drop(partition.topic_id)
        self.let_go(partition)

    def remove_topic(self, topic_id: bytes) -> list[HostedPartition]:
        """Stop hosting the partitions of a topic, and return those that were hosted.

        Lookups no longer find the partitions. The caller releases each of them later, since there
        may be thousands.
        """
        hosted = []
        for index in sorted(self._by_topic.pop(topic_id, ())):
            partition = self._by_id.pop((topic_id, index))
            self._by_name.pop((partition.topic, index), None)
            hosted.append(partition)
        self.traffic.drop(topic_id)
        return hosted

    def let_go(self, partition: HostedPartition) -> None:
        """Release the log of a partition that is no longer hosted."""
        self.unsettled.pop(partition, None)
        self.written.add(partition)  # for its last check
        partition.log.local.disk.on_failure = partition.log.damage.on_found = nothing
        partition.log.aborted_transactions.on_damaged = nothing
        partition.log.segments.drop_cached_reads()
        partition.log.segments.recent = NO_RECENT_WRITES

    def partition(self, topic: str, index: int) -> HostedPartition:
        """Return the replica for a request by topic name.

        Raises Kafka's error if there is none.
        """
        hosted = self._by_name.get((topic, index))
        if hosted is None:
            if self.partition_exists(topic, index):
                raise NotLeaderOrFollower(f"{topic}-{index} is not on this broker")
            raise UnknownTopicOrPartition
        return hosted

    def partition_by_id(self, topic_id: bytes, topic: str | None, index: int) -> HostedPartition:
        """Return the replica by topic id (KIP-516).

        topic: its name in the metadata.
        """
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
        """Append a validated batch, and answer the followers that wait for it.

        A duplicate appends nothing and returns the offsets of its first copy. With acks=all the
        request of a duplicate waits for the high watermark as for a new batch (the caller uses
        `wait_key`). `origin` and the later arguments are those of PartitionLog.append_as_leader.
        Raises NotEnoughReplicas before anything is written if acks=all cannot be satisfied.
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
        """Raise the high watermark of a led log after an append, and answer the followers.

        size_bytes: the size of the appended batch.
        """
        leader, log = partition.leader, partition.log
        assert leader is not None
        partition.note_unseen(size_bytes)
        self.written.add(partition)
        is_flushed = log.log_end_offset - log.flushing.recovery_point < log.config.flush_messages
        if not is_flushed:
            self.flusher.flush(partition)  # required before the acknowledgement
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

        offset: None leaves the high watermark unchanged.
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
        """Tell the log cleaner that the log was truncated to this offset."""
        if self.cleaner is not None:
            self.cleaner.truncated(partition.topic, partition.index, end_offset)

    def _flushed(self, partition: HostedPartition) -> None:
        """Raise the high watermark after a flush, and complete produces that waited for it."""
        leader = partition.leader
        if leader is None:
            return
        raised = leader.flushed(partition.log.flushing.own_end_offset, self.clock.monotonic_ms())
        self.raise_high_watermark(partition, raised)
        for produce in self.purgatory.advance(partition.flushed_key, leader.own_end_offset):
            self._free(produce)

    def role_changed(self, partition: HostedPartition) -> None:
        """Handle a new leader or leader epoch of a replica, here or on another broker."""
        self.followers.role_changed(partition)
        for fetch in self.purgatory.wake_standing(partition):
            self._free(fetch)
        for listener in self.role_listeners:
            listener(partition)

    def note_stalled(self, stalled: frozenset[HostedPartition]) -> None:
        """Set the partitions that accept no writes while this leader is isolated.

        Listeners are called for the partitions that accept writes again.
        """
        before, self.stalled = self.stalled, stalled
        for partition in before - stalled:
            for listener in self.role_listeners:
                listener(partition)

    def release_waiters(self, partition: HostedPartition, error: int) -> None:
        """Fail waiting produces and let waiting fetches read again, after a lost leadership."""
        for key in (partition, partition.flushed_key):
            for produce in self.purgatory.fail_produces(key, error):
                self._free(produce)
        for fetch in self.purgatory.wake_fetches(partition):
            self._free(fetch)
        if partition.observer is not None:
            partition.observer(partition)

    def fail(self, partition: HostedPartition) -> None:
        """Stop serving a replica after a disk failure. Report that another replica must lead."""
        if not partition.log.is_failed or partition.leader_id == -2:
            return
        if self._by_id.get(partition.key) is not partition:
            return  # the log was removed, not failed
        if (failure := partition.log.disk_failure) is not None:
            self.disk.note(failure, is_log_lost=True)
        logger.error(
            "the storage of %r failed, so this broker stops serving the replica", partition
        )
        partition.leader_id = -2
        partition.leader = partition.follower = None
        self.release_waiters(partition, ErrorCode.KAFKA_STORAGE_ERROR)
        self.awaited.settled(partition.topic, partition.index)
        self.failed_logs.report(*partition.key)

    def _damaged(self, partition: HostedPartition) -> None:
        """Step down because of a damaged file, if another replica is in sync.

        The last replica in sync continues. It serves the intact records, and refuses the damaged
        ones.
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
        """Return the key under which a produce must wait, or None if it may be acknowledged now.

        With acks=all it waits for the high watermark, with acks=1 only for a flush that the topic
        requires.
        """
        if acks == ACKS_ALL:
            return partition if partition.log.high_watermark <= info.last_offset else None
        leader = partition.leader
        is_flushed = leader is None or info.last_offset < leader.own_end_offset
        return None if is_flushed else partition.flushed_key

    def wait_produce(self, operation: DelayedProduce) -> None:
        """Let a produce wait for the high watermark or a sync, and call its callback at the end."""
        self.purgatory.watch_produce(operation)
        if operation.deadline_ms < self._expiry.at_ms:
            self._expiry.set(operation.deadline_ms)

    def wait_fetch(self, operation: DelayedFetch) -> None:
        """Let a fetch wait for bytes, and call its callback at the end."""
        self.purgatory.watch_fetch(operation)
        self._expiry.set(operation.deadline_ms)

    def note_unreadable(self, topic: str | None, index: int, error: Exception) -> None:
        """Log an unexpected error of a read of a partition, at most ten times a minute."""
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
        """Wake a waiting fetch, which then reads its partitions again."""
        for fetch in self.purgatory.free_fetch(operation):
            self._free(fetch)

    def log_start_moved(self, partition: HostedPartition) -> None:
        """Send a new log start offset with the next answers to followers and fetch sessions."""
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
        # Release the request, since the operation may stay in a heap.
        context, operation.context = operation.context, None
        assert callable(context)
        try:
            context(operation)
        except Exception:  # an error of one answer must not affect the others
            logger.exception("a waiting produce or fetch could not be answered")
