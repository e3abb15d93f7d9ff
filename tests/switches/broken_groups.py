"""Switches with bugs of consumer groups, in their offsets, members and epochs."""

from contextlib import AbstractContextManager
from typing import Any

from oncelog.coordinator.groups.classic_group import ClassicGroup
from oncelog.coordinator.groups.consumer import heartbeats
from oncelog.coordinator.groups.consumer.consumer_group import ConsumerGroup, held_partitions
from oncelog.coordinator.groups.consumer.records import CurrentAssignmentKey
from oncelog.coordinator.groups.consumer_groups import ConsumerGroups
from oncelog.coordinator.groups.migration import classic_members
from oncelog.coordinator.groups.offset_table import OffsetTable
from oncelog.coordinator.groups.turn import GroupAppend
from oncelog.node.groups.coordinator import GroupCoordinator
from oncelog.node.groups.turn_execution import TurnExecution
from oncelog.wire.errors import ErrorCode

from .patching import replaced, together


def early_commits() -> AbstractContextManager[Any]:
    """An OffsetCommit is answered before its records are replicated (KAFKA-20634)."""
    sound = GroupCoordinator.append_then

    def append_then(self: Any, shard: Any, batch: Any, replayed: Any, **kinds: Any) -> int:
        if kinds:  # records of a group
            return sound(self, shard, batch, replayed, **kinds)
        info = self._append(shard, batch)
        replayed(None)
        return info.last_offset + 1

    return replaced(GroupCoordinator, "append_then", append_then)


def failed_load() -> AbstractContextManager[Any]:
    """A group shard with a tombstone of a compacted record is not loaded (KAFKA-19862)."""
    sound = OffsetTable._drop

    def drop(self: Any, group_id: str, where: Any) -> None:
        if not self.has(group_id, *where):
            raise RuntimeError(f"{group_id} has no offset of {where}")
        sound(self, group_id, where)

    return replaced(OffsetTable, "_drop", drop)


def taken_too_early() -> AbstractContextManager[Any]:
    """A member gets a partition before its owner has revoked that partition."""
    return replaced(ConsumerGroup, "is_held", lambda *_: False)


def no_member_epoch() -> AbstractContextManager[Any]:
    """An OffsetCommit of a consumer group member is accepted with any member epoch."""

    def check(self: Any, member_id: str, *_: Any, **__: Any) -> None:
        self.check_member(member_id)

    return replaced(ConsumerGroup, "check_offset_commit", check)


def no_assignment_epoch() -> AbstractContextManager[Any]:
    """An older epoch of a member is accepted for partitions assigned to it later."""
    sound = ConsumerGroup.check_offset_commit

    def check(
        self: Any,
        member_id: str,
        instance_id: Any,
        generation: int,
        *,
        partitions: Any,
        **more: Any,
    ) -> None:
        asked, now = set(partitions), self.assignments.get(member_id)
        if now is not None and generation >= 0 and asked <= set(held_partitions(now)):
            generation = now.member_epoch
        sound(self, member_id, instance_id, generation, partitions=asked, **more)

    return replaced(ConsumerGroup, "check_offset_commit", check)


def lent_instance() -> AbstractContextManager[Any]:
    """A commit by the former process of a static member is accepted as the current process's."""
    sound = ConsumerGroup.check_offset_commit

    def check(self: Any, member_id: str, instance_id: Any, generation: int, **more: Any) -> None:
        sound(self, self.instances.get(instance_id, member_id), instance_id, generation, **more)

    return replaced(ConsumerGroup, "check_offset_commit", check)


def no_session_after_load() -> AbstractContextManager[Any]:
    """A new coordinator waits forever for the members of consumer groups that it has loaded."""
    return replaced(ConsumerGroups, "on_loaded", lambda *_: None)


def lost_replay() -> AbstractContextManager[Any]:
    """The coordinator does not apply its own record that removes a leaving member's partitions."""
    sound = ConsumerGroups.append

    def append(self: Any, group: Any, records: Any, settled: Any, turn: Any, **first: Any) -> None:
        sound(self, group, records, settled, turn, **first)
        if first.get("first"):
            return

        def replay(_: Any) -> None:
            for key, value in records:
                if value is not None or not isinstance(key, CurrentAssignmentKey):
                    self.replay(key, value)

        turn.appends[-1].replay = replay

    return replaced(ConsumerGroups, "append", append)


def old_pattern_result() -> AbstractContextManager[Any]:
    """After new topics are created, a subscription to a pattern does not get those that match."""
    sound = heartbeats.patterns_are_due

    def are_due(group: Any, around: Any, new: str = "") -> bool:
        group.resolved_creations = around.topics.creations
        return sound(group, around, new)

    return replaced(heartbeats, "patterns_are_due", are_due)


def early_heartbeats() -> AbstractContextManager[Any]:
    """A heartbeat of a consumer group is answered before its records are replicated."""
    sound = TurnExecution._append_replayed

    def append_replayed(self: Any, shard: Any, append: Any) -> int:
        settled, told = append.settled, list[int]()

        def once(error: int, turn: Any) -> None:
            if not told:
                told.append(error)
                settled(error, turn)

        append.settled = once
        error = sound(self, shard, append)
        return ErrorCode.NONE if error is None else error

    return replaced(TurnExecution, "_append_replayed", append_replayed)


def reused_generation() -> AbstractContextManager[Any]:
    """A new coordinator starts the generations of a classic group at the beginning."""
    sound = ClassicGroup.restored

    def restored(*given: Any) -> ClassicGroup:
        group = sound(*given)
        group.generation = 0
        return group

    return replaced(ClassicGroup, "restored", staticmethod(restored))


def downgrade_in_two_batches() -> AbstractContextManager[Any]:
    """A group is downgraded in two batches. The first removes the old form of the group."""
    sound = ConsumerGroups.downgrade

    def downgrade(self: Any, group: Any, leaving: Any, settled: Any, turn: Any, *more: Any) -> None:
        sound(self, group, leaving, settled, turn, *more)
        whole = turn.appends.pop()
        *gone, comes = whole.records()

        def then(error: int, later: Any) -> None:
            if error:
                settled(error, later)
            else:
                later.appends.append(
                    GroupAppend(whole.group_id, lambda: [comes], settled, lambda _: None)
                )

        turn.appends.append(GroupAppend(whole.group_id, lambda: gone, then, whole.replay))

    return replaced(ConsumerGroups, "downgrade", downgrade)


def no_classic_generation() -> AbstractContextManager[Any]:
    """The generation of a classic member is never checked in a group with both protocols."""
    check_member, check_commit = classic_members.check_member, ConsumerGroup.check_offset_commit

    def epoch_of(group: Any, member_id: str, said: int) -> int:
        member, now = group.members.get(member_id), group.assignments.get(member_id)
        if now is None or member is None or member.classic is None:
            return said
        return now.member_epoch

    def check(group: Any, member_id: str, instance_id: Any, generation: int) -> Any:
        return check_member(group, member_id, instance_id, epoch_of(group, member_id, generation))

    def commit(self: Any, member_id: str, instance_id: Any, generation: int, **more: Any) -> None:
        known = epoch_of(self, member_id, generation)
        check_commit(self, member_id, instance_id, known, **more)

    return together(
        replaced(classic_members, "check_member", check),
        replaced(ConsumerGroup, "check_offset_commit", commit),
    )
