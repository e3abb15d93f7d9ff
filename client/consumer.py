"""An asynchronous consumer of assigned partitions, or of the topics of a group.

    async with Consumer("127.0.0.1:9092", group_id="billing",
                        isolation_level="read_committed") as consumer:
        consumer.subscribe(["orders"])
        while True:
            for record in await consumer.poll(timeout_ms=500):
                ...

    consumer.assign({("orders", 0): 0})     # no group: positions are the caller's own

A position is the offset of the next record that `poll` returns. `commit` commits the positions, or
given offsets. With enable.auto.commit, offsets are committed during polls, before partitions are
revoked, and at the close. Errors are classes of `wire.errors`, and retriable errors are retried.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Self, TypeVar, cast

from ..wire.errors import InvalidGroupId, KafkaError
from ..wire.identifiers import TopicPartition
from .cluster_view import ClusterView
from .failures import FORKED, ClientClosed, CommitFailed, tell_of_forks
from .fetch.fetcher import Fetcher, wait_for
from .fetch.offset_queries import EARLIEST, LATEST, offsets_for_times
from .fetch.positions import UNKNOWN_POSITION, Positions
from .fetch.record_columns import RecordColumns
from .fetch.record_reader import ConsumerRecord
from .fetch.state import FetchState, RawBatch
from .fetch.taking import Taking
from .group_metadata import GroupMetadata, OffsetAndMetadata, with_metadata
from .groups.consumer_member import ConsumerGroupMember, HeartbeatWatcher
from .groups.holding import RebalanceListener
from .groups.member import GroupMember
from .long_work import LongWork
from .retries import now_ms
from .settings import LONG_MAX, consumer_settings
from .view_source import Source, open_view, split_source

__all__ = ["Consumer", "ConsumerRecord"]

CLOSED = "the consumer is closed"
T = TypeVar("T")
Callback = Callable[[list[TopicPartition]], Any]
Member = GroupMember | ConsumerGroupMember
Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class Consumer:
    """An asynchronous consumer of assigned partitions or of a group's topics.

    `source` is a view, a bootstrap list or settings. The caller closes a given view.
    """

    def __init__(self, source: Source | None = None, /, **keywords: Any) -> None:
        config = split_source(source, keywords)
        self.settings = s = consumer_settings(config, keywords)
        self._view, self._owns_view = open_view(source, s)
        self._is_committed = s.isolation_level == "read_committed"
        self._fetcher = Fetcher(self._view, s, has_sessions=True)
        self._member: Member | None = None
        if s.group_id is not None:
            kind = ConsumerGroupMember if s.group_protocol == "consumer" else GroupMember
            self._member = kind(self._view, s, self._change, self._before_revoking)
        committed = self._member.requests.committed if self._member is not None else None
        self._positions = Positions(self._view, s, committed)
        self._taking = Taking(self._positions, read_committed=self._is_committed)
        self._looked_ms = self._committed_ms = now_ms()
        self._finding, self._refreshing, self._committing = LongWork(), LongWork(), LongWork()
        self._membership: GroupMetadata | None = None  # at the last poll
        # an exception interrupted the application at the records of the last poll
        self.is_interrupted = False
        self._is_closed = False
        tell_of_forks(self)

    def forked(self) -> None:
        """Make later calls fail in a forked child, if this consumer may have connections."""
        if self._view.has_connected:
            self._is_closed = True
            self._positions.close(FORKED)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.is_interrupted = kind is not None
        await self.close()

    @property
    def view(self) -> ClusterView:
        """The brokers and partitions that the consumer knows."""
        return self._view

    # --- what to read

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Subscribe as a member of the group to topics, and to topics that match an RE2 pattern.

        Raises TypeError if `topics` is one text, each character of which would be a topic.
        """
        if isinstance(topics, str):
            raise TypeError(f"topics are a list of names, not text: subscribe([{topics!r}])")
        listener = RebalanceListener(on_assigned, on_revoked, on_lost)
        self._require_group().subscribe(tuple(sorted(set(topics))), pattern, listener)

    def assign(self, partitions: Mapping[TopicPartition, int] | Iterable[TopicPartition]) -> None:
        """Read these partitions and no others, from given offsets.

        A partition without an offset begins at the committed offset (with a group.id), or else at
        the place of auto.offset.reset.
        """
        given: Mapping[TopicPartition, int] = (
            cast(Mapping[TopicPartition, int], partitions)
            if isinstance(partitions, Mapping)
            else dict.fromkeys(partitions, UNKNOWN_POSITION)
        )
        self._positions.require_open()
        self._finding.drop()
        self._positions.states = {key: FetchState(*key, offset) for key, offset in given.items()}

    def unassign(self, topic: str, partition: int) -> None:
        """Stop reading a partition that was passed to `assign`."""
        self._positions.states.pop((topic, partition), None)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that the consumer currently reads."""
        return sorted(self._positions.states)

    def position(self, topic: str, partition: int) -> int:
        """Return the offset of the next record of a partition, or -1 while it is unknown."""
        return self._positions.of(topic, partition).position

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Set the position of a partition to this offset."""
        self._positions.of(topic, partition).seek(offset)

    async def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Continue from the first available offset in these partitions, or in all if None."""
        await self._positions.seek_to(partitions, EARLIEST)

    async def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Continue from the end of these partitions, or of all if None.

        Under read_committed the end is the last stable offset.
        """
        await self._positions.seek_to(partitions, LATEST)

    def pause(self, *partitions: TopicPartition) -> None:
        """Keep these partitions assigned, but return no records of them until `resume`."""
        for key in partitions:
            self._positions.of(*key).is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these paused partitions again."""
        for key in partitions:
            self._positions.of(*key).is_paused = False

    # --- reading

    async def poll(
        self, timeout_ms: int = 500, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """Return the next records as soon as there are any, in order within each partition.

        The list has at most `max_records`, by default max.poll.records. It is empty if no records
        arrive before the timeout.
        """
        limit = max_records or self.settings.max_poll_records
        return await self._poll(timeout_ms, lambda: self._taking.records(limit))

    async def poll_columns(
        self, timeout_ms: int = 500, max_records: int | None = None
    ) -> list[RecordColumns]:
        """Return records as columns, batch by batch, at a fraction of the cost of `poll`.

        Invisible records are left out. Batches are whole, so the result may exceed `max_records` by
        less than one batch. In any case the poll stops after TAKE_MS, with the records that it has.
        """
        take = partial(FetchState.take_columns, read_committed=self._is_committed)
        return await self._poll_by_batches(
            timeout_ms, max_records, take, lambda columns: len(columns.values)
        )

    async def poll_batches(
        self, timeout_ms: int = 500, max_records: int | None = None
    ) -> list[RawBatch]:
        """Return whole batches unchanged as they are in the log, also control batches."""
        return await self._poll_by_batches(
            timeout_ms, max_records, FetchState.take_raw, lambda batch: batch.header.record_count
        )

    async def _poll_by_batches(
        self,
        timeout_ms: int,
        max_records: int | None,
        take: Callable[[FetchState], T | None],
        count: Callable[[T], int],
    ) -> list[T]:
        limit = max_records if max_records is not None else LONG_MAX
        return await self._poll(timeout_ms, lambda: self._taking.batches(limit, take, count))

    async def _poll(self, timeout_ms: int, take: Callable[[], list[T]]) -> list[T]:
        """Call `take` until it returns something, or until the deadline. Return its result."""
        deadline_ms = now_ms() + timeout_ms
        while True:
            self._require_polls()
            await self._prepare(deadline_ms)
            self._require_polls()  # another task may have closed it meanwhile
            before = self._positions.before_taking()
            if found := take():
                # fetch the next ones meanwhile
                self._fetcher.start(self._positions.states.values())
                self._positions.gives(before)
                try:
                    await asyncio.sleep(0)
                except asyncio.CancelledError:  # the caller gets no records: they are read again
                    self.take_back()
                    raise
                return found
            if not await self._wait(deadline_ms):
                return []

    def take_back(self) -> None:
        """Make the next poll return the records of the last poll again.

        This method is for a caller that was interrupted before it received the records.
        """
        self._positions.take_back()

    def _require_polls(self) -> None:
        if self._is_closed:
            raise ClientClosed(self._positions.why_closed or CLOSED)

    async def _prepare(self, deadline_ms: int) -> None:
        """Do the work of a poll that comes before its records are returned.

        The member rebalances, unknown positions are looked up, and the error of an earlier fetch is
        raised.
        """
        self._positions.settle()
        if self._member is not None and self._member.is_subscribed:
            await self._member.poll(deadline_ms)
            self._commit_by_time()
        fetcher = self._fetcher
        while fetcher.out_of_range:
            self._positions.out_of_range(*fetcher.out_of_range.pop())
        while fetcher.truncated:
            self._positions.truncated(*fetcher.truncated.pop())
        unknown = self._positions.unknown
        if unknown or self._finding.is_running:
            # Partitions with known positions do not wait for the others.
            is_all = len(unknown) == len(self._positions.states)
            await self._finding.until(deadline_ms if is_all else now_ms(), self._positions.find)
        if fetcher.problems:
            raise fetcher.problems.pop(0)
        if now_ms() - self._looked_ms > self.settings.metadata_max_age_ms:
            self._looked_ms = now_ms()
            self._refreshing.begin(self._refresh)
        if self._member is not None:
            self._membership = self._member.polled()

    async def _refresh(self) -> None:
        with contextlib.suppress(KafkaError):
            await self._view.refresh(self._topics())

    async def _wait(self, deadline_ms: int) -> bool:
        """Wait for the next answer to a fetch, at most 100 ms. Return False after the deadline."""
        self._fetcher.arrived.clear()
        self._fetcher.start(self._positions.states.values())
        left_ms = deadline_ms - now_ms()
        if left_ms <= 0:
            await asyncio.sleep(0)
            return False
        await wait_for(self._fetcher.arrived, min(left_ms, 100))
        return True

    def _topics(self) -> set[str]:
        topics = {topic for topic, _ in self._positions.states}
        return topics | set(self._member.topics if self._member is not None else ())

    # --- positions

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the first available offset of each partition."""
        return await self._positions.offsets(dict.fromkeys(partitions, EARLIEST))

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermark of each partition, or its LSO under read_committed."""
        return await self._positions.offsets(dict.fromkeys(partitions, LATEST))

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """Return (offset, timestamp) of the first record since the given time of each partition.

        Times are wall clock in ms. The result is None for a partition without such a record.
        """
        self._positions.require_open()
        return await offsets_for_times(
            self._view,
            times_ms,
            read_committed=self._is_committed,
            timeout_ms=self.settings.default_api_timeout_ms,
        )

    # --- the group

    def watch_heartbeats(self, watcher: HeartbeatWatcher) -> None:
        """Report heartbeats to `watcher`, for tests. Without group.protocol=consumer nothing is
        reported.
        """
        if isinstance(self._member, ConsumerGroupMember):
            self._member.watcher = watcher

    def group_metadata(self) -> GroupMetadata:
        """Return the membership of the last poll, for `send_offsets_to_transaction` (KIP-447).

        The offsets of that poll are therefore refused when the group has rebalanced since. Within
        `on_revoked` the result is the current membership, because no other member has the revoked
        partitions yet.
        """
        return self._membership or self._require_group().requests.metadata

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> None:
        """Commit `offsets`, or the positions of all partitions if None.

        Raises CommitFailed if one of the partitions was revoked since the last poll, or if the
        group refuses the member. A classic group also refuses the member while it rebalances.
        """
        member = self._require_group()
        is_another = offsets is not None and self.group_metadata() != member.requests.metadata
        asked = offsets if offsets is not None else self._positions.given_last
        member.holding.refuse_others(asked, is_another_generation=is_another)
        await self._committing.stop()  # its offsets are older
        given = offsets if offsets is not None else self._positions.given_out()
        await self._commit(with_metadata(given))

    @property
    def commits_sent(self) -> int:
        """Return how many OffsetCommit requests were sent so far, repeated ones included.

        Of several requests, one without an answer may take effect after a newer one.
        """
        return 0 if self._member is None else self._member.requests.commits_sent

    async def _commit(self, listed: Offsets, *, by_itself: bool = False) -> None:
        member = self._require_group()
        if not listed:
            return
        try:
            await member.requests.commit(listed, by_itself=by_itself)
        except CommitFailed as problem:
            member.refused(problem.number)
            raise

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that the group has committed, without partitions that have none."""
        return await self._require_group().requests.committed(list(partitions))

    def _require_group(self) -> Member:
        self._positions.require_open()
        if self._member is None:
            raise InvalidGroupId("this needs a group.id")
        return self._member

    def _change(self, gone: set[TopicPartition], added: set[TopicPartition]) -> None:
        assert self._member is not None
        self._finding.drop()
        self._positions.freeze(self._member.holding.going)
        for key in gone:
            self._positions.states.pop(key, None)
        for key in added:
            self._positions.states[key] = FetchState(*key, UNKNOWN_POSITION)

    def _commit_by_time(self) -> None:
        if not self.settings.enable_auto_commit:
            return
        if now_ms() - self._committed_ms > self.settings.auto_commit_interval_ms:
            self._committed_ms = now_ms()
            self._committing.begin(self._commit_settled)

    async def _commit_settled(self) -> None:
        """Commit the positions up to which the application has finished its records.

        Nothing is committed without enable.auto.commit. Errors are not raised, because uncommitted
        records are read again.
        """
        if self.settings.enable_auto_commit and self._member is not None:
            with contextlib.suppress(KafkaError):
                await self._commit(self._positions.settled(), by_itself=True)

    async def _before_revoking(self) -> None:
        """Commit (with enable.auto.commit) before partitions are revoked, while they have no new
        owner.
        """
        assert self._member is not None
        self._membership = self._member.requests.metadata
        await self._committing.stop()
        await self._commit_settled()

    async def close(self) -> None:
        """Commit (with enable.auto.commit), leave the group, and close the consumer.

        Raises RuntimeError in a callback.
        """
        if self._is_closed:
            return
        if self._member is not None:
            self._member.holding.callbacks.refuse_one()
        self._is_closed = True
        if not self.is_interrupted:
            self._positions.settle()
        try:
            for work in (self._finding, self._refreshing, self._committing):
                await work.stop()
            if self._member is not None:
                # a subscribed member commits when it revokes its partitions
                if not self._member.is_subscribed:
                    await self._commit_settled()
                await self._member.close()
        finally:
            if self._member is not None:
                self._member.stop()  # if the rest of the close was cancelled
            self._positions.close(CLOSED)
            await self._fetcher.close()
            if self._owns_view:
                await self._view.close()

    def _drop(self) -> None:
        """Close the connections immediately, unless the caller has given the view."""
        if self._owns_view:
            self._view.drop()
