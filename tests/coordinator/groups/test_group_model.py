"""Test that each of many random requests to a classic group is answered exactly once.

The clients are careless. They join and forget the join, sync past generations, return as static
members, and die. Records are committed late or not at all, and the coordinator fails over.
"""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from oncelog.coordinator.groups.classic_group import ClassicGroup
from oncelog.coordinator.groups.group_member import pending_member_bytes
from oncelog.coordinator.groups.group_states import GroupState
from oncelog.wire.errors import ErrorCode

from .group_driver import GROUP, REBALANCE_MS, SESSION_MS, Groups, Ticket, stored_group

PROTOCOLS = st.sampled_from(
    [
        (("range", b"1"), ("sticky", b"1")),
        (("range", b"2"), ("sticky", b"2")),
        (("sticky", b"3"), ("range", b"3")),
        (("range", b"4"),),
    ]
)
INSTANCES = st.sampled_from([None, None, "a", "b"])
WHO = st.integers(0, 99)
VERSIONS = st.sampled_from([3, 8, 9])


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.groups = Groups(holds_stores=True, initial_rebalance_delay_ms=500, max_size=4)
        self.known: list[tuple[str, str | None]] = [("stranger", None), ("impostor", "a")]
        self.joins: list[Ticket] = []
        self.syncs: list[Ticket] = []
        self.generation = 0
        self.protocols: dict[int, str] = {}  # by generation, as answered

    @property
    def group(self) -> ClassicGroup | None:
        return self.groups.table.classic(GROUP)

    def somebody(self, number: int) -> tuple[str, str | None]:
        """Return ids of a present member in 80 % of cases, else of a former or unknown one."""
        members = [] if self.group is None else list(self.group.members.values())
        if number < 80 and members:
            member = members[number % len(members)]
            return member.member_id, member.group_instance_id
        return self.known[number % len(self.known)]

    def _join(self, member_id="", **options):
        ticket = self.groups.join(member_id, **options)
        if not ticket.is_waiting and ticket.answer.member_id:
            self.known.append((ticket.answer.member_id, options.get("instance")))
        self.joins.append(ticket)

    def _sync(self, member_id, instance, generation):
        ids = [] if self.group is None else list(self.group.members)
        assignments = {each: f"{generation} {each}".encode() for each in ids}
        self.syncs.append(
            self.groups.sync(
                member_id, instance=instance, generation=generation, assignments=assignments
            )
        )

    @initialize(count=st.integers(1, 4))
    def some_are_there(self, count):
        for _ in range(count):
            self._join(version=3)
        self.groups.pass_time(1000)

    @rule(
        instance=INSTANCES,
        protocols=PROTOCOLS,
        version=VERSIONS,
        rebalance_ms=st.sampled_from([0, 1000, REBALANCE_MS]),
    )
    def join_anew(self, instance, protocols, version, rebalance_ms):
        self._join(
            instance=instance, protocols=protocols, version=version, rebalance_ms=rebalance_ms
        )

    @rule(who=WHO, protocols=PROTOCOLS, version=VERSIONS)
    def join_again(self, who, protocols, version):
        member_id, instance = self.somebody(who)
        self._join(member_id, instance=instance, protocols=protocols, version=version)

    @rule(but=st.integers(0, 20))
    def all_join_again(self, but):
        members = [] if self.group is None else list(self.group.members.values())
        for number, member in enumerate(members):
            if number != but:
                self._join(
                    member.member_id,
                    instance=member.group_instance_id,
                    protocols=member.protocols,
                )

    @rule(who=WHO, late=st.sampled_from([0, 0, 0, 1]))
    def sync(self, who, late):
        generation = 0 if self.group is None else self.group.generation
        self._sync(*self.somebody(who), generation - late)

    @rule(but=st.integers(0, 20))
    def all_sync(self, but):
        members = [] if self.group is None else list(self.group.members.values())
        for number, member in enumerate(members):
            if number != but and self.group is not None:
                self._sync(member.member_id, member.group_instance_id, self.group.generation)

    @rule()
    def the_leader_syncs(self):
        leader = None if self.group is None else self.group.members.get(self.group.leader_id or "")
        if leader is not None and self.group is not None:
            self._sync(leader.member_id, leader.group_instance_id, self.group.generation)

    @rule(who=WHO)
    def heartbeat(self, who):
        member_id, instance = self.somebody(who)
        self.groups.heartbeat(member_id, instance=instance)

    @rule()
    def all_beat(self):
        for member in () if self.group is None else list(self.group.members.values()):
            self.groups.heartbeat(member.member_id, instance=member.group_instance_id)

    @rule(leaving=st.lists(WHO, min_size=1, max_size=3))
    def leave(self, leaving):
        self.groups.leave(*(self.somebody(who) for who in leaving))

    @rule(instance=st.sampled_from(["a", "b"]))
    def administrator_removes(self, instance):
        self.groups.leave(("", instance))

    @rule(delay_ms=st.sampled_from([1, 499, 500, 1000, SESSION_MS // 2, SESSION_MS]))
    def time_passes(self, delay_ms):
        self.groups.pass_time(delay_ms)

    @rule(error=st.sampled_from([0, 0, 0, 0, ErrorCode.COORDINATOR_NOT_AVAILABLE]))
    def replicas_answer(self, error):
        if self.groups.waiting_stores:
            self.groups.settle_store(error)

    @rule()
    def replicas_are_quick(self):
        while self.groups.waiting_stores:
            self.groups.settle_store()

    @rule()
    def coordinator_dies(self):
        self.groups.fail_over()
        assert not self.groups.waiting_stores
        assert not [ticket for ticket in (*self.joins, *self.syncs) if ticket.is_waiting]
        self.generation = 0 if self.group is None else self.group.generation
        self.protocols.clear()

    @invariant()
    def answers_are_given_once_and_agree(self):
        for ticket in (*self.joins, *self.syncs):
            assert len(ticket.answers) <= 1
        for ticket in self.joins:
            if not ticket.is_waiting and not ticket.error:
                answer = ticket.answer
                name = self.protocols.setdefault(answer.generation, answer.protocol_name)
                assert name == answer.protocol_name
                if answer.members:
                    assert answer.member_id in {m.member_id for m in answer.members}
        self.joins = [ticket for ticket in self.joins if ticket.is_waiting]
        self.syncs = [ticket for ticket in self.syncs if ticket.is_waiting]

    @invariant()
    def the_books_are_right(self):
        group = self.group
        if group is None:
            assert not self.groups.table.held_metadata.size_bytes
            return
        members = group.members.values()
        assert group.generation >= self.generation
        self.generation = group.generation
        assert group.awaiting_join_count == sum(m.join_ticket is not None for m in members)
        assert group.support == Counter(name for m in members for name, _ in m.protocols)
        held = sum(m.held_bytes for m in members)
        held += sum(map(pending_member_bytes, group.pending_join))
        assert self.groups.table.held_metadata.size_bytes == held
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
        """Check that each waiting request has a member, and each member a request or deadline."""
        deadlines = self.groups.table.deadlines
        group = self.group
        waiting_joins = {id(t) for t in self.joins if t.is_waiting}
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
                stored_group(s).generation == group.generation for s in self.groups.waiting_stores
            )
            assert ("sync", GROUP, "") in deadlines or is_being_stored

    def teardown(self):
        """Check that the group becomes empty without requests, and each request was answered."""
        for _ in range(20):
            while self.groups.waiting_stores:
                self.groups.settle_store()
            self.groups.pass_time(REBALANCE_MS)
        self.answers_are_given_once_and_agree()
        assert not self.joins
        assert not self.syncs
        group = self.group
        if group is not None:
            assert group.state is GroupState.EMPTY
            assert not group.pending_join
            assert not len(self.groups.table.deadlines)


TestGroups = GroupMachine.TestCase
TestGroups.settings = settings(max_examples=250, stateful_step_count=60, deadline=None)
