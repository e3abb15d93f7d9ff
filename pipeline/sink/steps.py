"""The effects and events of the sink's protocol, as values.

The protocol (protocol.py) returns one effect at a time. Its executor (sink.py with a cluster, a
model in the tests) answers with one of the events in ANSWERS, or with Failed after an error. A
child is the transaction of one task attempt. The control id is the transactional id with which a
driver writes the sink's decision.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from ...client import PreparedTransaction
from .decision import Decision

# --- events


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchGiven:
    """Spark passes a batch to the sink.

    digest: the digest of the batch's entry in Spark's checkpoint, or "" if unknown.

    is_long_after: the last batch was so long ago that the control id may have expired.
    """

    query_id: str
    batch_id: int
    digest: str = ""
    is_long_after: bool = False


@dataclass(frozen=True, slots=True)
class Fenced:
    """The control id belongs to this driver.

    Older drivers can decide nothing any more, and their last decision can be read.
    """


@dataclass(frozen=True, slots=True)
class DecisionRead:
    """The sink's committed decision, read to the log's end at the time of the request."""

    decision: Decision | None


@dataclass(frozen=True, slots=True)
class OpenListed:
    """The children of this sink with an open transaction."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ControlCommitted:
    """The transaction of the control id is committed."""


@dataclass(frozen=True, slots=True)
class ControlInDoubt:
    """The end of the control id's transaction was refused, but the transaction may be committed.

    Another driver has initialized the control id, or a timeout has ended the transaction.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class ChildrenCommitted:
    """All children are committed. One with an expired id was committed earlier."""


@dataclass(frozen=True, slots=True)
class ChildrenRefused:
    """Some children had already ended in another way. The others were ended as requested.

    forgotten: the names with an expired id, for which it is unknown how they ended.
    """

    names: tuple[str, ...]
    reason: str
    forgotten: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChildrenAborted:
    """None of the requested children has an open transaction any more."""


@dataclass(frozen=True, slots=True)
class ChildrenDescribed:
    """The names of children that can still be committed, and of those that certainly cannot.

    The other children were committed, or their ids have expired. expiring: the open children that
    are about to time out.
    """

    open: tuple[str, ...]
    ended: tuple[str, ...] = ()
    expiring: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """The report of a finished attempt. `child` is None if the attempt had no rows."""

    partition_id: int
    record_count: int
    child: PreparedTransaction | None


@dataclass(frozen=True, slots=True)
class TasksDone:
    """The job has ended, with the reports of the attempts that Spark kept."""

    reports: tuple[TaskReport, ...]


@dataclass(frozen=True, slots=True)
class TasksFailed:
    """The job has failed, and some of its attempts may still run."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The effect has raised an error. It may have been executed, in part or as a whole."""


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
    """Call InitProducerId for the control id, and wait until its last transaction has ended."""


@dataclass(frozen=True, slots=True)
class ReadDecision:
    """Read the newest committed decision of the sink, up to the current end of its topic."""


@dataclass(frozen=True, slots=True)
class ListOpen:
    """List the children of this sink with an open transaction."""


@dataclass(frozen=True, slots=True)
class WriteDecision:
    """Write the decision in a transaction of the control id."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class CommitChildren:
    """Send EndTxn(commit) for each child until its coordinator answers.

    times_out: the children are ordinary transactions, so an expired id does not show a commit.
    """

    children: tuple[PreparedTransaction, ...]
    times_out: bool = False


@dataclass(frozen=True, slots=True)
class DescribeChildren:
    """Ask the coordinators for the state of each child."""

    children: tuple[PreparedTransaction, ...]


@dataclass(frozen=True, slots=True)
class RollBackChildren:
    """Send EndTxn(abort) for each child, which shows how the child ended."""

    children: tuple[PreparedTransaction, ...]


@dataclass(frozen=True, slots=True)
class AbortChildren:
    """Send InitProducerId for each child, which aborts its open transaction."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunTasks:
    """Write the rows of a batch. Each task attempt leaves its transaction open.

    committed: ids that attempts may use again, because their last transaction was committed.
    """

    generation: int
    batch_id: int
    committed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """Write the rows and the decision in one transaction of the control id."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class BatchOver:
    """The batch is over. `was_written` is False if it was already written, or if it has failed.

    The rows of a batch that was already written must still be computed, without output, to advance
    Spark's state.
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

# The events that answer an effect, besides Failed.
ANSWERS: Mapping[type | None, tuple[type, ...]] = {
    FenceControlId: (Fenced,),
    ReadDecision: (DecisionRead,),
    ListOpen: (OpenListed,),
    WriteDecision: (ControlCommitted, ControlInDoubt),
    CommitChildren: (ChildrenCommitted, ChildrenRefused),
    DescribeChildren: (ChildrenDescribed,),
    RollBackChildren: (ChildrenAborted, ChildrenRefused),
    AbortChildren: (ChildrenAborted,),
    RunTasks: (TasksDone, TasksFailed),
    WriteBatch: (ControlCommitted, ControlInDoubt, TasksFailed),
}


class Phase(Enum):
    """The phases of the protocol, as far as other modules need them."""

    IDLE = auto()  # nothing is known
    STARTING = auto()
    RECOVERING = auto()  # roll forward at the start
    READY = auto()
    WRITING = auto()
    DECIDING = auto()
    JUDGING = auto()  # whether what was decided can be committed; at a start, and in each batch
    UNDECIDING = auto()
    COMMITTING = auto()
    FINISHING = auto()
    STOPPED = auto()
