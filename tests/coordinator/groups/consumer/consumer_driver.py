"""Consumer groups on a log that the test commits, loses and loads again, with correct members."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from oncelog.coordinator.groups.consumer.consumer_group import ConsumerGroup
from oncelog.coordinator.groups.consumer.heartbeat_messages import (
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from oncelog.coordinator.groups.consumer.known_topics import (
    KnownTopics,
    ListedTopics,
    SubscribedTopic,
)
from oncelog.coordinator.groups.consumer.patterns import resolved, resolving
from oncelog.coordinator.groups.consumer.record_codec import (
    decode_consumer_key,
    decode_consumer_value,
)
from oncelog.coordinator.groups.consumer.settings import ConsumerGroupSettings
from oncelog.coordinator.groups.consumer.target_assignment import making_target_of
from oncelog.coordinator.groups.consumer_groups import TARGET
from oncelog.coordinator.groups.group_messages import GroupSettings
from oncelog.coordinator.groups.group_table import GroupTable
from oncelog.coordinator.groups.records import GroupKey, decode_group_value, decode_key
from oncelog.coordinator.groups.turn import GroupAppend, LogRecord, Turn
from oncelog.coordinator.metadata.cluster_model import Changes, PartitionRegistration
from oncelog.runtime.steps import run_to_end
from oncelog.wire.errors import ErrorCode, KafkaError

PARTITION = PartitionRegistration(replicas=(1,), isr=(1,), leader=1)
GROUP = "g"
SESSION_MS, REBALANCE_MS, INTERVAL_MS = 45_000, 60_000, 1_000
Partition = tuple[bytes, int]


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


@dataclass(frozen=True)
class ListedTopic:
    """A topic as a consumer group sees it."""

    topic_id: bytes
    partitions: range


class AnswerOnce:
    """A request, mostly a heartbeat, which must be answered at most once."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    @property
    def is_waiting(self) -> bool:
        return not self.answers

    @property
    def answer(self) -> Any:
        (answer,) = self.answers
        return answer


@dataclass(eq=False)
class Waiting:
    """A batch in the log that is not committed yet, with its records."""

    append: GroupAppend
    records: list[LogRecord]


@dataclass(eq=False)
class ConsumerLog:
    """The log of a coordinator that commits batches when the test says so.

    If `holds` is False each batch is committed immediately, otherwise by `commit`.
    """

    settings: ConsumerGroupSettings = field(
        default_factory=lambda: ConsumerGroupSettings(
            session_timeout_ms=SESSION_MS, assignment_interval_ms=INTERVAL_MS
        )
    )
    holds: bool = False
    now_ms: int = 1_000_000
    committed: list[LogRecord] = field(default_factory=list[LogRecord])
    waiting: deque[Waiting] = field(default_factory=deque[Waiting])
    batches: int = 0
    ids: int = 0  # given to members of the classic protocol
    may_upgrade: bool = True
    may_downgrade: bool = True
    beats: int = 0  # answered without a full decision, and checked with one

    def __post_init__(self) -> None:
        self.by_name: dict[str, SubscribedTopic] = {}
        self.topics = KnownTopics(ListedTopics(self.by_name))
        self.table = GroupTable()

    def set_topic(self, name: str, partitions: int) -> None:
        is_new = name not in self.by_name
        self.by_name[name] = ListedTopic(topic_id(name), range(partitions))
        created = {name} if is_new else set[str]()
        self.topics.note(
            Changes(topics_created=created, partitions_changed={(name, 0): (None, PARTITION)})
        )

    def delete_topic(self, name: str) -> None:
        del self.by_name[name]
        self.topics.note(Changes(topics_deleted=[(name, topic_id(name))]))

    @property
    def group(self) -> ConsumerGroup:
        return self.table.consumers.find(GROUP)

    def turn(self) -> Turn:
        settings = GroupSettings(
            consumer=lambda _: self.settings,
            may_upgrade=self.may_upgrade,
            may_downgrade=self.may_downgrade,
        )
        return Turn(self.now_ms, self.now_ms, settings, self.table.deadlines, self.topics)

    def execute(self, turn: Turn) -> None:
        for _, error in turn.failures:
            raise error
        for steps in turn.steps:
            run_to_end(steps)
        for append in turn.appends:
            records = list(append.records())
            self.batches += bool(records)
            self.waiting.append(Waiting(append, records))
            later = self.turn()
            if append.replay is not None and records:
                append.replay(later)
            self.give(later)
        self.give(turn)
        if not self.holds:
            self.commit()
        for kind, group_id in turn.long_work:
            group = self.table.consumers.find(group_id)
            if kind == TARGET:
                records_now = run_to_end(making_target_of(group, self.by_name, self.now_ms))
            else:
                creations = self.topics.creations
                found = run_to_end(resolving(group, self.by_name))
                records_now = resolved(group, found, self.by_name, self.now_ms)
                group.resolved_creations = creations
            after = self.turn()
            self.table.consumers.append(group, records_now, lambda error, later: None, after)
            self.execute(after)

    @staticmethod
    def give(turn: Turn) -> None:
        for ticket, answer in turn.answers:
            assert isinstance(ticket, AnswerOnce)
            ticket.answers.append(answer)

    def commit(self, count: int | None = None) -> None:
        """Commit the oldest `count` batches, or all."""
        left = len(self.waiting) if count is None else count
        while self.waiting and left:
            left -= 1
            first = self.waiting.popleft()
            self.committed += first.records
            turn = self.turn()
            first.append.settled(ErrorCode.NONE, turn)
            self.execute(turn)

    def load_anew(self, kept: int = 0) -> None:
        """Load the log in another coordinator. The oldest `kept` uncommitted batches are kept."""
        waiting, self.waiting = list(self.waiting), deque[Waiting]()
        for number, each in enumerate(waiting):
            if number < kept:
                self.committed += each.records
            turn = self.turn()
            each.append.settled(ErrorCode.NOT_COORDINATOR, turn)
            self.give(turn)
        self.table = GroupTable()
        for encoded_key, value in self.committed:
            classic_key = decode_key(encoded_key)
            if isinstance(classic_key, GroupKey):
                stored = None if value is None else decode_group_value(value)
                self.table.replay(classic_key.group_id, stored)
                continue
            key = decode_consumer_key(encoded_key)
            assert key is not None
            decoded = None if value is None else decode_consumer_value(key, value)
            self.table.consumers.replay(key, decoded)
        turn = self.turn()
        self.table.on_loaded(turn, self.table.groups.values())
        self.execute(turn)

    def pass_time(self, delay_ms: int) -> None:
        """Let time pass, and let each deadline expire at its time."""
        end_ms = self.now_ms + delay_ms
        while (next_ms := self.table.deadlines.next_ms) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            turn = self.turn()
            self.table.due(turn, 1)
            self.execute(turn)
        self.now_ms = end_ms

    def beat(
        self, request: ConsumerHeartbeat, turn: Turn, replayed: int = 0
    ) -> ConsumerHeartbeatAnswer | None:
        """Answer a heartbeat by `ConsumerGroups.beat`. Return None if it may change the group."""
        said = request.topic_names, request.topic_pattern, request.server_assignor
        if said != (None,) * 3 or request.instance_id or request.rebalance_timeout_ms != -1:
            return None
        who = request.group_id, request.member_id, request.member_epoch
        client = request.client_id, request.client_host
        return self.table.consumers.beat(*who, client, replayed, turn)

    def ask(self, request: ConsumerHeartbeat) -> AnswerOnce:
        """Send a heartbeat, and return the object that gets its answer, an error included."""
        ticket, turn = AnswerOnce(), self.turn()
        beat = None if self.waiting else self.beat(request, turn)
        try:
            self.table.consumers.heartbeat(request, ticket, turn)
        except KafkaError as error:
            ticket.answers.append(ConsumerHeartbeatAnswer(error=error.number, message=str(error)))
        self.execute(turn)
        if beat is not None:  # the full decision gives the same answer, and changes nothing
            self.beats += 1
            assert not turn.long_work and not any(each.records for each in self.waiting)
            assert (ticket.answers or [beat]) == [beat]
        return ticket


@dataclass(eq=False)
class ObedientClient:
    """A correct member. `owned` has the partitions that it reads."""

    log: ConsumerLog
    member_id: str
    topics: tuple[str, ...] | None = ("t",)
    pattern: str | None = None
    instance: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: set[Partition] = field(default_factory=set[Partition])
    assigned: set[Partition] = field(default_factory=set[Partition])
    epochs: list[int] = field(default_factory=list[int])  # as answered
    waiting: AnswerOnce | None = None

    def request(self, **changes: Any) -> ConsumerHeartbeat:
        """Return a heartbeat with all fields, as a member sends it after an error."""
        values: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
            "rebalance_timeout_ms": REBALANCE_MS,
            "topic_names": self.topics,
            "topic_pattern": self.pattern or "",
            "server_assignor": self.assignor,
            "owned": by_topic(self.owned),
        }
        return ConsumerHeartbeat(**values | changes)

    def short_request(self, **changes: Any) -> ConsumerHeartbeat:
        """Return a heartbeat with only the required fields and those in `changes`."""
        unchanged = {
            "rebalance_timeout_ms": -1,
            "topic_names": None,
            "topic_pattern": None,
            "server_assignor": None,
            "owned": None,
        }
        return self.request(**unchanged | changes)

    def beat(self, *, answer_is_lost: bool = False, **changes: Any) -> ConsumerHeartbeatAnswer:
        """Send a full heartbeat, with the fields in `changes` replaced, and obey the answer."""
        ticket = self.log.ask(self.request(**changes))
        if ticket.is_waiting:
            self.waiting = None if answer_is_lost else ticket
            return ConsumerHeartbeatAnswer()
        if not answer_is_lost:
            self.obey(ticket.answer)
        return ticket.answer

    def obey_late(self) -> None:
        """Obey the answer to the last heartbeat, if it has arrived."""
        if self.waiting is not None and not self.waiting.is_waiting:
            ticket, self.waiting = self.waiting, None
            self.obey(ticket.answer)

    def obey(self, answer: ConsumerHeartbeatAnswer) -> None:
        if answer.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch = 0
            self.owned.clear()
            self.assigned.clear()
        if answer.error:
            return
        self.epoch = answer.member_epoch
        self.epochs.append(answer.member_epoch)
        if answer.assignment is not None:
            self.assigned = {
                (topic, partition)
                for topic, some in answer.assignment.items()
                for partition in some
            }
            self.owned &= self.assigned
            self.owned |= self.assigned

    def leave(self, epoch: int = -1) -> ConsumerHeartbeatAnswer:
        self.owned.clear()
        self.assigned.clear()
        self.epoch = 0
        return self.log.ask(
            ConsumerHeartbeat(
                group_id=GROUP,
                member_id=self.member_id,
                member_epoch=epoch,
                instance_id=self.instance,
            )
        ).answer


def by_topic(partitions: Iterable[Partition]) -> dict[bytes, frozenset[int]]:
    found: dict[bytes, frozenset[int]] = {}
    for topic, partition in partitions:
        found[topic] = found.get(topic, frozenset()) | {partition}
    return found


def settle(log: ConsumerLog, clients: Iterable[ObedientClient], rounds: int = 8) -> None:
    """Let all members send heartbeats for `rounds` intervals, so that they reach their targets."""
    for _ in range(rounds):
        for client in clients:
            client.beat()
        log.pass_time(INTERVAL_MS)


def indexes(client: ObedientClient) -> list[int]:
    return sorted(partition for _, partition in client.owned)
