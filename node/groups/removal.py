"""Removals from __consumer_offsets: deleted groups, expired offsets, offsets of deleted topics.

Everything is removed by tombstones in the log. An empty group is removed with its last offset, and
its next generation starts from 0, as in Kafka.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence

from ...coordinator.groups.group import Group
from ...coordinator.groups.records import encode_offset_key
from ...coordinator.metadata.cluster_model import Changes
from ...runtime.background_task import background_task, end_tasks
from ...runtime.steps import Steps, run_to_end
from ...wire.errors import KafkaError
from ...wire.identifiers import TopicPartition
from ...wire.records import Record, encode_batch
from .coordinator import OFFSETS_TOPIC, GroupCoordinator
from .shard import GroupShard, ShardState

logger = logging.getLogger(__name__)
BATCH_RECORDS = 500
# waits for the pending commits of a group, which is otherwise checked in the next run
SETTLING_MAX = 20
OFFSETS_AT_ONCE = 1000  # the number of offsets checked in one step


async def delete_group(coordinator: GroupCoordinator, shard: GroupShard, group_id: str) -> None:
    """Remove an empty group and all its offsets, and return when the removal is committed.

    Raises GroupIdNotFound, NonEmptyGroup, and the errors of `GroupCoordinator.append`.
    """
    removed: list[asyncio.Future[None]] = []
    deleting = _deleting(coordinator, shard, group_id, removed)
    await coordinator.work.clients.finish("DeleteGroups", deleting)
    await asyncio.gather(*removed)


def _deleting(
    coordinator: GroupCoordinator,
    shard: GroupShard,
    group_id: str,
    removed: "list[asyncio.Future[None]]",
) -> Steps[None]:
    """Delete a group and all its offsets, and add the futures of the tombstones to `removed`.

    Raises NonEmptyGroup if a member joins while the tombstones are encoded. All tombstones are
    appended in one turn of the event loop.
    """
    where: list[TopicPartition] | None = None
    batches: list[bytes] = []
    shard.find(group_id).check_delete()
    # repeat if an offset was committed while the tombstones were encoded
    while where != (present := shard.offsets.partitions(group_id)):
        where, keys = present, []
        for number, each in enumerate(where, 1):
            keys.append(encode_offset_key(group_id, *each))
            if number % BATCH_RECORDS == 0:
                yield
        keys += shard.find(group_id).tombstone_keys()
        batches = yield from encoding_tombstones(keys, coordinator.clock.wall_ms())
        coordinator.check_serving(shard)
        shard.find(group_id).check_delete()
    removed += append_tombstones(coordinator, shard, batches, group_id)


def remove(
    coordinator: GroupCoordinator,
    shard: GroupShard,
    keys: Sequence[bytes],
    forgotten: str | None = None,
) -> "list[asyncio.Future[None]]":
    """Append tombstones for a few keys, and remove the group `forgotten` from memory.

    Returns a future for each batch of tombstones, which is done when the batch is committed.
    """
    batches = run_to_end(encoding_tombstones(keys, coordinator.clock.wall_ms()))
    return append_tombstones(coordinator, shard, batches, forgotten)


def encoding_tombstones(keys: Sequence[bytes], now_ms: int) -> Steps[list[bytes]]:
    """Return the batches of tombstones for these keys."""
    batches: list[bytes] = []
    for start in range(0, len(keys), BATCH_RECORDS):
        if start:
            yield
        some = keys[start : start + BATCH_RECORDS]
        batches.append(encode_batch([Record(i, now_ms, key, None) for i, key in enumerate(some)]))
    return batches


def append_tombstones(
    coordinator: GroupCoordinator,
    shard: GroupShard,
    batches: Iterable[bytes],
    forgotten: str | None = None,
) -> "list[asyncio.Future[None]]":
    """Append all batches in one turn of the event loop, and return a future for each batch.

    A future is done when its batch is committed. The group `forgotten` is immediately removed from
    memory.
    """
    waiting = []
    for batch in batches:
        waiting.append(coordinator.append_now(shard, batch)[1])
        waiting[-1].add_done_callback(_look)
    if forgotten is not None:
        turn = shard.turn()
        shard.table.remove(forgotten, turn)
        coordinator.execute(shard, turn)
    return waiting


class OffsetExpiry:
    """The removal of expired offsets, every offsets.retention.check.interval.ms (KIP-211)."""

    def __init__(
        self, coordinator: GroupCoordinator, *, retention_ms: int, interval_ms: int
    ) -> None:
        self._coordinator = coordinator
        self._retention_ms = retention_ms
        self._interval_ms = interval_ms
        self._task = background_task("offset expiry", self._run())

    async def stop(self) -> None:
        await end_tasks(self._task)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            await self.look()

    async def look(self) -> None:
        """Remove the expired offsets of all shards."""
        for shard in self._coordinator.shards:
            try:
                await self.look_at(shard)
            except KafkaError as error:
                logger.info("%r: expired offsets cannot be removed now: %s", shard, error)
            except Exception:
                logger.exception("%r: expired offsets cannot be removed", shard)

    async def look_at(self, shard: GroupShard) -> None:
        """Remove the expired offsets of all groups in one shard.

        Raises the errors of `GroupCoordinator.append`.
        """
        for group_id in list(shard.groups):
            try:
                await self._look_at_group(shard, group_id)
            except KafkaError:
                raise
            except Exception:  # an error of one group must not affect the others
                logger.exception(
                    "%r: expired offsets of group %s cannot be removed", shard, group_id
                )
            if shard.state is not ShardState.SERVING:
                return

    async def _look_at_group(self, shard: GroupShard, group_id: str) -> None:
        where = shard.offsets.committed(group_id)
        for start in range(0, len(where) or 1, BATCH_RECORDS):
            await self._coordinator.work.share.room()
            some = where[start : start + BATCH_RECORDS]
            # A commit that is still being replicated is newer than the offset in the table.
            for _ in range(SETTLING_MAX):
                if not shard.waiters:
                    break
                await self._coordinator.until_settled(shard)
            if shard.state is not ShardState.SERVING:
                return
            group = shard.groups.get(group_id)
            if group is not None and not shard.waiters:
                await asyncio.gather(*self._expire(shard, group, some))

    def _expire(
        self, shard: GroupShard, group: Group, some: Sequence[TopicPartition]
    ) -> "list[asyncio.Future[None]]":
        """Remove the expired offsets of the partitions `some`, and the group if it has no others.

        Returns the futures of the appended tombstones.
        """
        expired = self._expired(shard, group, some)
        kept = shard.offsets.count(group.group_id) - len(expired)
        is_gone = group.is_unused and not kept and not shard.offsets.has_pending(group.group_id)
        if is_gone:
            expired += group.tombstone_keys()
        if not expired:
            return []
        forgotten = group.group_id if is_gone else None
        return remove(self._coordinator, shard, expired, forgotten)

    def _expired(
        self, shard: GroupShard, group: Group, some: Sequence[TopicPartition]
    ) -> list[bytes]:
        rule = group.offset_expiry()
        if rule is None:
            return []
        return shard.offsets.expired(
            group.group_id,
            base_ms=rule.base_ms,
            now_ms=self._coordinator.clock.wall_ms(),
            retention_ms=self._retention_ms,
            advanced_since_ms=self._coordinator.clock.advanced_since_ms,
            subscribed=rule.subscribed,
            among=some,
        )


def forget_deleted_topics(coordinator: GroupCoordinator, changes: Changes) -> None:
    """Remove the offsets of deleted topics.

    The caller calls this method with each change of the metadata.
    """
    topics = dict(changes.topics_deleted)
    if not topics or OFFSETS_TOPIC in topics:
        return
    for shard in coordinator.shards:
        if shard.state is ShardState.SERVING:
            coordinator.work.run("offsets of deleted topics", _removing(coordinator, shard, topics))


def _removing(
    coordinator: GroupCoordinator, shard: GroupShard, topics: Mapping[str, bytes]
) -> Steps[None]:
    """Remove the offsets of deleted topics.

    The offsets that a step finds are removed in the same step, because an offset of a new topic
    with the same name may be committed at any time.
    """
    seen, found = 0, list[bytes]()
    gone = _gone(coordinator, shard, topics)
    for group_id in shard.offsets.group_ids():
        where = shard.offsets.partitions(group_id)
        for start in range(0, len(where), BATCH_RECORDS):
            some = where[start : start + BATCH_RECORDS]
            found += shard.offsets.of_deleted_topics(group_id, gone, among=some)
            seen += len(some) + 1
            if seen >= OFFSETS_AT_ONCE:
                _remove_found(coordinator, shard, found)
                seen, found = 0, []
                yield
                if shard.state is not ShardState.SERVING:
                    return
                gone = _gone(coordinator, shard, topics)
    _remove_found(coordinator, shard, found)


def _gone(
    coordinator: GroupCoordinator, shard: GroupShard, topics: Mapping[str, bytes]
) -> Mapping[str, bytes]:
    """Return those of the deleted topics whose offsets may be removed now.

    If a topic was created again under the same name, an offset of the new topic may still be in
    replication, and a tombstone appended now would remove it. In that case the old offsets stay
    until they expire. The old offsets have the id of the old topic, so no consumer of the new topic
    gets them.
    """
    if not shard.waiters:
        return topics
    return {name: id_ for name, id_ in topics.items() if not coordinator.has_topic(name)}


def _remove_found(coordinator: GroupCoordinator, shard: GroupShard, found: Sequence[bytes]) -> None:
    try:
        remove(coordinator, shard, found)
    except KafkaError as error:
        logger.info("%r: offsets of deleted topics are kept until they expire: %s", shard, error)


def _look(done: "asyncio.Future[None]") -> None:
    if not done.cancelled():
        # the exception is retrieved without an await; offsets that were not removed expire later
        done.exception()
