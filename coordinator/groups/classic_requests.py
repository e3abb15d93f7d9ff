"""Requests of the classic protocol to consumer groups (KIP-848, migration).

The rules are in `migration/classic_members`. A request is answered when all records of the group on
which the answer is based are committed.
"""

from collections.abc import Callable
from dataclasses import replace

from ...wire.errors import ErrorCode, KafkaError, RebalanceInProgress
from .consumer.consumer_group import ConsumerGroup
from .consumer_groups import ConsumerGroups, expect_classic_heartbeat
from .consumer_protocol import CONSUMER
from .group_messages import NO_MEMBER, JoinAnswer, JoinRequest, SyncAnswer, SyncRequest
from .migration import classic_members
from .migration.downgrade import is_due
from .turn import REJOIN, Turn


class ClassicRequests:
    """The handler of requests by members of the classic protocol in consumer groups.

    join_classic: handles a JoinGroup that has first turned its group into a classic group.
    """

    def __init__(
        self,
        consumers: ConsumerGroups,
        join_classic: Callable[[JoinRequest, object, Turn], None],
    ) -> None:
        self._consumers = consumers
        self._join_classic = join_classic

    def join(self, group: ConsumerGroup, request: JoinRequest, ticket: object, turn: Turn) -> None:
        """Handle JoinGroup. The member learns its partitions from the SyncGroup that follows."""
        try:
            self._join(group, request, ticket, turn)
        except KafkaError as error:
            turn.answer(ticket, JoinAnswer(error=error.number))

    def _join(self, group: ConsumerGroup, request: JoinRequest, ticket: object, turn: Turn) -> None:
        classic_members.check_join(group, request)
        is_new, instance_id = request.member_id == NO_MEMBER, request.group_instance_id
        if is_new and instance_id is None and request.requires_member_id:
            told = JoinAnswer(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=request.new_member_id)
            return turn.answer(ticket, told)
        member_id = request.new_member_id if is_new else request.member_id
        asked = classic_members.asked_by(request, member_id, turn.topics.by_name)
        replaced = group.instances.get(instance_id or "") if is_new else None
        if replaced is not None and is_due(group, [replaced], turn.settings, request):
            known = replace(request, member_id=member_id)

            def joins_again(error: int, later: Turn) -> None:
                if error:
                    later.answer(ticket, JoinAnswer(error=error))
                else:
                    self._join_classic(known, ticket, later)

            return self._consumers.downgrade(group, [replaced], joins_again, turn, known)
        decision = self._consumers.decide(group, asked, turn)
        turn.set_deadline(REJOIN, group.group_id, member_id, request.rebalance_timeout_ms)
        answer = JoinAnswer(
            member_id=member_id,
            generation=decision.answer.member_epoch,
            protocol_type=CONSUMER,
            protocol_name=request.protocols[0][0],
        )

        def settled(error: int, later: Turn) -> None:
            later.answer(ticket, JoinAnswer(error=error) if error else answer)

        self._consumers.append(group, decision.records, settled, turn)
        return self._consumers.begin_long_work(group, decision, turn)

    def sync(self, group: ConsumerGroup, request: SyncRequest, ticket: object, turn: Turn) -> None:
        """Handle SyncGroup.

        The member gets its partitions when the record of its assignment is committed.
        """
        try:
            assignment = classic_members.sync(group, request, turn.topics.by_name)
        except KafkaError as error:
            if isinstance(error, RebalanceInProgress):
                self._expect_join(group, request.member_id, turn)
            return turn.answer(ticket, SyncAnswer(error=error.number))
        turn.cancel_deadline(REJOIN, group.group_id, request.member_id)
        expect_classic_heartbeat(group, request.member_id, turn)
        answer = SyncAnswer(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment,
        )

        def settled(error: int, later: Turn) -> None:
            later.answer(ticket, SyncAnswer(error=error) if error else answer)

        return self._consumers.append(group, (), settled, turn)

    def heartbeat(
        self,
        group: ConsumerGroup,
        member_id: str,
        instance_id: str | None,
        generation: int,
        turn: Turn,
    ) -> None:
        """Handle Heartbeat, or raise the KafkaError of its answer."""
        classic_members.check_member(group, member_id, instance_id, generation)
        expect_classic_heartbeat(group, member_id, turn)
        if classic_members.must_rejoin(group, member_id):
            self._expect_join(group, member_id, turn)
            raise RebalanceInProgress

    @staticmethod
    def _expect_join(group: ConsumerGroup, member_id: str, turn: Turn) -> None:
        """Start the timeout for a member's next JoinGroup, unless it is already running."""
        if (REJOIN, group.group_id, member_id) not in turn.deadlines:
            timeout_ms = group.members[member_id].rebalance_timeout_ms
            turn.set_deadline(REJOIN, group.group_id, member_id, timeout_ms)
