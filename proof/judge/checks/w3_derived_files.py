"""Check W3: the files beside a log agree with the log (see logs/derived_files.py)."""

from collections.abc import Iterable

import numpy as np

from ..analysis.evidence import Evidence
from ..analysis.findings import Anomaly, Finding
from ..analysis.view import View

DERIVED_FILE = Anomaly("derived-file", "W3", "an index, snapshot or checkpoint contradicts its log")
ANOMALIES = (DERIVED_FILE,)


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    """Report the differences between derived files and their logs that the scan has recorded."""
    rows = np.arange(view.history.count("file_findings"))
    sentence = "node {replica}: {file}: {problem}"
    return evidence.of_rows(DERIVED_FILE, "file_findings", rows, sentence)
