"""The groups and offsets of one led partition of __consumer_offsets.

A shard is the state that the committed records of its partition describe. When this broker becomes
the leader, the shard is built by a replay of the log. Afterwards each batch is replayed, in log
order, once the high watermark has passed it. Loading and serving therefore run the same code, for
transaction markers too, and records that may still be lost have no effect. Batches that this broker
appends stay in memory until their replay, so that they are seldom read from the log.

The shard serves once it has replayed the log up to the end at its creation, which includes every
offset that the previous leader acknowledged.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from enum import Enum

from ...coordinator.groups.consumer.known_topics import KnownTopics
from ...coordinator.groups.consumer.record_codec import decode_consumer_key, decode_consumer_value
from ...coordinator.groups.consumer.records import GroupEpochKey
from ...coordinator.groups.group import Group
from ...coordinator.groups.group_messages import GroupSettings
from ...coordinator.groups.group_table import GroupTable
from ...coordinator.groups.offset_table import OffsetTable
from ...coordinator.groups.records import GroupKey, OffsetKey, decode_group_value, decode_key
from ...coordinator.groups.turn import Turn
from ...runtime.steps import Steps
from ...wire.errors import GroupIdNotFound, IllegalGeneration, InvalidRecord
from ...wire.record_batch import BatchHeader, decode_header, iterate_batches
from ...wire.records import Record, decoding_batch
from ..clock import Clock
from ..partitions.hosted_partition import HostedPartition

logger = logging.getLogger(__name__)
KEPT_BYTES_MAX = (
    4 * 1024 * 1024
)  # the limit of appended batches in memory; batches above it are read from the log
READ_BYTES = 64 * 1024
RECORDS_A_STEP = 64  # some 0.5 ms
LOOK_AGAIN_MS = 100  # the interval of checks during a replay or while the shard is loading
# the versions of OffsetCommit (KIP-848) and TxnOffsetCommit (KIP-1319)
GROUP_NOT_FOUND_FROM = (9, 6)


# called with None, or with the error after which the commit is unknown
Replayed = Callable[[Exception | None], object]


class ShardState(Enum):
    """The state of a shard. A shard answers requests only while it serves."""

    LOADING = "loading"
    SERVING = "serving"
    CLOSED = "closed"


@dataclass(slots=True, eq=False)
class Waiter:
    """A caller that waits until the shard has replayed all records before `next_offset`."""

    next_offset: int
    deadline_ms: int
    is_group_record: bool
    done: "asyncio.Future[None] | Replayed"

    def end(self, error: Exception | None) -> None:
        """Report that the append is replayed, or an error if its outcome is unknown."""
        done = self.done
        if not isinstance(done, asyncio.Future):
            done(error)
        elif not done.done():
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)


class GroupShard:
    """The groups of one partition. Handlers may read `offsets` and `groups`."""

    def __init__(
        self,
        partition: HostedPartition,
        clock: Clock,
        settings: GroupSettings,
        topics: KnownTopics,
    ) -> None:
        assert partition.leader is not None
        self.index = partition.index
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state = ShardState.LOADING
        self.offsets = OffsetTable()
        self.table = GroupTable()
        # A shard that is loaded again also waits for the records appended under this leadership.
        self.load_until = partition.log.log_end_offset
        self.replayed = partition.log.log_start_offset  # the next offset to replay
        self.waiters: deque[Waiter] = deque()  # in log order
        self.is_replaying = False
        # the next offset after the last appended record of a consumer group
        self.consumer_records_until = 0
        self._clock = clock
        self._settings = settings
        self._topics = topics
        self._kept: deque[tuple[int, memoryview]] = deque()  # base offsets and batches
        self._kept_bytes = 0

    def __repr__(self) -> str:
        return f"group shard {self.index} (epoch {self.leader_epoch})"

    @property
    def groups(self) -> dict[str, Group]:
        return self.table.groups

    def turn(self) -> Turn:
        """Return an empty `Turn`, to collect the answers and records of one request."""
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.wall_ms()
        return Turn(now_ms, wall_ms, self._settings, self.table.deadlines, self._topics)

    # -- replay

    def keep(self, base_offset: int, batch: memoryview) -> None:
        """Keep a newly appended batch in memory, so that its replay does not read the log."""
        if self._kept_bytes + len(batch) <= KEPT_BYTES_MAX:
            self._kept.append((base_offset, batch))
            self._kept_bytes += len(batch)

    def replaying(self) -> Steps[None]:
        """Replay the committed records that are not replayed yet, or raise KafkaStorageError.

        A batch may be replayed in several steps. Requests that wait for a batch continue only when
        the whole batch is replayed.
        """
        log, replayed_count = self.partition.log, 0
        while self.state is not ShardState.CLOSED:
            end = log.high_watermark
            self.replayed = max(self.replayed, log.log_start_offset)
            while self._kept and self._kept[0][0] < self.replayed:
                self._kept_bytes -= len(self._kept.popleft()[1])
            if self.replayed >= end:
                return
            if self._kept and self._kept[0][0] == self.replayed:
                batch = self._kept.popleft()[1]
                self._kept_bytes -= len(batch)
                header = decode_header(batch)
                yield from self._replay(batch, 0, header)
                replayed_count += header.last_offset_delta + 1
            else:
                upper_offset = min(end, self._kept[0][0]) if self._kept else end
                read = log.read(self.replayed, READ_BYTES, upper_offset=upper_offset)
                for position, header in iterate_batches(read.data):
                    if header.next_offset > self.replayed:
                        yield from self._replay(read.data, position, header)
                        yield
                    if self.state is ShardState.CLOSED:
                        return
                self.replayed = max(self.replayed, read.next_offset if read.data else upper_offset)
            self.free_waiters()
            if replayed_count >= RECORDS_A_STEP:
                replayed_count = 0
                yield

    def _replay(
        self, data: bytes | bytearray | memoryview, position: int, header: BatchHeader
    ) -> Steps[None]:
        try:
            records = yield from decoding_batch(data, position)
        except InvalidRecord as error:
            logger.error(
                "%r: the batch at offset %d is skipped: %s", self, header.base_offset, error
            )
            records = []
        for start in range(0, len(records), RECORDS_A_STEP):
            some = records if len(records) <= RECORDS_A_STEP else records[start:][:RECORDS_A_STEP]
            # a marker may commit many offsets of one transaction
            for _ in self.offsets.replaying(header, some):
                yield
                if self.state is ShardState.CLOSED:
                    return
            if not header.is_control:
                self._replay_groups(some)
            if len(some) < len(records):
                yield
                if self.state is ShardState.CLOSED:
                    return
        self.replayed = header.next_offset

    def _replay_groups(self, records: list[Record]) -> None:
        """Apply the records of groups in a committed batch to the shard.

        While loading, all records are replayed. Afterwards the in-memory groups are newer than
        their records, so only tombstones are replayed: a removed group is kept if offsets of it
        were committed before its tombstone.
        """
        is_loading = self.state is ShardState.LOADING
        for record in records:
            if not is_loading and record.value is not None:
                continue
            try:
                self._replay_group(record, is_loading=is_loading)
            except InvalidRecord as error:
                logger.error(
                    "%r: the record at offset %d is skipped: %s", self, record.offset, error
                )
            except Exception:  # an error of one group must not affect the others
                logger.exception(
                    "%r: the record at offset %d is skipped after an error", self, record.offset
                )

    def _replay_group(self, record: Record, *, is_loading: bool) -> None:
        key = decode_key(record.key) or decode_consumer_key(record.key or b"")
        if key is None or isinstance(key, OffsetKey):
            return
        if not is_loading:
            if isinstance(key, GroupKey | GroupEpochKey):
                self.keep_offsets_group(key.group_id)
            return
        value = record.value
        if isinstance(key, GroupKey):
            group_value = None if value is None else decode_group_value(value)
            self.table.replay(key.group_id, group_value)
        else:
            consumer_value = None if value is None else decode_consumer_value(key, value)
            self.table.consumers.replay(key, consumer_value)

    def keep_offsets_group(self, group_id: str) -> None:
        """Create an empty group in place of a removed group that still has offsets."""
        if self.offsets.has_offsets(group_id):
            self.table.obtain_simple(group_id, self._clock.wall_ms())

    def loaded_groups(self) -> list[str]:
        """Return the ids of groups that have a record or only offsets."""
        return list(self.groups.keys() | self.offsets.group_ids())

    def on_loaded(self, group_ids: Iterable[str], turn: Turn) -> None:
        """Start the session timeouts of these groups, which were just loaded from the log."""
        obtain = self.table.obtain_simple
        self.table.on_loaded(turn, [obtain(group_id, turn.wall_ms) for group_id in group_ids])

    # -- appends that wait

    def wait_until_replayed(
        self, next_offset: int, deadline_ms: int, is_group_record: bool = False
    ) -> "asyncio.Future[None]":
        """Return a future that is done when the shard has replayed all records before an offset.

        `fail_waiters` sets the error of the future after `deadline_ms`, or when the shard is
        unloaded.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.replayed >= next_offset:
            done.set_result(None)
        else:
            self.waiters.append(Waiter(next_offset, deadline_ms, is_group_record, done))
        return done

    def call_when_replayed(
        self,
        next_offset: int,
        deadline_ms: int,
        replayed: Replayed,
        is_group_record: bool = False,
    ) -> None:
        """Call `replayed` with None when the shard has replayed all records before an offset.

        `fail_waiters` calls it with an error after `deadline_ms`, or when the shard is unloaded. A
        future would wake its waiter one turn of the event loop later. The callback may answer a
        request, but must not change the shard.
        """
        if self.replayed >= next_offset:
            replayed(None)
        else:
            self.waiters.append(Waiter(next_offset, deadline_ms, is_group_record, replayed))

    def next_look_ms(self, now_ms: int) -> int | None:
        """Return the time of the next check for expired deadlines, or None if there is no deadline.

        A deadline that can only expire after a replay or after loading is checked every
        LOOK_AGAIN_MS.
        """
        later_ms = now_ms + LOOK_AGAIN_MS
        looks_ms: list[int] = []
        if self.waiters:
            first_ms = self.waiters[0].deadline_ms
            looks_ms.append(first_ms if first_ms > now_ms else later_ms)
        if (in_table_ms := self.table.deadlines.next_ms) is not None:
            is_serving = self.state is ShardState.SERVING
            looks_ms.append(in_table_ms if is_serving else max(in_table_ms, later_ms))
        return min(looks_ms, default=None)

    def free_waiters(self) -> None:
        """Wake the requests that wait for appends which have now been replayed."""
        while self.waiters and self.waiters[0].next_offset <= self.replayed:
            self.waiters.popleft().end(None)

    def fail_waiters(self, error: Exception, *, until_ms: int | None = None) -> bool:
        """Report the error to callers with a deadline of at most `until_ms`, by default to all.

        Return whether one of the failed appends was the record of a group.
        """
        was_group_record = False
        while self.waiters and (until_ms is None or self._is_late(self.waiters[0], until_ms)):
            waiter = self.waiters.popleft()
            was_group_record |= waiter.is_group_record
            waiter.end(error)
        return was_group_record

    def _is_late(self, waiter: Waiter, now_ms: int) -> bool:
        """Return whether an append has timed out. A committed append never times out."""
        high_watermark = self.partition.log.high_watermark
        return waiter.deadline_ms <= now_ms and waiter.next_offset > high_watermark

    # -- calls of handlers

    def find(self, group_id: str) -> Group:
        """Return the group, or raise GroupIdNotFound, also while its tombstones are replicated."""
        return self.table.find(group_id)

    def check_offset_commit(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        *,
        is_transactional: bool,
        api_version: int,
        partitions: Iterable[tuple[bytes, int]],
    ) -> None:
        """Raise an error unless this member may commit offsets now (KIP-447).

        The caller appends the commit in the same turn of the event loop, before the member can
        change.

        A plain commit of a member also counts as its heartbeat. A missing group is created if the
        generation is below 0. A member of a consumer group must have owned `partitions`, given by
        topic id, for long enough. Raises UnknownMemberId, IllegalGeneration, StaleMemberEpoch,
        UnsupportedVersion, FencedInstanceId, RebalanceInProgress, CoordinatorNotAvailable,
        GroupIdNotFound (from `GROUP_NOT_FOUND_FROM` on).
        """
        if generation >= 0 and group_id not in self.groups:
            if api_version < GROUP_NOT_FOUND_FROM[is_transactional]:
                raise IllegalGeneration
            raise GroupIdNotFound(f"Group {group_id} not found.")
        turn = self.turn()
        self.table.check_room(group_id)
        group = self.table.obtain_simple(group_id, turn.wall_ms)
        group.check_offset_commit(
            member_id,
            group_instance_id,
            generation,
            is_transactional=is_transactional,
            api_version=api_version,
            partitions=partitions,
        )
        if not is_transactional:
            self.table.offsets_committed(group_id, member_id, turn)

    def check_offset_fetch(
        self, group_id: str, member_id: str | None = None, member_epoch: int = -1
    ) -> bool:
        """Return whether the group exists. The offsets of a missing group are -1.

        Raises UnknownMemberId, StaleMemberEpoch or IllegalGeneration unless a consumer group has
        this member at this epoch.
        """
        group = self.groups.get(group_id)
        if group is not None:
            group.check_offset_fetch(member_id, member_epoch)
        return group_id in self.groups or self.offsets.has_offsets(group_id)

    def check_offset_delete(self, group_id: str) -> Container[str]:
        """Return the topics that have, or may have, subscribers, and so may not lose their offsets.

        Their partitions get GROUP_SUBSCRIBED_TO_TOPIC. Raises GroupIdNotFound, NonEmptyGroup.
        """
        group = self.find(group_id)
        group.check_offset_delete()
        return group.subscribed_or_all
