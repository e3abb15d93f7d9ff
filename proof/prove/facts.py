"""What happened, as a record's story tells it: each fact at a time (monotonic), of an instance."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Fetched:
    """Records of an input from `first` on, before `end`, came to an instance."""

    at_s: float
    instance: str
    topic: str
    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Wrote:
    """A batch of outputs; transactional_id is empty for a plain producer."""

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
    is_lost: bool = False  # the answer


@dataclass(frozen=True, slots=True)
class Committed:
    """The group's offset of an input partition; with a transactional id it counts when that is
    committed."""

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
    """A producer got its id and epoch."""

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
    """A fault that was made. met: how much work was in flight where it struck; 0: it met none."""

    at_s: float
    instance: str  # empty: it meets all of them
    name: str
    what: str
    met: int = 0
    until_s: float = 0.0
    is_made: bool = True


@dataclass(frozen=True, slots=True)
class InputAborted:
    """An input (`which`: its id) whose transaction was aborted."""

    at_s: float
    which: str
    topic: str
    partition: int
    offset: int
    transactional_id: str


class Unrest(NamedTuple):
    """What kept an instance (or a transaction of it) busy when nothing was left to do."""

    who: str
    why: str


Fact = Fetched | Wrote | Committed | TransactionEnded | Producing | Joined
