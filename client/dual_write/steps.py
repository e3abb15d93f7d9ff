"""What the writer and the check-back of a dual write may ask for, and what may happen to them.

An effect is asked for by a table (`protocol.py`, `check_back.py`), and carried out by a shell; what
came of it is an event.
"""

from dataclasses import dataclass
from enum import Enum, auto

EMPTY = -1  # in place of a producer id: the transaction has no records in Kafka


@dataclass(frozen=True, slots=True, order=True)
class TransactionKey:
    """One transaction, and no other: what a decision names.

    A transactional id is used by one session of a writer for ever, since its end is a nonce, and
    each of its transactions has an epoch of its own (KIP-890). Of one without records the producer
    id is EMPTY, and the epoch is a count.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.transactional_id} ({self.producer_id}/{self.producer_epoch})"


class DecidedOutcome(Enum):
    """What the table says of a transaction; the first word counts, and is never changed."""

    COMMITTED = "committed"
    ABORTED = "aborted"


class WriterPhase(Enum):
    """Where a writer stands: what it has asked for last."""

    NEW = auto()
    CLAIMING = auto()  # the generation: older sessions decide nothing any more
    READING = auto()  # what an older session has decided
    ROLLING_FORWARD = auto()
    FENCING = auto()
    DELETING = auto()
    INITIALIZING = auto()
    READY = auto()
    OPENING = auto()
    OPEN = auto()  # the block of the program runs
    PREPARING = auto()
    DECIDING = auto()  # the commit of the database
    RESOLVING = auto()  # nobody knows whether it has committed
    COMPLETING = auto()
    SUSPECTING = auto()  # decided, and the coordinator refuses: whether a successor did it
    OWING = auto()  # the coordinator has not answered yet
    ROLLING_BACK = auto()
    ABORTING = auto()
    STOPPED = auto()


# --- effects


@dataclass(frozen=True, slots=True)
class Claim:
    """In the database: raise the writer's generation, and register the session's id under it."""

    name: str
    transactional_id: str


@dataclass(frozen=True, slots=True)
class ReadDecisions:
    """In the database: what a session has committed there.

    Kafka is not asked what it has open: a coordinator that was deposed, and does not know it yet,
    would say `nothing` of what was decided since, which is aborted then.
    """

    transactional_id: str


@dataclass(frozen=True, slots=True)
class ReadOrAbort:
    """In the database: what was decided; if nothing was, insert `aborted`, whose key is unique.

    Of a session that is over, or of another database, nothing is inserted.
    """

    key: TransactionKey


@dataclass(frozen=True, slots=True)
class EndAsDecided:
    """In Kafka: end this transaction as it was decided."""

    key: TransactionKey
    is_commit: bool


@dataclass(frozen=True, slots=True)
class FenceSession:
    """In Kafka: end whatever this id has open by taking it over."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class DeleteSession:
    """In the database: delete the rows of an older session."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class Initialize:
    """In Kafka: InitProducerId of the session's own id."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class StartSession:
    """Draw a nonce: this session, or the one that was given up, needs an id of its own."""


@dataclass(frozen=True, slots=True)
class BecomeReady:
    """Nothing to do before the program begins a transaction."""


@dataclass(frozen=True, slots=True)
class BeginBoth:
    """Begin, in the database and in Kafka."""


@dataclass(frozen=True, slots=True)
class RunBlock:
    """The program's turn."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """In Kafka: flush, so that nothing is missing when it is decided."""


@dataclass(frozen=True, slots=True)
class Decide:
    """In the database: the check of the generation and the decision's row, then COMMIT.

    finished: transactions of this session that nobody will ask about; their rows are deleted.
    """

    name: str
    key: TransactionKey
    generation: int
    finished: tuple[TransactionKey, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadGeneration:
    """In the database: who is in office."""

    name: str


@dataclass(frozen=True, slots=True)
class RollBack:
    """In the database."""


@dataclass(frozen=True, slots=True)
class AbortOwn:
    """In Kafka: abort the session's open transaction, prepared or not."""


@dataclass(frozen=True, slots=True)
class EndBlock:
    """The block is over; reason: why nothing of it counts."""

    is_committed: bool
    reason: BaseException | None = None


@dataclass(frozen=True, slots=True)
class WaitAndAsk:
    """Of a check-back: the resolver did not know; ask again after a while."""

    key: TransactionKey


@dataclass(frozen=True, slots=True)
class CheckedBack:
    """Of a check-back: over. is_ours: it was ended by this check-back."""

    key: TransactionKey
    outcome: DecidedOutcome
    is_ours: bool


# --- events


@dataclass(frozen=True, slots=True)
class SessionStarted:
    transactional_id: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """older_sessions: transactional ids that are registered under lower generations."""

    generation: int
    older_sessions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DecisionsRead:
    """keys: of transactions with records in Kafka, some of which are completed there already."""

    keys: tuple[TransactionKey, ...] = ()


@dataclass(frozen=True, slots=True)
class OutcomeRead:
    """outcome: None when nothing is known.

    is_session_over: a successor has ended all that the session had open, as was decided, and
    deleted its rows. The session decides nothing any more; what it opens yet counts for nothing.
    """

    outcome: DecidedOutcome | None
    is_session_over: bool = False


@dataclass(frozen=True, slots=True)
class EndedAsDecided:
    """The transaction is ended as was asked, by us or somebody else."""


@dataclass(frozen=True, slots=True)
class EndRefused:
    """It is not that transaction's turn any more, or it was ended otherwise."""

    reason: Exception | None = None
    is_overruled: bool = False  # the coordinator says that it was ended otherwise


@dataclass(frozen=True, slots=True)
class EndUnanswered:
    """No coordinator answered in time."""

    reason: Exception | None = None


@dataclass(frozen=True, slots=True)
class SessionFenced:
    pass


@dataclass(frozen=True, slots=True)
class SessionDeleted:
    pass


@dataclass(frozen=True, slots=True)
class Initialized:
    """is_certain: no answer was lost, so no request is on its way that could abort a later one."""

    is_certain: bool = True


@dataclass(frozen=True, slots=True)
class BlockBegun:
    """The program wants a transaction."""


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
    """key: None without records."""

    key: TransactionKey | None


@dataclass(frozen=True, slots=True)
class DatabaseCommitted:
    pass


@dataclass(frozen=True, slots=True)
class DatabaseRefused:
    """Certainly nothing was committed: a statement failed, or the database has refused COMMIT."""

    reason: BaseException | None = None


@dataclass(frozen=True, slots=True)
class DatabaseInDoubt:
    """COMMIT was sent, and its answer was lost, or says nothing certain."""

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
