"""The parameters and the verdict of a run of the sink's model."""

from dataclasses import dataclass
from typing import NamedTuple

from oncelog.pipeline.sink import steps
from oncelog.pipeline.sink.decision import Decision
from oncelog.pipeline.sink.modes import Mode
from oncelog.pipeline.sink.names import Leftovers
from oncelog.pipeline.sink.protocol import SinkProtocol
from oncelog.pipeline.sink.steps import Phase


@dataclass(frozen=True)
class Parts:
    """The safeguards of the sink's protocol and the faults of a run. A test may disable some."""

    decides: bool = True
    sweeps_in_order: bool = True
    has_generations: bool = True
    keeps_banks: bool = True
    writes_done: bool = True
    prepares: bool = True  # transactions of children do not time out
    mode: Mode = Mode.PREPARED
    # Of mode "transactional", where transactions of children do time out:
    is_v2: bool = True  # an end raises the epoch
    outages: bool = True  # a child may time out after it was found open or decided
    asks: bool = True  # states of children, before a decision, after it and at a start
    asks_again: bool = True  # after a decision, before its children are committed
    takes_back: bool = True
    rolls_back: bool = True  # before a decision is taken back
    minds_the_forgotten: bool = True  # a forgotten id may be that of an aborted child
    ids_of_attempts: bool = True  # else ids of partition and attempt, two banks
    ids_are_taken_out: bool = True  # else returned ids are dealt out by partition
    abandons_ids: bool = True  # with an unanswered first request
    sleepers: bool = True  # attempts may freeze
    repeats: bool = True  # requests with a lost answer may arrive again

    @property
    def has_outages(self) -> bool:
        """Return whether the run has outages that are longer than the transaction timeout."""
        return self.outages and self.mode is Mode.TRANSACTIONAL


@dataclass(frozen=True)
class Size:
    batches: int = 4
    tasks: int = 3
    rows: int = 2


class Verdict(NamedTuple):
    """The numbers of doubled rows, missing rows and open transactions after a run of the model.

    `is_told`: the decision topic has an alarm about the missing rows.
    """

    doubled: int
    missing: int
    left_open: int
    is_told: bool


class OfAnyGeneration(Leftovers):
    def is_ours(self, name: str) -> bool:
        return True


class Reduced(SinkProtocol):
    """The sink's protocol without the steps that `parts` disables."""

    parts = Parts()

    def step(self, event: steps.Event) -> steps.Effect:
        effect = super().step(event)
        while True:
            if isinstance(effect, steps.WriteDecision) and not self.writes(effect.decision):
                effect = super().step(steps.ControlCommitted())
            elif isinstance(effect, steps.DescribeChildren) and not self.asks():
                names = tuple(child.transactional_id for child in effect.children)
                effect = super().step(steps.ChildrenDescribed(names))
            elif isinstance(effect, steps.RollBackChildren) and not self.parts.rolls_back:
                effect = super().step(steps.ChildrenAborted())
            else:
                return effect

    def asks(self) -> bool:
        has_just_decided = (
            self.phase is Phase.JUDGING
            and self.decision is not None
            and self.decision.decided_by == self.generation
        )
        return self.parts.asks and (self.parts.asks_again or not has_just_decided)

    @property
    def _may_be_undone(self) -> bool:
        return self.parts.takes_back and super()._may_be_undone

    def writes(self, decision: Decision) -> bool:
        if self.phase is Phase.FINISHING:
            return self.parts.writes_done
        return self.parts.decides or self.phase is not Phase.DECIDING

    def _leftovers(self) -> Leftovers:
        found = super()._leftovers()
        if self.parts.sweeps_in_order and self.parts.has_generations:
            return found
        return OfAnyGeneration(found.sink_id, found.generation, found.kept)

    def _given_back(self) -> tuple[str, ...]:
        if self.parts.keeps_banks:
            return super()._given_back()
        return tuple(self.reusable_ids)
