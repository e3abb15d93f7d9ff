"""The writer of the demo's services, which reports its steps, and its variants for `--break`.

A variant overrides the removed part of the released class, and nothing else. At the reported steps
the demo kills or pauses a service.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from ....client import BlockingDualWriter
from ....client.dual_write import decision_table, steps
from ....client.dual_write.flow import Flow
from ....client.dual_write.names import NONCE_BYTES, session_id
from ....client.dual_write.steps import TransactionKey, WriterPhase

CLAIMED, INITIALIZING, PREPARED, DECIDED = MOMENTS = (
    "claimed",
    "initializing",
    "prepared",
    "decided",
)


class TellingWriter(BlockingDualWriter):
    """A writer that calls `meet` with the name of each step that it reaches."""

    meet: Callable[[str], None]

    def _perform(self, effect: steps.Effect) -> Flow[steps.Event]:
        if isinstance(effect, steps.Initialize):
            self.meet(INITIALIZING)
        if isinstance(effect, steps.Decide):
            self.meet(PREPARED)
        event = yield from super()._perform(effect)
        if isinstance(effect, steps.Claim):
            self.meet(CLAIMED)
        if isinstance(event, steps.DatabaseCommitted):
            self.meet(DECIDED)
        return event


class DecidesBeforeItPrepares(TellingWriter):
    """A variant that commits in the database before the transaction's records are acknowledged.

    The records are flushed after the database's commit.
    """

    def _perform(self, effect: steps.Effect) -> Flow[steps.Event]:
        if not isinstance(effect, steps.Prepare):
            return (yield from super()._perform(effect))
        assert self._producer is not None
        producer_id, epoch = yield partial(self._producer.run, _identity)
        return steps.Prepared(TransactionKey(self._protocol.transactional_id, producer_id, epoch))


async def _identity(producer: Any) -> tuple[int, int]:
    return producer.identity.producer_id, producer.identity.producer_epoch


class CompletesBeforeItCommits(TellingWriter):
    """A variant that commits in Kafka before it commits in the database."""

    _completed: TransactionKey | None = None

    def _perform(self, effect: steps.Effect) -> Flow[steps.Event]:
        if isinstance(effect, steps.Decide):
            self._completed = effect.key
            ended = yield from super()._perform(steps.EndAsDecided(effect.key, is_commit=True))
            if isinstance(ended, steps.EndRefused | steps.EndUnanswered):
                return steps.DatabaseRefused(ended.reason)
        if isinstance(effect, steps.EndAsDecided) and effect.key == self._completed:
            return steps.EndedAsDecided()
        return (yield from super()._perform(effect))


class HasOneIdForAllSessions(TellingWriter):
    """A variant whose sessions share one transactional id, which each start initializes again.

    Applications of KIP-939 do the same.
    """

    def _new_session(self) -> Flow[steps.Event]:
        database = yield from self._run(decision_table.database_id("0" * 8))
        transactional_id = session_id(self.name, database, b"\0" * NONCE_BYTES)
        yield partial(self._new_producer, transactional_id)
        return steps.SessionStarted(transactional_id)

    def _perform(self, effect: steps.Effect) -> Flow[steps.Event]:
        if isinstance(effect, steps.DeleteSession):
            return steps.SessionDeleted()  # it is this one
        if isinstance(effect, steps.FenceSession):
            return steps.SessionFenced()  # Initialize fences it
        if isinstance(effect, steps.Claim):  # its row exists already and is replaced
            own = effect.transactional_id
            yield from self._run(decision_table.delete_session_row(own))
            event = yield from super()._perform(effect)
            assert isinstance(event, steps.Claimed)
            return replace(event, older_sessions=(own,))
        if isinstance(effect, steps.EndAsDecided) and self.phase is WriterPhase.ROLLING_FORWARD:
            assert self._producer is not None  # not initialized yet, so it cannot commit
            return (yield partial(self._for_others, effect, self._producer))
        return (yield from super()._perform(effect))


class HasTwoOwners(TellingWriter):
    """A variant that commits even if a newer process has claimed the writer's name.

    It commits with the newest generation in the table of decisions, not with its own.
    """

    def _perform(self, effect: steps.Effect) -> Flow[steps.Event]:
        if isinstance(effect, steps.Decide):
            in_office = yield from self._run_in_block(effect.name)
            effect = replace(effect, generation=in_office)
        return (yield from super()._perform(effect))

    def _run_in_block(self, name: str) -> Flow[int]:
        return self._run(decision_table.generation_of(name))


NO_TOMBSTONE = "no-tombstone"
WRITERS: dict[str, type[TellingWriter]] = {
    "none": TellingWriter,
    "decision-before-prepare": DecidesBeforeItPrepares,
    "complete-before-commit": CompletesBeforeItCommits,
    "no-nonce": HasOneIdForAllSessions,
    "two-owners": HasTwoOwners,
    NO_TOMBSTONE: TellingWriter,  # the check-back has the removed part
}
