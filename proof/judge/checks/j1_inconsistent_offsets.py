"""Check J1: an offset of a partition has one value for all readers and writers."""

from collections.abc import Iterable

import numpy as np

from ..analysis.evidence import Evidence
from ..analysis.findings import Anomaly, Case, Finding, finding
from ..analysis.view import View

INCONSISTENT_OFFSETS = Anomaly(
    "inconsistent-offsets", "J1", "two values were seen or acknowledged at one offset"
)
ANOMALIES = (INCONSISTENT_OFFSETS,)


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    """Find places with several values among the proven sends and all records that were read."""
    order = view.order
    places = np.unique(order.rival_places)
    by_uncommitted: dict[int, set[int]] = {}
    if view.uncommitted:
        # these see uncommitted records, too; compared with the holders, and with one another
        holder = order.holder.copy()
        for reads in view.uncommitted:
            is_free = holder[reads.place] < 0
            holder[reads.place[is_free]] = reads.writer[is_free]
            for row in np.flatnonzero(holder[reads.place] != reads.writer):
                claims = by_uncommitted.setdefault(int(reads.place[row]), set())
                claims |= {int(holder[reads.place[row]]), int(reads.writer[row])}
    places = np.union1d(places, np.array(sorted(by_uncommitted), places.dtype))

    def case(place: int) -> Case:
        partition, offset = evidence.place(place)
        sends = sorted({*order.sends_at(place), *by_uncommitted.get(place, set())})
        values = [view.value(send) for send in sends]
        facts = {
            "partition": partition,
            "offset": offset,
            "index": int(order.index[place]),
            "values": values,
            "writers": [evidence.send(send) for send in sends[:4]],
            "readers": [evidence.first_reader(send) for send in sends[:4]],
        }
        return Case(f"{partition}@{offset} holds {len(values)} values: {values[:6]}", facts)

    return finding(INCONSISTENT_OFFSETS, places, case)
