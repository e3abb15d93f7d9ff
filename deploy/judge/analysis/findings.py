"""What a check reports: an anomaly by its name, how often, and cases with their evidence."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ....wire.log_anomalies import LogAnomaly

CASES_MAX = 8


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A kind of finding. Legal ones are information: Kafka promises nothing of the sort."""

    name: str
    check: str
    what: str
    is_legal: bool = False

    @classmethod
    def of_log(cls, log: LogAnomaly, check: str = "W1") -> "Anomaly":
        return cls(log.name, check, log.what)


@dataclass(frozen=True, slots=True)
class Case:
    """One occurrence: a sentence, and the rows it stands on."""

    sentence: str
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Finding:
    """An anomaly that occurred, with its first cases."""

    anomaly: Anomaly
    count: int
    cases: tuple[Case, ...]

    @property
    def name(self) -> str:
        return self.anomaly.name

    @property
    def is_violation(self) -> bool:
        return not self.anomaly.is_legal


def finding(anomaly: Anomaly, rows: Any, case: Callable[[int], Case]) -> Iterable[Finding]:
    """A finding of the rows, or nothing when there are none; `case(row)` tells of one row."""
    if len(rows):
        cases = tuple(case(int(row)) for row in rows[:CASES_MAX])
        yield Finding(anomaly, len(rows), cases)


class Findings:
    """Counts what is met one by one, in place of `finding`."""

    def __init__(self) -> None:
        self._found: dict[Anomaly, tuple[int, list[Case]]] = {}

    def add(self, anomaly: Anomaly, sentence: str, facts: Mapping[str, Any] | None = None) -> None:
        count, cases = self._found.get(anomaly, (0, []))
        if count < CASES_MAX:
            cases.append(Case(sentence, facts or {}))
        self._found[anomaly] = (count + 1, cases)

    def of(self, anomalies: Iterable[Anomaly]) -> tuple[Finding, ...]:
        """What was met of these, in their order."""
        return tuple(
            Finding(anomaly, self._found[anomaly][0], tuple(self._found[anomaly][1]))
            for anomaly in anomalies
            if anomaly in self._found
        )


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """One finding an anomaly: of several readers or partitions the counts are added."""
    by_name: dict[str, Finding] = {}
    for one in findings:
        known = by_name.get(one.name)
        by_name[one.name] = (
            one
            if known is None
            else Finding(one.anomaly, known.count + one.count, known.cases + one.cases)
        )
    return tuple(by_name.values())
