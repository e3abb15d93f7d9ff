"""A2: nothing is read under read_committed before its commit was asked for."""

from collections.abc import Iterable
from functools import partial

import numpy as np

from ..analysis.arrays import Array
from ..analysis.evidence import Evidence
from ..analysis.findings import Anomaly, Case, Finding
from ..analysis.view import Reads, View
from ..history.schema import NONE

DIRTY_READ = Anomaly("dirty-read", "A2", "a value was read before its commit was asked for")
ANOMALIES = (DIRTY_READ,)


def is_dirty(view: View, reads: Reads) -> Array:
    """Of each reading: whether it returned before the writer asked to commit, or was sent."""
    transaction = view.transaction[reads.writer]
    visible_ns = view.transactions.commit_invoked_ns[transaction]
    never = np.iinfo(np.int64).max
    visible_ns = np.where(visible_ns == NONE, never, visible_ns)
    invoked_ns = view.history.column("sends", "invoked_ns")
    if len(view.unknown_values):  # of those nobody knows when
        invoked_ns = np.append(invoked_ns, np.zeros(len(view.unknown_values), np.int64))
    visible_ns = np.where(transaction >= 0, visible_ns, invoked_ns[reads.writer])
    return Evidence(view).read_ns(reads) < visible_ns


def check(view: View) -> Iterable[Finding]:
    evidence = Evidence(view)

    def case(reads: Reads, row: int) -> Case:
        facts = evidence.reading(reads, row)
        return Case(f"value {facts['value']} was read before its commit was asked for", facts)

    return evidence.of_readings(DIRTY_READ, partial(is_dirty, view), case)
