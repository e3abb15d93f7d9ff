"""The outcome of one request or deadline, with answers, records to append, and deadlines.

The rules of groups write into a turn, and node/groups executes the turn afterwards. No rule waits.
A ticket is the object by which node/groups recognises a request. If a request must wait, its ticket
is stored in its member, and a later turn has the answer.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ...runtime.steps import Steps
from .consumer.heartbeat_messages import ConsumerHeartbeatAnswer
from .consumer.known_topics import KnownTopics
from .deadlines import Deadlines
from .group_messages import GroupSettings, JoinAnswer, LeaveAnswer, SyncAnswer
from .records import GroupValue, encode_group_key, encode_group_value

HEARTBEAT, JOIN, SYNC = "heartbeat", "join", "sync"
SESSION, REVOCATION, REJOIN = "session", "revocation", "rejoin"  # deadlines of consumer groups
DeadlineKey = tuple[str, str, str]  # one of the six kinds, the group id, the member id or ""
Answer = JoinAnswer | SyncAnswer | LeaveAnswer | ConsumerHeartbeatAnswer


LogRecord = tuple[bytes, bytes | None]  # key and value, which is None for a tombstone


@dataclass(slots=True, eq=False)
class GroupAppend:
    """Records of one group that are appended as one atomic batch.

    `settled` is called once, with an ErrorCode and a new turn, when the batch is committed (NONE)
    or has failed. `records` encodes the records when the turn is executed.

    Only a consumer group, which changes by replay, has `replay`, which is called when the records
    are in the log. Without records, `settled` waits for the commit of the group's last records. It
    gets NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE if that commit is unknown.
    """

    group_id: str
    records: Callable[[], Iterable[LogRecord]]
    settled: "Callable[[int, Turn], None]"
    replay: "Callable[[Turn], None] | None" = None


@dataclass(slots=True, eq=False)
class Turn:
    """The answers, records and deadlines that the group rules have added for one event.

    The event is a request or a deadline.

    `now_ms` is monotonic time for deadlines. `wall_ms` is wall-clock time for stored times.
    """

    now_ms: int
    wall_ms: int
    settings: GroupSettings
    deadlines: Deadlines[DeadlineKey]
    topics: KnownTopics = field(default_factory=KnownTopics)
    answers: list[tuple[object, Answer]] = field(default_factory=list[tuple[object, Answer]])
    appends: list[GroupAppend] = field(default_factory=list[GroupAppend])
    # The kinds and group ids of jobs of consumer groups that are too long for a turn.
    long_work: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    # Group, reason and sentence of each event for the log.
    notes: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    steps: list[Steps[None]] = field(default_factory=list[Steps[None]])
    # Groups with an internal error (a classic one was removed), with the exception.
    failures: list[tuple[str, Exception]] = field(default_factory=list[tuple[str, Exception]])

    def answer(self, ticket: object, answer: Answer) -> None:
        """Answer the request with this ticket."""
        self.answers.append((ticket, answer))

    def store(
        self, group_id: str, value: GroupValue, stored: "Callable[[int, Turn], None]"
    ) -> None:
        """Add the append of a classic group's record. `stored` is called with the outcome."""

        def records() -> Sequence[LogRecord]:
            return [(encode_group_key(group_id), encode_group_value(value))]

        self.appends.append(GroupAppend(group_id, records, stored))

    def note(self, group_id: str, reason: str, sentence: str) -> None:
        """Add a message about a group for the broker's log.

        reason: one of a few fixed words.
        """
        self.notes.append((group_id, reason, sentence))

    def do_in_steps(self, steps: Steps[None]) -> None:
        """Request steps that are run when the turn is executed, in slices if they are long."""
        self.steps.append(steps)

    def set_deadline(self, kind: str, group_id: str, member_id: str, delay_ms: int) -> None:
        """Set or replace a deadline of a member, `delay_ms` from now."""
        self.deadlines.set((kind, group_id, member_id), self.now_ms + delay_ms)

    def cancel_deadline(self, kind: str, group_id: str, member_id: str = "") -> None:
        self.deadlines.cancel((kind, group_id, member_id))
