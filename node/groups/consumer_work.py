"""The long jobs of consumer groups, which compute target assignments and resolve patterns.

Each job runs in slices from an immutable snapshot of its group. A group has at most one job of each
kind. If the group has changed during a job, the result is dropped and the next heartbeat starts the
job again.
"""

import logging
from typing import Protocol

from ...coordinator.groups.consumer.consumer_group import ConsumerGroup, ConsumerRecord
from ...coordinator.groups.consumer.known_topics import KnownTopics
from ...coordinator.groups.consumer.patterns import resolved, resolving
from ...coordinator.groups.consumer.target_assignment import making_target_of
from ...coordinator.groups.consumer_groups import TARGET
from ...coordinator.groups.turn import Turn
from ...runtime.sliced_work import SlicedWork
from ...runtime.steps import Steps
from .shard import GroupShard, ShardState

logger = logging.getLogger(__name__)
TRY_AGAIN_MS = 10_000
_Key = tuple[GroupShard, str, str]


class _Coordinator(Protocol):
    topics: KnownTopics

    @property
    def work(self) -> SlicedWork: ...

    def execute(self, shard: GroupShard, turn: Turn) -> None: ...


class ConsumerWork:
    """The long jobs of all consumer groups of a broker."""

    def __init__(self, coordinator: _Coordinator) -> None:
        self._coordinator = coordinator
        self._under_way: set[_Key] = set()

    def begin(self, shard: GroupShard, kind: str, group_id: str) -> None:
        """Begin a job of a group, unless a job of the same kind is running.

        No job begins for TRY_AGAIN_MS after a result of the group that could not be appended.
        """
        key = (shard, kind, group_id)
        group = shard.groups.get(group_id)
        if key in self._under_way or not isinstance(group, ConsumerGroup):
            return
        if shard.turn().now_ms < group.long_work_after_ms:
            return
        self._under_way.add(key)
        self._coordinator.work.begin(f"{kind} of a group", self._doing(key, group))

    def _doing(self, key: _Key, group: ConsumerGroup) -> Steps[None]:
        shard, kind, group_id = key
        try:
            working = self._target if kind == TARGET else self._patterns
            yield from working(shard, group)
        except Exception:  # an error of one group must not affect the others
            logger.exception("%r: the %s of group %s failed", shard, kind, group_id)
        finally:
            self._under_way.discard(key)

    def _target(self, shard: GroupShard, group: ConsumerGroup) -> Steps[None]:
        epoch, member_ids = group.epoch, set(group.members)
        topics = self._coordinator.topics.by_name
        if epoch == group.target.epoch:
            return  # the record of the group's new epoch could not be appended
        turn = shard.turn()
        assignor = turn.settings.consumer(group.group_id).assignors[0]
        records = yield from making_target_of(group, topics, turn.wall_ms, assignor)
        # A static member may have rejoined with another member id in the same epoch.
        if group.epoch == epoch and group.members.keys() == member_ids:
            words = f"a new assignment for {len(member_ids)} members, group epoch {epoch}"
            self._append(shard, group, records, words)

    def _patterns(self, shard: GroupShard, group: ConsumerGroup) -> Steps[None]:
        topics = self._coordinator.topics
        creations = topics.creations
        found = yield from resolving(group, topics.by_name)
        records = resolved(group, found, topics.by_name, shard.turn().wall_ms)
        group.resolved_creations = creations
        self._append(shard, group, records)

    def _append(
        self,
        shard: GroupShard,
        group: ConsumerGroup,
        records: list[ConsumerRecord],
        words: str = "",
    ) -> None:
        """Append a job's result, unless the group was removed or the shard has another leader.

        words: the line for the log.
        """
        is_there = shard.groups.get(group.group_id) is group
        if shard.state is not ShardState.SERVING or not is_there:
            return
        turn = shard.turn()
        if words:
            turn.note(group.group_id, "assignment", words)

        def settled(error: int, later: Turn) -> None:
            if error:  # mostly because the records do not fit into one batch
                group.long_work_after_ms = later.now_ms + TRY_AGAIN_MS
                group.resolved_creations = -1

        shard.table.consumers.append(group, records, settled, turn)
        self._coordinator.execute(shard, turn)
