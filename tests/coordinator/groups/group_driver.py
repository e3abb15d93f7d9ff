"""The groups of one partition of __consumer_offsets, with a simulated clock and log."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from oncelog.coordinator.groups.classic_group import ClassicGroup
from oncelog.coordinator.groups.group_messages import (
    GroupSettings,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    Protocols,
    SyncAnswer,
    SyncRequest,
)
from oncelog.coordinator.groups.group_table import GroupTable
from oncelog.coordinator.groups.records import GroupKey, GroupValue, decode_group_value, decode_key
from oncelog.coordinator.groups.turn import GroupAppend, Turn
from oncelog.runtime.steps import run_to_end
from oncelog.wire.errors import ErrorCode, KafkaError

SESSION_MS, REBALANCE_MS = 10_000, 60_000
GROUP = "g"
PLAIN: Protocols = (("range", b"mine"), ("sticky", b"mine too"))


class Ticket:
    """A JoinGroup or SyncGroup request, which must be answered once."""

    def __init__(self) -> None:
        self.answers: list[JoinAnswer | SyncAnswer] = []

    @property
    def answer(self) -> Any:
        assert len(self.answers) == 1, "a request is answered once"
        return self.answers[0]

    @property
    def is_waiting(self) -> bool:
        return not self.answers

    @property
    def error(self) -> int:
        return self.answer.error


def stored_group(append: GroupAppend) -> GroupValue:
    """Return the only record of a batch of a classic group, decoded."""
    ((encoded_key, value),) = append.records()
    assert decode_key(encoded_key) == GroupKey(append.group_id) and value is not None
    return decode_group_value(value)


class Groups:
    """A group coordinator with a clock that the test controls, and a log that the test commits."""

    def __init__(self, *, holds_stores: bool = False, **settings: int) -> None:
        self.settings = replace(GroupSettings(), **settings)
        self.now_ms = 1_000_000
        self.table = GroupTable()
        self.holds_stores = holds_stores
        self.waiting_stores: list[GroupAppend] = []
        self.log: dict[str, GroupValue] = {}
        self.ids = 0

    @property
    def group(self) -> ClassicGroup:
        return self.table.find_classic(GROUP)

    def turn(self) -> Turn:
        return Turn(self.now_ms, self.now_ms, self.settings, self.table.deadlines)

    def execute(self, turn: Turn) -> None:
        for _, error in turn.failures:
            raise error
        for ticket, answer in turn.answers:
            assert isinstance(ticket, Ticket) and isinstance(answer, JoinAnswer | SyncAnswer)
            ticket.answers.append(answer)
        for steps in turn.steps:
            run_to_end(steps)
        self.waiting_stores += turn.appends
        while self.waiting_stores and not self.holds_stores:
            self.settle_store()

    def settle_store(self, error: int = ErrorCode.NONE) -> None:
        """Complete the oldest uncommitted record, which is committed unless there is an error."""
        store = self.waiting_stores.pop(0)
        if not error:
            self.log[store.group_id] = stored_group(store)
        turn = self.turn()
        store.settled(error, turn)
        self.execute(turn)

    # -- requests

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Protocols = PLAIN,
        version: int = 9,
        group_id: str = GROUP,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        client_id: str = "client",
    ) -> Ticket:
        self.ids += 1
        ticket, turn = Ticket(), self.turn()
        request = JoinRequest(
            group_id=group_id,
            member_id=member_id,
            new_member_id=f"{instance or client_id}-{self.ids}",
            group_instance_id=instance,
            client_id=client_id,
            client_host="/127.0.0.1",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=protocols,
            requires_member_id=version >= 4,
            can_skip_assignment=version >= 9,
        )
        self.table.join(request, ticket, turn)
        self.execute(turn)
        return ticket

    def sync(
        self,
        member_id: str,
        *,
        generation: int | None = None,
        instance: str | None = None,
        assignments: Mapping[str, bytes] | None = None,
        protocol_name: str | None = None,
        protocol_type: str | None = None,
    ) -> Ticket:
        ticket, turn = Ticket(), self.turn()
        request = SyncRequest(
            group_id=GROUP,
            member_id=member_id,
            group_instance_id=instance,
            generation=self._generation(generation),
            protocol_name=protocol_name,
            protocol_type=protocol_type,
            assignments=assignments or {},
        )
        self.table.sync(request, ticket, turn)
        self.execute(turn)
        return ticket

    def heartbeat(
        self, member_id: str, *, generation: int | None = None, instance: str | None = None
    ) -> int:
        turn = self.turn()
        try:
            self.table.heartbeat(GROUP, member_id, instance, self._generation(generation), turn)
        except KafkaError as error:
            self.execute(turn)
            return error.number
        self.execute(turn)
        return ErrorCode.NONE

    def leave(self, *leaving: tuple[str, str | None]) -> list[int]:
        turn = self.turn()
        members = [
            LeavingMember(member_id=member_id, group_instance_id=instance)
            for member_id, instance in leaving
        ]
        try:
            errors = self.table.leave(GROUP, members, turn)
        except KafkaError as error:
            return [error.number] * len(members)
        self.execute(turn)
        return errors

    def _generation(self, generation: int | None) -> int:
        if generation is not None:
            return generation
        group = self.table.classic(GROUP)
        return 0 if group is None else group.generation

    # -- passing time and expiry

    def pass_time(self, delay_ms: int) -> None:
        """Let time pass, and let each deadline expire at its time."""
        end_ms = self.now_ms + delay_ms
        while (next_ms := self.table.deadlines.next_ms) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            turn = self.turn()
            self.table.due(turn)
            self.execute(turn)
        self.now_ms = end_ms

    def release(self, error: int = ErrorCode.NOT_COORDINATOR) -> None:
        turn = self.turn()
        for group_id in list(self.table.groups):
            self.table.remove(group_id, turn, error)
        self.execute(turn)

    def fail_over(self) -> None:
        """Let another coordinator load the committed records."""
        self.release()
        self.waiting_stores.clear()
        self.table = GroupTable()
        for group_id, value in self.log.items():
            self.table.replay(group_id, value)
        turn = self.turn()
        self.table.on_loaded(turn, self.table.groups.values())
        self.execute(turn)

    # -- shorthand

    def new_member(self, **options: Any) -> tuple[str, Ticket]:
        """Let a dynamic member get an id and send JoinGroup. Return the id and the request."""
        first = self.join(**options)
        assert first.error == ErrorCode.MEMBER_ID_REQUIRED
        return first.answer.member_id, self.join(first.answer.member_id, **options)

    def joined(self, count: int, **options: Any) -> list[str]:
        """Let dynamic members join. Return their ids after JoinGroup, before SyncGroup."""
        members = [self.new_member(**options) for _ in range(count)]
        self.pass_time(self.settings.initial_rebalance_delay_ms)
        assert [ticket.error for _, ticket in members] == [0] * count
        return [member_id for member_id, _ in members]

    def stable(self, count: int = 2, **options: Any) -> list[str]:
        """Let dynamic members join and sync.

        Return their ids, the first of which leads the group.
        """
        ids = self.joined(count, **options)
        self.sync_all(ids)
        return ids

    def sync_all(self, member_ids: list[str]) -> None:
        """Send SyncGroup for all members, the leader last, and check that all are answered."""
        leader = self.group.leader_id
        assert leader is not None
        others = [self.sync(each) for each in member_ids if each != leader]
        assignments = {each: f"of {each}".encode() for each in member_ids}
        last = self.sync(leader, assignments=assignments)
        assert [ticket.error for ticket in (*others, last)] == [0] * len(member_ids)
