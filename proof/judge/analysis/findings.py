"""The findings of a check, each with the name of its anomaly, a count, and cases with evidence."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ..log_anomalies import LogAnomaly

if TYPE_CHECKING:
    from .arrays import Array

T = TypeVar("T")
CASES_MAX = 8


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A kind of finding.

    If it is legal, Kafka makes no promise about it, and it is only information.
    """

    name: str
    check: str
    what: str
    is_legal: bool = False

    @classmethod
    def of_log(cls, log: LogAnomaly, check: str = "W1") -> "Anomaly":
        return cls(log.name, check, log.what)


@dataclass(frozen=True, slots=True)
class Case:
    """One occurrence of an anomaly, as a sentence, with the rows that prove it."""

    sentence: str
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Finding:
    """An anomaly that occurred, with the number of occurrences and the first cases."""

    anomaly: Anomaly
    count: int
    cases: tuple[Case, ...]

    @property
    def name(self) -> str:
        return self.anomaly.name

    @property
    def is_violation(self) -> bool:
        return not self.anomaly.is_legal


@overload
def finding(anomaly: Anomaly, found: "Array", case: Callable[[int], Case]) -> Iterable[Finding]: ...
@overload
def finding(anomaly: Anomaly, found: list[T], case: Callable[[T], Case]) -> Iterable[Finding]: ...
def finding(
    anomaly: Anomaly, found: "Array | list[Any]", case: Callable[[Any], Case]
) -> Iterable[Finding]:
    """Yield one finding with the number of rows (or other items) in `found`, or nothing for none.

    `case` creates the case of one item.
    """
    if len(found):
        first = found[:CASES_MAX]
        shown = first if isinstance(first, list) else first.tolist()
        yield Finding(anomaly, len(found), tuple(map(case, shown)))


class Findings:
    """A collector for findings that consist of cases found one by one."""

    def __init__(self) -> None:
        self._found: dict[Anomaly, tuple[int, list[Case]]] = {}

    def add(self, anomaly: Anomaly, sentence: str, facts: Mapping[str, Any] | None = None) -> None:
        count, cases = self._found.get(anomaly, (0, []))
        if count < CASES_MAX:
            cases.append(Case(sentence, facts or {}))
        self._found[anomaly] = (count + 1, cases)

    def of(self, anomalies: Iterable[Anomaly]) -> tuple[Finding, ...]:
        """Return the collected findings of these anomalies, in the given order."""
        return tuple(
            Finding(anomaly, self._found[anomaly][0], tuple(self._found[anomaly][1]))
            for anomaly in anomalies
            if anomaly in self._found
        )


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return one finding for each anomaly, with the counts and cases of all its findings."""
    by_name: dict[str, Finding] = {}
    for one in findings:
        before = by_name.get(one.name, Finding(one.anomaly, 0, ()))
        count, cases = before.count + one.count, before.cases + one.cases
        by_name[one.name] = Finding(one.anomaly, count, cases)
    return tuple(by_name.values())
