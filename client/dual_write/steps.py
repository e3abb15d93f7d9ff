"""Effects and events of the writer and the check-back of a dual write.

A state machine (`protocol.py`, `check_back.py`) requests an effect. A shell executes the effect,
and returns the result as an event.
"""

from dataclasses import dataclass
from enum import Enum, auto

EMPTY = -1  # in place of a producer id: the transaction has no records in Kafka


@dataclass(frozen=True, slots=True, order=True)
class TransactionKey:
    """The key of one transaction, under which the decision table stores the outcome.

    A transactional id belongs to one session of a writer for ever, because the id ends with a
    nonce. Each transaction of the id has an epoch of its own (KIP-890). For a transaction without
    records the producer id is EMPTY, and the epoch is a count.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.transactional_id} ({self.producer_id}/{self.producer_epoch})"


class DecidedOutcome(Enum):
    """The outcome of a transaction in the decision table.

    An outcome that is stored for a transaction never changes.
    """

    COMMITTED = "committed"
    ABORTED = "aborted"


class WriterPhase(Enum):
    """The state of a writer, named after the last requested effect."""

    NEW = auto()
    CLAIMING = auto()  # the generation: older sessions can no longer decide
    READING = auto()  # the decisions of an older session
    ROLLING_FORWARD = auto()
    FENCING = auto()
    DELETING = auto()
    INITIALIZING = auto()
    READY = auto()
    OPENING = auto()
    OPEN = auto()  # the application's block runs
    PREPARING = auto()
    DECIDING = auto()  # the commit of the database
    RESOLVING = auto()  # it is unknown whether the database has committed
    COMPLETING = auto()
    SUSPECTING = auto()  # decided, and the coordinator refuses: has a successor completed it?
    OWING = auto()  # the coordinator has not answered yet
    ROLLING_BACK = auto()
    ABORTING = auto()
    STOPPED = auto()


# --- effects


@dataclass(frozen=True, slots=True)
class Claim:
    """Increment, in the database, the writer's generation, and register the session's id."""

    name: str
    transactional_id: str


@dataclass(frozen=True, slots=True)
class ReadDecisions:
    """Read, in the database, the transactions that a session has committed.

    Kafka is not asked for the session's open transactions. A deposed coordinator might not report
    the newest ones, and FenceSession would then abort them although the database has committed.
    """

    transactional_id: str


@dataclass(frozen=True, slots=True)
class ReadOrAbort:
    """Read, in the database, the outcome of a transaction, or insert `aborted` under the same key.

    The insert is omitted for a session that is over, and for a session of another database.
    """

    key: TransactionKey


@dataclass(frozen=True, slots=True)
class EndAsDecided:
    """Commit or abort this transaction in Kafka, as the table has decided."""

    key: TransactionKey
    is_commit: bool


@dataclass(frozen=True, slots=True)
class FenceSession:
    """End, in Kafka, the open transaction of this id by initializing the id anew."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class DeleteSession:
    """Delete, in the database, the rows of an older session."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class Initialize:
    """Call InitProducerId in Kafka for the session's own id."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class StartSession:
    """Draw a nonce for the id of a new session.

    A writer does this at its start, and again after an InitProducerId whose answer was lost.
    """


@dataclass(frozen=True, slots=True)
class BecomeReady:
    """Let the application begin a transaction."""


@dataclass(frozen=True, slots=True)
class BeginBoth:
    """Begin a transaction in the database and in Kafka."""


@dataclass(frozen=True, slots=True)
class RunBlock:
    """Let the application run its block."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Flush in Kafka, so that all records are acknowledged before the transaction is decided."""


@dataclass(frozen=True, slots=True)
class Decide:
    """Check the generation in the database, insert the decision's row, and COMMIT.

    finished: the completed transactions of this session, which are never asked about again, and
    whose rows are deleted.
    """

    name: str
    key: TransactionKey
    generation: int
    finished: tuple[TransactionKey, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadGeneration:
    """Read the writer's current generation in the database."""

    name: str


@dataclass(frozen=True, slots=True)
class RollBack:
    """Roll the transaction back in the database."""


@dataclass(frozen=True, slots=True)
class AbortOwn:
    """Abort, in Kafka, the session's open transaction, prepared or not."""


@dataclass(frozen=True, slots=True)
class EndBlock:
    """End the block of the application. `reason` is why it was undone, or None for a commit."""

    is_committed: bool
    reason: BaseException | None = None


@dataclass(frozen=True, slots=True)
class WaitAndAsk:
    """End a check-back without a result.

    The resolver does not know the outcome yet, or EndTxn was not answered.

    The transaction is checked again after a pause.
    """

    key: TransactionKey


@dataclass(frozen=True, slots=True)
class CheckedBack:
    """Finish a check-back. `is_ours` shows whether this check-back has ended the transaction."""

    key: TransactionKey
    outcome: DecidedOutcome
    is_ours: bool


# --- events


@dataclass(frozen=True, slots=True)
class SessionStarted:
    transactional_id: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """The writer's generation was incremented in the database.

    `older_sessions` are the transactional ids of sessions with lower generations.
    """

    generation: int
    older_sessions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DecisionsRead:
    """The transactions that an older session has committed were read from the decision table.

    `keys` are those with records. Kafka may have completed some of these transactions.
    """

    keys: tuple[TransactionKey, ...] = ()


@dataclass(frozen=True, slots=True)
class OutcomeRead:
    """The outcome of a transaction was read. `outcome` is None if it is unknown.

    is_session_over: a successor has ended all open transactions of the session as decided, and
    deleted the session's rows. The session can no longer decide, and transactions that it still
    opens never count.
    """

    outcome: DecidedOutcome | None
    is_session_over: bool = False


@dataclass(frozen=True, slots=True)
class EndedAsDecided:
    """The transaction was committed or aborted as requested, now or by an earlier EndTxn."""


@dataclass(frozen=True, slots=True)
class EndRefused:
    """The coordinator refused EndTxn.

    The producer has begun another transaction, or this one was ended with another outcome.
    """

    reason: Exception | None = None
    is_overruled: bool = False  # the coordinator reports the other outcome


@dataclass(frozen=True, slots=True)
class EndUnanswered:
    """The coordinator did not answer EndTxn in time."""

    reason: Exception | None = None


@dataclass(frozen=True, slots=True)
class SessionFenced:
    pass


@dataclass(frozen=True, slots=True)
class SessionDeleted:
    pass


@dataclass(frozen=True, slots=True)
class Initialized:
    """The producer id was initialized.

    is_certain: no answer was lost, so no request is under way that could abort a later transaction.
    """

    is_certain: bool = True


@dataclass(frozen=True, slots=True)
class BlockBegun:
    """The application has begun a block."""


@dataclass(frozen=True, slots=True)
class BothBegun:
    pass


@dataclass(frozen=True, slots=True)
class BlockDone:
    pass


@dataclass(frozen=True, slots=True)
class BlockFailed:
    reason: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """The transaction was prepared in Kafka. `key` is None if it has no records."""

    key: TransactionKey | None


@dataclass(frozen=True, slots=True)
class DatabaseCommitted:
    pass


@dataclass(frozen=True, slots=True)
class DatabaseRefused:
    """The database certainly committed nothing, because a statement or COMMIT failed."""

    reason: BaseException | None = None


@dataclass(frozen=True, slots=True)
class DatabaseInDoubt:
    """COMMIT was sent, but its answer was lost, or leaves the outcome uncertain."""

    reason: BaseException | None = None


@dataclass(frozen=True, slots=True)
class GenerationRead:
    generation: int


@dataclass(frozen=True, slots=True)
class RolledBack:
    pass


@dataclass(frozen=True, slots=True)
class Aborted:
    pass


Effect = (
    Claim | ReadDecisions | ReadOrAbort | EndAsDecided | FenceSession | DeleteSession
    | Initialize | StartSession | BecomeReady | BeginBoth | RunBlock | Prepare | Decide | RollBack
    | ReadGeneration | AbortOwn | EndBlock | WaitAndAsk | CheckedBack
)  # fmt: skip
Event = (
    SessionStarted | Claimed | DecisionsRead | OutcomeRead | EndedAsDecided | EndRefused
    | EndUnanswered | SessionFenced | SessionDeleted | Initialized | BlockBegun | BothBegun
    | BlockDone | BlockFailed | Prepared | DatabaseCommitted | DatabaseRefused | DatabaseInDoubt
    | GenerationRead | RolledBack | Aborted
)  # fmt: skip
