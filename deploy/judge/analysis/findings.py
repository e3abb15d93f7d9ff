"""What a check reports: an anomaly by its name, how often, and cases with their evidence."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

CASES_MAX = 8


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A kind of finding. Legal ones are information: Kafka promises nothing of the sort."""

    name: str
    check: str
    what: str
    is_legal: bool = False


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
        """Whether a promise was broken."""
        return not self.anomaly.is_legal


def finding(anomaly: Anomaly, rows: Any, case: Callable[[int], Case]) -> Iterable[Finding]:
    """A finding of the rows, or nothing when there are none; `case(row)` tells of one row."""
    if len(rows):
        cases = tuple(case(int(row)) for row in rows[:CASES_MAX])
        yield Finding(anomaly, len(rows), cases)
