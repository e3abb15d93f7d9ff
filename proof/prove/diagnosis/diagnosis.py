"""Finds mistakes in sightings (facts about an application's requests), without clock and sockets.

    diagnosis = Diagnosis()
    for one in diagnosis.see(sighting): ...
    diagnosis.findings

`listener.py` converts the events of the protocol proxy to sightings.
"""

from dataclasses import replace

from .catalogue import CATALOGUE, ORDER, ApplicationFinding
from .cluster_rules import LateRequests, MinInsync, ReadUncommitted
from .commit_rules import CommitBeforeOutput, PlainCommits
from .fencing_rules import GroupFencing, RandomIds, RefusedOffsets, SharedIds
from .hindsight_rules import OffsetsApart, PassedOver, SinkNotAtomic, StateNotRebuilt
from .producer_rules import FreshProducer, PlainProducer, ProducerSettings
from .rule import FindingRule
from .seen import SeenTxnOffsetCommit, SeenVerdict, Sighting
from .sequence_rules import CommitBeforeProduce, FreshTransaction, OtherBytes
from .transaction_rules import AbortWithoutSeek, TooLong

FINDINGS_MAX = 1_000
OUTSIDE = "offsets-outside-transaction"


class Diagnosis:
    """Reports each kind of finding once for each subject, which is a topic, group or id.

    is_aggregate: outputs are sums or similar, so the application has to restore its state.
    """

    def __init__(self, *, is_aggregate: bool = False) -> None:
        self._rules: tuple[FindingRule, ...] = (
            PlainCommits(), CommitBeforeOutput(), ReadUncommitted(), GroupFencing(), SharedIds(),
            RandomIds(), ProducerSettings(), PlainProducer(), FreshProducer(), TooLong(),
            AbortWithoutSeek(), LateRequests(), MinInsync(), PassedOver(), OffsetsApart(),
            SinkNotAtomic(), CommitBeforeProduce(), OtherBytes(), FreshTransaction(),
            RefusedOffsets(),
            *((StateNotRebuilt(),) if is_aggregate else ()),
        )  # fmt: skip
        self._told = dict[tuple[str, str], ApplicationFinding]()
        self._new: list[ApplicationFinding] = []
        self._sends_offsets = False

    @property
    def findings(self) -> list[ApplicationFinding]:
        """Return all findings in the order of the catalogue, the most useful first."""
        return sorted(self._told.values(), key=lambda found: ORDER[found.kind.name])

    @property
    def names(self) -> set[str]:
        """Return the names of the kinds of the findings so far."""
        return {name for name, _ in self._told}

    def see(self, seen: Sighting) -> list[ApplicationFinding]:
        """Process a sighting (a fact about the application's requests). Return the new findings."""
        self._new = []
        for rule in self._rules:
            rule.see(seen, self._tell)
        self._sends_offsets |= isinstance(seen, SeenTxnOffsetCommit)
        is_right = isinstance(seen, SeenVerdict) and not (seen.is_wrong or seen.is_open)
        if is_right and not self._sends_offsets:
            self._weaken()
        return self._new

    def _weaken(self) -> None:
        """Change offsets-outside-transaction to "exposed", because no output is wrong.

        The application's positions may be in a checkpoint or in the output, as those of Flink are.
        Such an application commits offsets only for monitoring.
        """
        for place, found in self._told.items():
            if found.kind.name == OUTSIDE:
                kind = replace(found.kind, weight="exposed")
                evidence = f"{found.evidence}; no output is wrong, so it may be for monitoring only"
                self._told[place] = replace(found, kind=kind, evidence=evidence)

    def _tell(self, name: str, seen: Sighting, subject: str, evidence: str) -> None:
        if (name, subject) not in self._told and len(self._told) < FINDINGS_MAX:
            found = ApplicationFinding(CATALOGUE[name], seen.instance, subject, evidence, seen.at_s)
            self._told[name, subject] = found
            self._new.append(found)
