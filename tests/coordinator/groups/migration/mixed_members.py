"""Classic members that behave as a client does, in classic, consumer and mixed groups.

An eager member revokes all its partitions before it joins. A cooperative member continues to read,
and revokes partitions outside its new assignment. It then joins again, so that other members can
get the revoked partitions.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from oncelog.coordinator.groups.group_messages import (
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    SyncAnswer,
    SyncRequest,
)
from oncelog.wire.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from oncelog.wire.errors import ErrorCode, KafkaError

from ..consumer.consumer_driver import (
    GROUP,
    INTERVAL_MS,
    AnswerOnce,
    ConsumerLog,
    ObedientClient,
    Partition,
    topic_id,
)

SESSION_MS, REBALANCE_MS = 10_000, 30_000
TOPIC, PARTITIONS = "t", 6
LOST = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
)


@dataclass(eq=False)
class ClassicClient:
    """A classic member. `owned` has the partitions that it reads.

    The test calls `step` repeatedly.
    """

    log: ConsumerLog
    name: str
    instance: str | None = None
    is_cooperative: bool = False
    assignor: str = "range"
    member_id: str = ""
    generation: int = -1
    owned: set[Partition] = field(default_factory=set[Partition])
    is_in: bool = False  # the member has joined, and has no reason to join again
    waiting: AnswerOnce | None = None
    joins: int = 0  # with a successful answer
    errors: list[int] = field(default_factory=list[int])

    def step(self) -> None:
        """Handle the answer to the waiting request, or send the next request."""
        if self.waiting is not None:
            if self.waiting.is_waiting:
                return
            waiting, self.waiting = self.waiting, None
            self._take(waiting.answer)
        elif self.is_in:
            self._heard(self.heartbeat())
        else:
            if not self.is_cooperative:
                self.owned.clear()
            self._ask(self.join())

    def _ask(self, ticket: AnswerOnce) -> None:
        if ticket.is_waiting:
            self.waiting = ticket
        else:
            self._take(ticket.answer)

    def _take(self, answer: JoinAnswer | SyncAnswer) -> None:
        if isinstance(answer, SyncAnswer):
            if answer.error:
                return self._heard(answer.error)
            assigned = {(topic_id(topic), p) for topic, p in decode_assignment(answer.assignment)}
            gives_up = bool(self.owned - assigned)
            self.owned = assigned
            self.is_in = not (self.is_cooperative and gives_up)
            return None
        if answer.error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return self._ask(self.join())
        if answer.error:
            return self._heard(answer.error)
        self.member_id, self.generation = answer.member_id, answer.generation
        self.joins += 1
        return self._ask(self.sync(self._assigned(answer)))

    def _heard(self, error: int) -> None:
        if error:
            self.errors.append(error)
            self.is_in = False
        if error in LOST:
            self.owned.clear()
            self.generation = -1
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""

    def _assigned(self, answer: JoinAnswer) -> dict[str, bytes]:
        """Return the assignments made by the group leader, or an empty dictionary for a follower.

        With the cooperative protocol, a partition that moves is left out until its owner has
        revoked it.
        """
        if answer.leader != answer.member_id or answer.skip_assignment:
            return {}
        ids = sorted(member.member_id for member in answer.members)
        wanted = {number: ids[number % len(ids)] for number in range(PARTITIONS)}
        held = {
            number: member.member_id
            for member in answer.members
            for _, number in decode_subscription(member.metadata).owned
        }
        given: dict[str, list[tuple[str, int]]] = {each: [] for each in ids}
        for number, member_id in wanted.items():
            if not self.is_cooperative or held.get(number, member_id) == member_id:
                given[member_id].append((TOPIC, number))
        return {each: encode_assignment(some) for each, some in given.items()}

    # -- requests

    def join(self, **changes: Any) -> AnswerOnce:
        self.log.ids += 1
        owned = tuple(sorted((TOPIC, number) for _, number in self.owned))
        said = encode_subscription(Subscription((TOPIC,), owned, self.generation))
        request = JoinRequest(
            group_id=GROUP,
            member_id=self.member_id,
            new_member_id=f"{self.name}-{self.log.ids}",
            group_instance_id=self.instance,
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=((self.assignor, said),),
        )
        return self._send(self.log.table.join, replace(request, **changes))

    def sync(self, assignments: dict[str, bytes] | None = None, **changes: Any) -> AnswerOnce:
        request = SyncRequest(
            group_id=GROUP,
            member_id=self.member_id,
            group_instance_id=self.instance,
            generation=self.generation,
            protocol_type="consumer",
            protocol_name=self.assignor,
            assignments=assignments or {},
        )
        return self._send(self.log.table.sync, replace(request, **changes))

    def _send(self, handler: Any, request: JoinRequest | SyncRequest) -> AnswerOnce:
        ticket, turn = AnswerOnce(), self.log.turn()
        handler(request, ticket, turn)
        self.log.execute(turn)
        return ticket

    def heartbeat(self, generation: int | None = None) -> int:
        turn, error = self.log.turn(), 0
        said = self.generation if generation is None else generation
        try:
            self.log.table.heartbeat(GROUP, self.member_id, self.instance, said, turn)
        except KafkaError as raised:
            error = raised.number
        self.log.execute(turn)
        return error

    def leave(self) -> int:
        """Leave the group, which may be a classic or a consumer group. Return the error code."""
        leaving, turn = LeavingMember(member_id=self.member_id), self.log.turn()
        self.owned.clear()
        self.is_in = False
        ticket, table = AnswerOnce(), self.log.table
        if table.classic(GROUP) is not None:
            (error,) = table.leave(GROUP, [leaving], turn)
            self.log.execute(turn)
            return error
        table.consumers.leave(GROUP, [leaving], ticket, turn)
        self.log.execute(turn)
        return ticket.answer.errors[0]


AnyClient = ClassicClient | ObedientClient


def settle(log: ConsumerLog, clients: Iterable[AnyClient], rounds: int = 16) -> None:
    """Let all members send requests for `rounds` intervals, so that they reach their targets."""
    clients = list(clients)
    for _ in range(rounds):
        for client in clients:
            if isinstance(client, ObedientClient):
                client.beat()
            else:
                client.step()
        check_owners(clients)
        log.pass_time(INTERVAL_MS)


def check_owners(clients: Iterable[AnyClient]) -> None:
    """Check that no partition has two owners."""
    owners: dict[Partition, AnyClient] = {}
    for client in clients:
        for where in client.owned:
            other = owners.setdefault(where, client)
            assert other is client, f"{where[1]} has two owners: {client} and {other}"


def numbers(client: AnyClient) -> list[int]:
    return sorted(number for _, number in client.owned)


def all_numbers(clients: Iterable[AnyClient]) -> list[int]:
    return sorted(number for client in clients for number in numbers(client))


def kind(log: ConsumerLog) -> str:
    """Return the type and state of the group, such as "classic/Stable"."""
    group = log.table.groups[GROUP]
    return f"{group.type.value}/{group.state_name}"
