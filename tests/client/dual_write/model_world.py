"""Models of the cluster and the database of a dual write.

The cluster follows KIP-98, 890 and 939. Each end of a transaction raises the epoch. A repeated
EndTxn gets the answer of the first one. InitProducerId aborts an open transaction. Prepared
transactions do not time out. Transactional ids expire. The database is serializable, has a unique
key, and may lose its answer to a COMMIT. Such a COMMIT takes effect later or never.
"""

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from oncelog.client.dual_write.steps import DecidedOutcome, OutcomeRead, TransactionKey


class Refused(Exception):
    """A final refusal by Kafka.

    The code is "47" for INVALID_PRODUCER_EPOCH, "48" for INVALID_TXN_STATE, "49" for
    INVALID_PRODUCER_ID_MAPPING, and "90" for PRODUCER_FENCED.
    """


@dataclass
class ModelTransaction:
    producer_id: int
    epoch: int = 0
    state: str = "Empty"
    pending: list[int] = field(default_factory=list)


class ModelKafka:
    def __init__(self) -> None:
        self.ids: dict[str, ModelTransaction] = {}
        self.events: Counter[int] = Counter()
        self._producer_ids = 0

    def init(self, name: str) -> TransactionKey:
        known = self.ids.get(name)
        if known is None:
            self._producer_ids += 1
            known = self.ids[name] = ModelTransaction(self._producer_ids)
        else:
            known.pending, known.state = [], "Empty"
            known.epoch += 1
        return TransactionKey(name, known.producer_id, known.epoch)

    def _own(self, key: TransactionKey) -> ModelTransaction:
        known = self.ids.get(key.transactional_id)
        if known is None or known.producer_id != key.producer_id:
            raise Refused("49")
        return known

    def produce(self, key: TransactionKey, event: int) -> None:
        known = self._own(key)
        if known.epoch != key.producer_epoch:
            raise Refused("47")
        known.state = "Ongoing"
        if event not in known.pending:  # a repeat is recognized by its sequence number
            known.pending.append(event)

    def end(self, key: TransactionKey, *, is_commit: bool) -> None:
        known, wanted = self._own(key), "Commit" if is_commit else "Abort"
        if known.epoch == key.producer_epoch + 1 and known.state in ("Commit", "Abort"):
            if known.state != wanted:
                raise Refused("48")
            return
        if known.epoch != key.producer_epoch:
            raise Refused("90")
        if known.state != "Ongoing":
            raise Refused("48")
        if is_commit:
            self.events.update(known.pending)
        known.pending, known.state = [], wanted
        known.epoch += 1

    def open_key(self, name: str) -> TransactionKey | None:
        known = self.ids.get(name)
        if known is None or known.state != "Ongoing":
            return None
        return TransactionKey(name, known.producer_id, known.epoch)

    def open_keys(self) -> list[TransactionKey]:
        return [key for name in self.ids if (key := self.open_key(name)) is not None]

    def forget(self, name: str) -> None:
        if self.ids[name].state != "Ongoing":
            del self.ids[name]


class KeyTaken(Exception):
    """Raised when the transaction has a decision, or its writer's name another owner."""


class ModelDatabase:
    def __init__(self) -> None:
        self.generation = 0
        self.sessions: dict[str, int] = {}
        self.outcomes: dict[TransactionKey, DecidedOutcome] = {}
        self.transfers: set[int] = set()

    def claim(self, transactional_id: str) -> tuple[int, tuple[str, ...]]:
        self.generation += 1
        older = tuple(self.sessions)
        self.sessions[transactional_id] = self.generation
        return self.generation, older

    def read_or_abort(self, key: TransactionKey) -> OutcomeRead:
        if key.transactional_id not in self.sessions:
            return OutcomeRead(self.outcomes.get(key), is_session_over=key not in self.outcomes)
        return OutcomeRead(self.outcomes.setdefault(key, DecidedOutcome.ABORTED))

    def decide(
        self,
        key: TransactionKey,
        transfer: int,
        finished: tuple[TransactionKey, ...],
        generation: int | None,
    ) -> None:
        """Commit a transfer with its decision.

        KeyTaken is raised if the key has a decision or if another generation owns the name. A
        `generation` of None is not checked.
        """
        if generation is not None and generation != self.generation:
            raise KeyTaken
        left = {each: word for each, word in self.outcomes.items() if each not in finished}
        if key in left:
            raise KeyTaken
        self.outcomes = {**left, key: DecidedOutcome.COMMITTED}
        self.transfers.add(transfer)

    def decisions(self, transactional_id: str) -> tuple[TransactionKey, ...]:
        """Return the session's transactions that are decided as committed and have records in
        Kafka.
        """
        committed = (k for k, word in self.outcomes.items() if word is DecidedOutcome.COMMITTED)
        return tuple(
            sorted(
                k
                for k in committed
                if k.transactional_id == transactional_id and k.producer_id >= 0
            )
        )

    def delete_session(self, transactional_id: str) -> None:
        self.sessions.pop(transactional_id, None)
        for key in [k for k in self.outcomes if k.transactional_id == transactional_id]:
            del self.outcomes[key]


@dataclass
class Luck:
    """The probability of each failure in one step."""

    dies: float = 0.02
    is_lost: float = 0.12  # an answer is
    fails: float = 0.05  # the application in its block
    sleeps: float = 0.04
    interrupts: float = 0.02  # the writer, which does not know the outcome of its last effect


class World:
    """The models of Kafka and of the database, and the requests that take effect later."""

    def __init__(self, random: Random, luck: Luck) -> None:
        self.random, self.luck = random, luck
        self.kafka, self.database = ModelKafka(), ModelDatabase()
        self.under_way: list[Callable[[], object]] = []
        self.premature: set[int] = set()  # events seen before their rows
        self.alarms = 0

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def later(self, request: Callable[[], object]) -> None:
        self.under_way.append(request)

    def arrive(self, *, all_of_them: bool = False) -> None:
        """Execute one of the delayed requests, or all of them."""
        while self.under_way:
            at = self.random.randrange(len(self.under_way))
            with contextlib.suppress(Refused, KeyTaken):
                self.under_way.pop(at)()
            self.look()
            if not all_of_them:
                return

    def look(self) -> None:
        self.premature |= self.kafka.events.keys() - self.database.transfers
