"""What comes of one request, or of one deadline: answers, records to store, deadlines.

The rules of groups write into a turn; the shell carries it out. Nothing here waits: a request that
must wait leaves its ticket with its member, and a later turn answers it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from ...wire.steps import Steps
from .deadlines import Deadlines
from .group_messages import GroupSettings, JoinAnswer, SyncAnswer
from .records import GroupValue

HEARTBEAT, JOIN, SYNC = "heartbeat", "join", "sync"
DeadlineKey = tuple[str, str, str]  # which of the three, group id, member id or ""


@dataclass(slots=True, eq=False)
class Store:
    """A group's record to append; `stored` is called with an ErrorCode and the turn it begins.

    `stored` is to be called once, when the record is committed (NONE) or is known not to be.
    """

    group_id: str
    value: GroupValue
    stored: "Callable[[int, Turn], None]"


@dataclass(slots=True, eq=False)
class Turn:
    """now_ms is monotonic and for deadlines, wall_ms for what is written down."""

    now_ms: int
    wall_ms: int
    settings: GroupSettings
    deadlines: Deadlines[DeadlineKey]
    answers: list[tuple[object, JoinAnswer | SyncAnswer]] = field(
        default_factory=list[tuple[object, JoinAnswer | SyncAnswer]]
    )
    stores: list[Store] = field(default_factory=list[Store])
    notes: list[str] = field(default_factory=list[str])  # sentences for the log
    steps: list[Steps[None]] = field(default_factory=list[Steps[None]])
    # Groups that a defect has ended, with what was raised.
    failures: list[tuple[str, Exception]] = field(default_factory=list[tuple[str, Exception]])

    def answer(self, ticket: object, answer: JoinAnswer | SyncAnswer) -> None:
        """Answer the request that the ticket stands for."""
        self.answers.append((ticket, answer))

    def store(
        self, group_id: str, value: GroupValue, stored: "Callable[[int, Turn], None]"
    ) -> None:
        """Have a generation written to the log."""
        self.stores.append(Store(group_id, value, stored))

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)

    def do_in_steps(self, steps: Steps[None]) -> None:
        """Have it done soon: at once if it is short."""
        self.steps.append(steps)

    def set_deadline(self, kind: str, group_id: str, member_id: str, delay_ms: int) -> None:
        """Come back after a delay, and not at the time given before."""
        self.deadlines.set((kind, group_id, member_id), self.now_ms + delay_ms)

    def cancel_deadline(self, kind: str, group_id: str, member_id: str = "") -> None:
        self.deadlines.cancel((kind, group_id, member_id))
