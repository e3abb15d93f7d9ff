"""Whatever clients do, and in whatever order: no answer is lost, none is given twice.

Clients here have no manners: they join and forget it, sync generations that are over, come back as
static members, and die. Records are committed late or not at all, and the coordinator fails over.
"""

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from oncelog.coordinator.groups.group_states import GroupState
from oncelog.wire.errors import ErrorCode

from .group_driver import GROUP, REBALANCE_MS, SESSION_MS, Groups, Ticket

PROTOCOLS = st.sampled_from(
    [
        (("range", b"1"), ("sticky", b"1")),
        (("range", b"2"), ("sticky", b"2")),
        (("sticky", b"3"), ("range", b"3")),
        (("range", b"4"),),
        (("other", b""),),
    ]
)
INSTANCES = st.sampled_from([None, None, "a", "b"])
VERSIONS = st.sampled_from([3, 8, 9])


class GroupMachine(RuleBasedStateMachine):
    """One group."""

    members = Bundle("members")

    def __init__(self) -> None:
        super().__init__()
        self.groups = Groups(holds_stores=True, initial_rebalance_delay_ms=500, max_size=4)
        self.joins: list[tuple[Ticket, str | None]] = []
        self.syncs: list[Ticket] = []
        self.generation = 0
        self.told: dict[int, dict[str, Any]] = {}  # what the members of a generation were told

    @rule(
        target=members,
        instance=INSTANCES,
        protocols=PROTOCOLS,
        version=VERSIONS,
        rebalance_ms=st.sampled_from([0, 1000, REBALANCE_MS]),
    )
    def join_anew(self, instance, protocols, version, rebalance_ms):
        ticket = self.groups.join(
            instance=instance, protocols=protocols, version=version, rebalance_ms=rebalance_ms
        )
        self.joins.append((ticket, instance))
        if not ticket.is_waiting and ticket.answer.member_id:
            return (ticket.answer.member_id, instance)
        return multiple()

    @rule(target=members)
    def somebody_who_is_there(self):
        group = self.groups.table.groups.get(GROUP)
        found = (
            []
            if group is None
            else [(m.member_id, m.group_instance_id) for m in group.members.values()]
        )
        return multiple(*found[:3])

    @rule(member=members, protocols=PROTOCOLS, version=VERSIONS)
    def join_again(self, member, protocols, version):
        member_id, instance = member
        ticket = self.groups.join(
            member_id, instance=instance, protocols=protocols, version=version
        )
        self.joins.append((ticket, instance))

    @rule(member=members, late=st.sampled_from([0, 0, 0, 1]))
    def sync(self, member, late):
        member_id, instance = member
        group = self.groups.table.groups.get(GROUP)
        generation = 0 if group is None else group.generation - late
        ids = [] if group is None else list(group.members)
        self.syncs.append(
            self.groups.sync(
                member_id,
                instance=instance,
                generation=generation,
                assignments={each: f"{generation} {each}".encode() for each in ids},
            )
        )

    @rule(member=members)
    def heartbeat(self, member):
        self.groups.heartbeat(member[0], instance=member[1])

    @rule(leaving=st.lists(consumes(members), min_size=1, max_size=3))
    def leave(self, leaving):
        self.groups.leave(*leaving)

    @rule(instance=st.sampled_from(["a", "b"]))
    def administrator_removes(self, instance):
        self.groups.leave(("", instance))

    @rule(delay_ms=st.sampled_from([1, 499, 500, 1000, SESSION_MS // 2, SESSION_MS]))
    def time_passes(self, delay_ms):
        self.groups.pass_time(delay_ms)

    @rule(error=st.sampled_from([0, 0, 0, ErrorCode.COORDINATOR_NOT_AVAILABLE]))
    def replicas_answer(self, error):
        if self.groups.waiting_stores:
            self.groups.settle_store(error)

    @rule()
    def coordinator_dies(self):
        self.groups.fail_over()
        assert not self.groups.waiting_stores
        assert not [ticket for ticket, _ in self.joins if ticket.is_waiting]
        assert not [ticket for ticket in self.syncs if ticket.is_waiting]
        group = self.groups.table.groups.get(GROUP)
        self.generation = 0 if group is None else group.generation
        self.told.clear()

    @invariant()
    def answers_are_given_once_and_agree(self):
        for ticket, _ in self.joins:
            assert len(ticket.answers) <= 1
        for ticket in self.syncs:
            assert len(ticket.answers) <= 1
        for ticket, _ in self.joins:
            if ticket.is_waiting or ticket.error:
                continue
            answer = ticket.answer
            told = self.told.setdefault(
                answer.generation, {"protocol": answer.protocol_name, "leaders": set()}
            )
            assert told["protocol"] == answer.protocol_name
            if answer.members and not answer.skip_assignment:
                told["leaders"].add(answer.member_id)
                assert answer.member_id in {m.member_id for m in answer.members}
        self.joins = [(t, i) for t, i in self.joins if t.is_waiting]
        self.syncs = [t for t in self.syncs if t.is_waiting]

    @invariant()
    def the_books_are_right(self):
        group = self.groups.table.groups.get(GROUP)
        if group is None:
            return
        members = group.members.values()
        assert group.generation >= self.generation
        self.generation = group.generation
        assert group.awaiting_join_count == sum(m.join_ticket is not None for m in members)
        assert group.support == Counter(name for m in members for name, _ in m.protocols)
        assert group.static_members == {
            m.group_instance_id: m.member_id for m in members if m.group_instance_id is not None
        }
        assert group.pending_sync <= group.members.keys()
        assert not group.pending_join & group.members.keys()
        assert (group.leader_id in group.members) if members else group.leader_id is None
        if group.state is GroupState.EMPTY:
            assert not members
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            assert members
            for member in members:
                member.metadata(group.protocol_name)

    @invariant()
    def nobody_is_forgotten(self):
        """Each waiting request belongs to a member, each member to a deadline."""
        deadlines = self.groups.table.deadlines
        group = self.groups.table.groups.get(GROUP)
        waiting_joins = {id(t) for t, _ in self.joins if t.is_waiting}
        waiting_syncs = {id(t) for t in self.syncs if t.is_waiting}
        if group is None:
            assert not waiting_joins | waiting_syncs
            assert not len(deadlines)
            return
        members = group.members.values()
        assert waiting_joins == {id(m.join_ticket) for m in members if m.join_ticket}
        assert waiting_syncs == {id(m.sync_ticket) for m in members if m.sync_ticket}
        for member in members:
            if not member.counts_as_alive:
                assert ("heartbeat", GROUP, member.member_id) in deadlines
        for member_id in group.pending_join:
            assert ("heartbeat", GROUP, member_id) in deadlines
        if group.state is GroupState.PREPARING_REBALANCE:
            assert ("join", GROUP, "") in deadlines
        if waiting_syncs:
            is_being_stored = any(
                s.value.generation == group.generation for s in self.groups.waiting_stores
            )
            assert ("sync", GROUP, "") in deadlines or is_being_stored

    def teardown(self):
        """When everybody is silent the group is empty in the end, and all have been answered."""
        for _ in range(20):
            while self.groups.waiting_stores:
                self.groups.settle_store()
            self.groups.pass_time(REBALANCE_MS)
        self.answers_are_given_once_and_agree()
        assert not self.joins
        assert not self.syncs
        group = self.groups.table.groups.get(GROUP)
        if group is not None:
            assert group.state is GroupState.EMPTY
            assert not group.pending_join
            assert not len(self.groups.table.deadlines)


TestGroups = GroupMachine.TestCase
TestGroups.settings = settings(max_examples=120, stateful_step_count=60, deadline=None)
