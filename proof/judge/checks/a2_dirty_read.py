"""Check A2: no record is read with read_committed before its commit was requested."""

from collections.abc import Iterable
from functools import partial

import numpy as np

from ..analysis.arrays import Array
from ..analysis.evidence import Evidence
from ..analysis.findings import Anomaly, Finding
from ..analysis.view import Reads, View
from ..history.schema import NONE

DIRTY_READ = Anomaly("dirty-read", "A2", "a value was read before its commit was requested")
ANOMALIES = (DIRTY_READ,)


def is_dirty(evidence: Evidence, reads: Reads) -> Array:
    """Return for each record that was read whether the poll returned before its commit was called.

    For a record outside of transactions, the send call counts instead of the commit call.
    """
    view = evidence.view
    transaction = view.transaction[reads.writer]
    visible_ns = view.transactions.commit_invoked_ns[transaction]
    visible_ns = np.where(visible_ns == NONE, np.iinfo(np.int64).max, visible_ns)
    invoked_ns = view.padded(view.history.column("sends", "invoked_ns"), 0)
    visible_ns = np.where(transaction >= 0, visible_ns, invoked_ns[reads.writer])
    return evidence.read_ns(reads) < visible_ns


def check(view: View, evidence: Evidence) -> Iterable[Finding]:

    sentence = "value {value} was read before its commit was asked for"
    return evidence.of_readings(DIRTY_READ, partial(is_dirty, evidence), sentence)
