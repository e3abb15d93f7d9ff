"""Check G1: a partition has one owner at a time among a consumer group's members (KIP-848).

A member gets a partition between a heartbeat and its answer. The member certainly has the partition
as long as heartbeats were answered that began during its ownership. A silent member may have lost
the partition without knowing, which is not a finding. An answer that a paused member read late,
when others had the partition already, is not a finding either.
"""

from collections.abc import Iterable, Iterator

from ...analysis.evidence import Evidence
from ...analysis.findings import Anomaly, Case, Finding, finding
from ...analysis.view import View
from .tenures import by_partition, certain_until, tenure_column

HELD_TWICE = Anomaly("held-twice", "G1", "two members owned a partition at the same time")
ANOMALIES = (HELD_TWICE,)


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    """Find partitions that two members of a consumer group certainly had at the same time."""
    yield from finding(HELD_TWICE, list(_held_twice(view, evidence)), lambda case: case)


def _held_twice(view: View, evidence: Evidence) -> Iterator[Case]:
    history = view.history
    asked, taken, process = (
        tenure_column(history, name) for name in ("asked_ns", "taken_ns", "process")
    )
    until = certain_until(history)
    for group, partition, rows in by_partition(history):
        longest = rows[0]
        for row in rows[1:]:
            is_certain = asked[row] >= taken[longest] or until[row] > taken[row]
            if taken[row] < until[longest] and is_certain and process[row] != process[longest]:
                where = f"{history.name(group)}: {evidence.partition(partition)}"
                told = [evidence.row("tenures", int(each)) for each in (longest, row)]
                yield Case(
                    f"{where} was given to a member while another one had it", {"tenures": told}
                )
            if until[row] > until[longest]:
                longest = row
