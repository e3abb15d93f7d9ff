"""Runs the checks over a history, and reports the findings."""

from collections.abc import Iterable
from dataclasses import dataclass

from .analysis.evidence import Evidence
from .analysis.findings import Finding, merged
from .analysis.view import View
from .catalogue import CHECKS
from .history.columns import History


@dataclass(frozen=True, slots=True)
class Verdict:
    """The findings of a history, the checks that ran, and the checks that were skipped."""

    findings: tuple[Finding, ...]
    judged: tuple[str, ...]
    not_judged: tuple[tuple[str, str], ...]  # check, why
    operations: int

    @property
    def violations(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.is_violation)

    @property
    def is_clean(self) -> bool:
        return not self.violations

    def names(self) -> set[str]:
        return {f.name for f in self.violations}


def judge(history: History, only: Iterable[str] | None = None) -> Verdict:
    """Run the checks over a history, all or only those named (such as J1, A2).

    Return the verdict.
    """
    wanted = None if only is None else set(only)
    findings: list[Finding] = []
    judged: list[str] = []
    not_judged: list[tuple[str, str]] = []
    view = View(history)
    evidence = Evidence(view)
    for check in CHECKS:
        if wanted is not None and check.name not in wanted:
            continue
        if check.needs and not any(history.count(table) for table in check.needs):
            not_judged.append((check.name, f"the history has no {' and no '.join(check.needs)}"))
            continue
        judged.append(check.name)
        findings += check.run(view, evidence)
    operations = sum(history.count(t) for t in ("sends", "polls", "transactions", "offset_commits"))
    return Verdict(merged(findings), tuple(judged), tuple(not_judged), operations)
