"""One replica that this broker hosts, with its log and its role.

A replica leads (a `PartitionLeader` keeps the state of its followers), follows (a
`PartitionFollower` checks the leader's answers), or waits without a leader. A role begins only with
the replicated metadata, one leader epoch at a time. It also ends when the log fails. This file
applies a change of role to the log. A new leader opens its epoch at its log end, so that the first
batch of an epoch and the epoch's start offset always agree.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from ...coordinator.metadata.cluster_model import PartitionRegistration
from ...replication.delayed_operations import BYTES_UNKNOWN
from ...replication.follower import PartitionFollower
from ...replication.follower_progress import PeerView
from ...replication.leader import PartitionLeader
from ...storage.partition_log import PartitionLog
from ...wire.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    KafkaStorageError,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    UnknownLeaderEpoch,
)
from ..traffic import TopicTraffic

ACKS_ALL = -1
ANY_EPOCH = -1
UNSEEN_ENTRIES_MAX = 1_024


PartitionCallback = Callable[["HostedPartition"], None]


@dataclass(slots=True, eq=False)
class HostedPartition:
    """A replica on this broker. Requests that wait for the replica use it as a key.

    observer: called when the high watermark has risen, and when the leadership has ended. Set by
    the group coordinator for its partitions. transactional_ids: by producer id, for the
    transactions opened under this leadership. traffic: the metrics of the topic.
    """

    topic: str
    index: int
    topic_id: bytes
    log: PartitionLog
    key: tuple[bytes, int] = field(init=False)
    # The key of acks=1 requests that wait for a flush.
    flushed_key: tuple[bytes, int, str] = field(init=False)
    leader: PartitionLeader | None = None
    follower: PartitionFollower | None = None
    leader_id: int = -1
    leader_epoch: int = -1
    partition_epoch: int = -1
    replicas: tuple[int, ...] = ()
    # The next offset and the size of each batch that consumers cannot read yet.
    unseen: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    is_changed: bool = False  # True while on the list of partitions with news for followers
    observer: PartitionCallback | None = None
    traffic: TopicTraffic = field(default_factory=TopicTraffic)
    transactional_ids: dict[int, str] = field(default_factory=dict[int, str])

    def __post_init__(self) -> None:
        self.key = (self.topic_id, self.index)
        self.flushed_key = (*self.key, "settled")

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    # -- roles

    def lead(
        self,
        record: PartitionRegistration,
        *,
        node_id: int,
        broker_epoch: int,
        min_insync_replicas: int,
        peers: PeerView,
        now_ms: int,
        lag_time_max_ms: int,
    ) -> None:
        """Start to lead the partition, or raise KafkaStorageError.

        If the log was truncated, the caller must first wait until the truncation is synced
        (`log.flushing.is_cut_unsynced`). now_ms: monotonic time.
        """
        self.log.assign_leader_epoch(record.leader_epoch)
        self.leader = PartitionLeader(
            node_id=node_id,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            replicas=record.replicas,
            isr=record.isr,
            min_insync_replicas=min_insync_replicas,
            log=self.log,
            log_end_offset=self.log.log_end_offset,
            now_ms=now_ms,
            lag_time_max_ms=lag_time_max_ms,
            broker_epoch=broker_epoch,
            peers=peers,
            own_end_offset=self.log.flushing.own_end_offset,
        )
        self.follower = None
        # Batches of earlier leaders above the high watermark were not counted.
        end_offset = self.log.log_end_offset
        is_committed = self.log.high_watermark == end_offset
        self.unseen = [] if is_committed else [(end_offset, BYTES_UNKNOWN)]
        self._adopt(record)

    def follow(self, record: PartitionRegistration) -> None:
        """Start to follow the leader of this epoch."""
        self.leader = None
        self.follower = PartitionFollower(record.leader, record.leader_epoch)
        self._adopt(record)
        self._check_epoch()

    def _check_epoch(self) -> None:
        """Report the log as damaged if a batch has a later leader epoch than this replica knows.

        The leader epoch of a batch is not covered by the batch's checksum.
        """
        damage, latest_epoch = self.log.damage, self.log.latest_epoch
        if latest_epoch is not None and latest_epoch > self.leader_epoch and not damage.words:
            damage.is_in_batches = True
            damage.found(CorruptMessage(f"a batch has the leader epoch {latest_epoch}"))

    def wait_for_a_leader(self, record: PartitionRegistration) -> None:
        """End this replica's role, because there is no leader.

        An elected replica also waits in this way until the truncation of its log is synced.
        """
        self.leader = self.follower = None
        self._adopt(record)

    def _adopt(self, record: PartitionRegistration) -> None:
        if self.leader is None:
            self.transactional_ids.clear()
        self.leader_id = record.leader
        self.leader_epoch = record.leader_epoch
        self.partition_epoch = record.partition_epoch
        self.replicas = tuple(record.replicas)

    # -- for clients

    def leading(self, current_leader_epoch: int = ANY_EPOCH) -> PartitionLeader:
        """Return this replica's leadership, or raise Kafka's error if the replica does not lead.

        Raises FencedLeaderEpoch or UnknownLeaderEpoch for another leader epoch than the current one
        (KIP-320), and KafkaStorageError if the log has failed.
        """
        if self.log.is_failed:
            raise KafkaStorageError(f"the log of {self} failed on this broker's disk")
        if current_leader_epoch != ANY_EPOCH:
            if current_leader_epoch < self.leader_epoch:
                raise FencedLeaderEpoch
            if current_leader_epoch > self.leader_epoch:
                raise UnknownLeaderEpoch
        if self.leader is None:
            raise NotLeaderOrFollower(f"this broker does not lead {self}")
        return self.leader

    def note_unseen(self, size_bytes: int) -> None:
        """Record the size of a newly appended batch, which is above the high watermark."""
        unseen, end_offset = self.unseen, self.log.log_end_offset
        # Merge batches, since the high watermark does not rise.
        if len(unseen) >= UNSEEN_ENTRIES_MAX:
            size_bytes += unseen.pop()[1]
        unseen.append((end_offset, size_bytes))

    def take_seen(self, high_watermark: int) -> int:
        """Return the bytes of the batches that a new high watermark has passed.

        Returns BYTES_UNKNOWN if the high watermark is not at the end of a recorded batch. Waiting
        fetches then read the log to find out. Each batch is counted once.
        """
        unseen = self.unseen
        count = seen_bytes = 0
        last_end_offset = -1
        for end_offset, size_bytes in unseen:
            if end_offset > high_watermark:
                break
            count += 1
            seen_bytes += size_bytes
            last_end_offset = end_offset
        del unseen[:count]
        return seen_bytes if last_end_offset == high_watermark else BYTES_UNKNOWN

    def readable_end(self, is_read_committed: bool) -> int:
        """Return the end offset of a consumer's read, exclusive."""
        return self.log.last_stable_offset if is_read_committed else self.log.high_watermark

    def stable_end(self) -> int:
        """Return the end offset of a read_committed read, exclusive."""
        return self.log.last_stable_offset

    def latest_offset(self, is_read_committed: bool, current_leader_epoch: int) -> int:
        """Return the end offset that ListOffsets reports for LATEST.

        Raises OffsetNotAvailable until a new leader knows its high watermark (KIP-207).
        """
        leader = self.leading(current_leader_epoch)
        if self.log.high_watermark < leader.epoch_start_offset:
            raise OffsetNotAvailable
        return self.readable_end(is_read_committed)
