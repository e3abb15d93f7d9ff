"""The observed facts that can explain one record, each with a time (monotonic) and an instance."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Fetched:
    """An instance fetched the records of an input partition from `first` up to before `end`."""

    at_s: float
    instance: str
    topic: str
    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Wrote:
    """An instance wrote a batch. `transactional_id` is empty for a plain producer."""

    at_s: float
    instance: str
    transactional_id: str
    topic: str
    partition: int
    first: int
    end: int
    producer_id: int
    producer_epoch: int
    acks: int
    is_lost: bool = False  # the answer was lost


@dataclass(frozen=True, slots=True)
class Committed:
    """The offset of a group in an input partition was committed.

    With a transactional id the commit counts when its transaction is committed.
    """

    at_s: float
    instance: str
    group: str
    transactional_id: str
    topic: str
    partition: int
    offset: int
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """A transaction was committed, or aborted."""

    at_s: float
    instance: str
    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_committed: bool
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class Producing:
    """A producer got its producer id and epoch."""

    at_s: float
    instance: str
    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Joined:
    at_s: float
    instance: str
    group: str
    generation: int


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that was injected, or one that could not be injected (`is_made` is false).

    `met` is the amount of work in flight at its target, as `Observed.open_work` counts it.
    """

    at_s: float
    instance: str  # empty: it affects all of them
    name: str
    what: str
    met: int = 0
    until_s: float = 0.0
    is_made: bool = True


@dataclass(frozen=True, slots=True)
class InputAborted:
    """An input was written in an aborted transaction. `which` is the id of the input."""

    at_s: float
    which: str
    topic: str
    partition: int
    offset: int
    transactional_id: str


class Unrest(NamedTuple):
    """The instance (or "the application") that was not at rest at the end of a run, and the reason.

    At rest means that it does not end by itself, does not only fail, has no open transaction, and
    that outputs and offsets no longer change.
    """

    who: str
    why: str


Fact = Fetched | Wrote | Committed | TransactionEnded | Producing | Joined
