"""Check J7: a producer's records are in a partition in the order in which they were sent.

Two consecutive sends within a session of a process are compared by index, without failed sends.
Within one transaction the names of the anomalies begin with `int-`. Values of other producers
between two sends of a transaction are legal (Kafka does not isolate writers), and counted as
information.
"""

from collections.abc import Iterable

import numpy as np

from ..analysis.arrays import begins, stable_order
from ..analysis.evidence import Evidence
from ..analysis.findings import Anomaly, Case, Finding, finding
from ..analysis.view import View
from ..history.schema import OpOutcome

NONMONOTONIC_SEND = Anomaly(
    "nonmonotonic-send", "J7", "a value of a later operation has a lower offset"
)
INT_NONMONOTONIC_SEND = Anomaly(
    "int-nonmonotonic-send", "J7", "a later value of the same transaction has a lower offset"
)
INT_SEND_SKIP = Anomaly(
    "int-send-skip",
    "J7",
    "values of other producers are between the values of a transaction",
    is_legal=True,
)
ANOMALIES = (NONMONOTONIC_SEND, INT_NONMONOTONIC_SEND, INT_SEND_SKIP)


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    """Find consecutive sends of a session whose records are in the wrong order in the partition."""
    history = view.history
    place = np.where(
        view.is_proven & (view.send_place >= 0), view.send_place, view.order.first_place
    )
    is_known = (place >= 0) & (view.outcome != OpOutcome.FAIL)
    sends = np.flatnonzero(is_known[: view.sends]).astype(np.int32)
    process = history.column("sends", "process")[sends]
    session = history.column("sends", "session")[sends]
    partition = view.places.group_of(place[sends]).astype(np.int32)
    order = stable_order(process, partition, session)
    is_first = begins(process[order], partition[order], session[order])
    del process, session, partition
    sends = sends[order]
    del order
    index = view.order.index[place[sends]]
    delta = np.ones(len(sends), np.int64)
    delta[1:] = np.where(is_first[1:], 1, np.diff(index.astype(np.int64)))
    transaction = view.transaction[sends]
    is_within = np.zeros(len(sends), bool)
    is_within[1:] = (transaction[1:] >= 0) & (transaction[1:] == transaction[:-1])
    for anomaly, chosen in (
        (NONMONOTONIC_SEND, ~is_within & (delta < 1)),
        (INT_NONMONOTONIC_SEND, is_within & (delta < 1)),
        (INT_SEND_SKIP, is_within & (delta > 1)),
    ):

        def case(row: int) -> Case:
            pair = int(sends[row - 1]), int(sends[row])
            facts = evidence.step(pair, (int(place[pair[0]]), int(place[pair[1]])), int(delta[row]))
            facts |= {"earlier": evidence.send(pair[0]), "later": evidence.send(pair[1])}
            (one, other), (low, high) = facts["values"], facts["offsets"]
            where = f"{facts['partition']}: {other} at {high}, {one} at {low}"
            is_ahead = delta[row] > 1
            what = f"with {facts['skipped']} between" if is_ahead else "though it was sent later"
            return Case(f"{where}, {what}", facts)

        yield from finding(anomaly, np.flatnonzero(chosen), case)
