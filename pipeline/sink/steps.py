"""What the sink's protocol asks for, and what it receives: effects and events.

Values only. The protocol (protocol.py) returns one effect at a time; whoever executes it (sink.py
with a cluster, a model in the tests) answers with the event that is named beside it, or with Failed
when it could not be executed and nothing is decided by that. A phase is what it waits for.
"""

from dataclasses import dataclass
from enum import Enum, auto

from ...client import PreparedTransaction
from .decision import Decision

# --- events


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchGiven:
    """Spark gives a batch. digest: of its entry in the checkpoint's log of offsets, or "".

    is_long_after: the last one was so long ago that the control id may have expired.
    """

    query_id: str
    batch_id: int
    digest: str = ""
    is_long_after: bool = False


@dataclass(frozen=True, slots=True)
class Fenced:
    """The control id is ours: older drivers can decide nothing any more, and what they had decided
    can be read."""


@dataclass(frozen=True, slots=True)
class DecisionRead:
    """The sink's decision as committed, read to the end that the log had when it was asked."""

    decision: Decision | None


@dataclass(frozen=True, slots=True)
class OpenListed:
    """Children of this sink with an open transaction."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ControlCommitted:
    """The control transaction is committed."""


@dataclass(frozen=True, slots=True)
class ControlInDoubt:
    """The control transaction's end was refused: somebody took the control id over, or it ended
    before; it may be committed all the same."""

    reason: str


@dataclass(frozen=True, slots=True)
class ChildrenCommitted:
    """Every child is committed, or was, and its id has expired since."""


@dataclass(frozen=True, slots=True)
class ChildrenRefused:
    """These cannot be ended as was asked: they have been ended otherwise. The others are.

    forgotten: those whose ids have expired, so that nobody knows how they were ended.
    """

    names: tuple[str, ...]
    reason: str
    forgotten: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChildrenAborted:
    """These have nothing open any more."""


@dataclass(frozen=True, slots=True)
class ChildrenDescribed:
    """By names: those that can be committed yet, and those that certainly cannot and are not.

    What is in neither was committed, or forgotten. expiring: of the open ones, those that are about
    to time out.
    """

    open: tuple[str, ...]
    ended: tuple[str, ...] = ()
    expiring: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """What a finished attempt wrote; child None when it had no rows."""

    partition_id: int
    record_count: int
    child: PreparedTransaction | None


@dataclass(frozen=True, slots=True)
class TasksDone:
    """The job has ended: the reports of the attempts that Spark kept."""

    reports: tuple[TaskReport, ...]


@dataclass(frozen=True, slots=True)
class TasksFailed:
    """The job has failed; some of its attempts may live on."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The effect could not be executed."""


Event = (
    BatchGiven
    | Fenced
    | DecisionRead
    | OpenListed
    | ControlCommitted
    | ControlInDoubt
    | ChildrenCommitted
    | ChildrenRefused
    | ChildrenAborted
    | ChildrenDescribed
    | TasksDone
    | TasksFailed
    | Failed
)

# --- effects


@dataclass(frozen=True, slots=True)
class FenceControlId:
    """InitProducerId of the control id; wait until its last transaction is over. → Fenced"""


@dataclass(frozen=True, slots=True)
class ReadDecision:
    """Read the decision, read_committed, to the end of the log as it is now. → DecisionRead"""


@dataclass(frozen=True, slots=True)
class ListOpen:
    """Children of this sink that are Ongoing. → OpenListed"""


@dataclass(frozen=True, slots=True)
class WriteDecision:
    """Write it in a transaction of the control id. → ControlCommitted or ControlInDoubt"""

    decision: Decision


@dataclass(frozen=True, slots=True)
class CommitChildren:
    """EndTxn(commit) for each, for as long as it takes. → ChildrenCommitted or ChildrenRefused

    times_out: they are ordinary transactions, so an id that has expired tells nothing.
    """

    children: tuple[PreparedTransaction, ...]
    times_out: bool = False


@dataclass(frozen=True, slots=True)
class DescribeChildren:
    """Ask the coordinators how each stands. → ChildrenDescribed"""

    children: tuple[PreparedTransaction, ...]


@dataclass(frozen=True, slots=True)
class RollBackChildren:
    """EndTxn(abort) for each, which says whether it was. → ChildrenAborted or ChildrenRefused"""

    children: tuple[PreparedTransaction, ...]


@dataclass(frozen=True, slots=True)
class AbortChildren:
    """InitProducerId for each, which ends what is open. → ChildrenAborted"""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunTasks:
    """Write the rows, a transaction for each attempt, left open. → TasksDone or TasksFailed

    committed: ids that attempts may use again.
    """

    generation: int
    batch_id: int
    committed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """Write the rows and the decision in one transaction of the control id.

    → ControlCommitted, ControlInDoubt or TasksFailed
    """

    decision: Decision


@dataclass(frozen=True, slots=True)
class BatchOver:
    """Nothing more to write. was_written: False when the batch was written before, or has failed.

    In the first case Spark has its part to do yet: what it computes is to be run, without output.
    """

    was_written: bool


Effect = (
    FenceControlId
    | ReadDecision
    | ListOpen
    | WriteDecision
    | CommitChildren
    | DescribeChildren
    | RollBackChildren
    | AbortChildren
    | RunTasks
    | WriteBatch
    | BatchOver
)

# --- phases


class Phase(Enum):
    """The names are those of what was asked for last."""

    IDLE = auto()  # nothing is known
    LOOKING = auto()
    FENCING = auto()
    READING = auto()
    LISTING = auto()
    CLAIMING = auto()
    JUDGING = auto()  # whether what was decided can be committed; at a start, and in each batch
    ROLLING_BACK = auto()
    UNDECIDING = auto()
    RECOVERING = auto()  # roll forward at the start
    SWEEPING = auto()
    READY = auto()
    WRITING = auto()
    ASKING = auto()  # whether what tasks left open can be committed
    DECIDING = auto()
    READING_AGAIN = auto()
    COMMITTING = auto()
    LISTING_LEFT = auto()
    SWEEPING_LEFT = auto()
    FINISHING = auto()
    ALARMING = auto()
    LISTING_FAILED = auto()
    SWEEPING_FAILED = auto()
    STOPPED = auto()
