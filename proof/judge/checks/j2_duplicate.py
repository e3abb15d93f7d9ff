"""Check J2: a value has one offset, in the partition to which it was sent."""

from collections.abc import Iterable

import numpy as np

from ..analysis.evidence import Evidence, Facts, told
from ..analysis.findings import Anomaly, Finding, finding
from ..analysis.view import View

DUPLICATE = Anomaly("duplicate", "J2", "a value has several offsets")
MISPLACED = Anomaly("misplaced", "J2", "a value is in another partition than it was sent to")
ANOMALIES = (DUPLICATE, MISPLACED)


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    """Find sent records with a value that was read or acknowledged at more than one place."""
    order = view.order
    doubled = np.flatnonzero(order.copies > 1)

    def facts_of(send: int) -> Facts:
        found = [evidence.place(place) for place in order.places_of(send)]
        return {
            "value": view.value(send),
            "count": int(order.copies[send]),
            "places": [f"{p}@{o}" for p, o in found],
            "offsets": [o for _, o in found],
            "sent_to": evidence.partition(int(view.partition[send])),
            "writer": evidence.send(send),
        }

    yield from finding(DUPLICATE, doubled, told("value {value} stands at {places}", facts_of))

    # a single place, but in another partition than the writer's
    once = np.flatnonzero((order.copies == 1) & (view.partition >= 0))
    partition = view.places.group_of(order.first_place[once])
    astray = once[partition != view.partition[once]]
    sentence = "value {value}, sent to {sent_to}, stands at {places}"
    yield from finding(MISPLACED, astray, told(sentence, facts_of))
