"""What can be wrong where groups keep their offsets."""

from contextlib import AbstractContextManager
from typing import Any

from oncelog.coordinator.groups.classic_group import ClassicGroup
from oncelog.coordinator.groups.consumer.consumer_group import ConsumerGroup
from oncelog.coordinator.groups.offset_table import OffsetTable
from oncelog.node.groups.coordinator import GroupCoordinator

from .patching import replaced


def early_commits() -> AbstractContextManager[Any]:
    """An OffsetCommit is answered when the leader has it (KAFKA-20634)."""

    def append_then(self: Any, shard: Any, batch: Any, replayed: Any) -> None:
        self._append(shard, batch)
        replayed(None)

    return replaced(GroupCoordinator, "append_then", append_then)


def failed_load() -> AbstractContextManager[Any]:
    """A group shard is not loaded that meets a tombstone of what is compacted (KAFKA-19862)."""
    sound = OffsetTable._drop

    def drop(self: Any, group_id: str, where: Any) -> None:
        if not self.has(group_id, *where):
            raise RuntimeError(f"{group_id} has no offset of {where}")
        sound(self, group_id, where)

    return replaced(OffsetTable, "_drop", drop)


def taken_too_early() -> AbstractContextManager[Any]:
    """A member of a consumer group takes a partition that another one has yet to give up."""
    return replaced(ConsumerGroup, "is_held", lambda *_: False)


def reused_generation() -> AbstractContextManager[Any]:
    """A new coordinator counts the generations of a classic group from the beginning."""
    sound = ClassicGroup.restored

    def restored(*given: Any) -> ClassicGroup:
        group = sound(*given)
        group.generation = 0
        return group

    return replaced(ClassicGroup, "restored", staticmethod(restored))
