"""W3: the files beside a log say what the log says: logs/derived_files.py."""

from collections.abc import Iterable

import numpy as np

from ..analysis.evidence import Evidence
from ..analysis.findings import Anomaly, Case, Finding, finding
from ..analysis.view import View

DERIVED_FILE = Anomaly(
    "derived-file", "W3", "a file made from the log differs from what the log gives"
)
ANOMALIES = (DERIVED_FILE,)


def check(view: View) -> Iterable[Finding]:
    """What the look at the files found."""
    evidence = Evidence(view)
    rows = np.arange(view.history.count("file_findings"))

    def case(row: int) -> Case:
        facts = evidence.row("file_findings", row)
        return Case(f"node {facts['replica']}: {facts['file']}: {facts['problem']}", facts)

    return finding(DERIVED_FILE, rows, case)
