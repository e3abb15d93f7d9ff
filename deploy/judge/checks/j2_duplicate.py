"""J2: a value stands once, and in the partition that it was sent to."""

from collections.abc import Iterable

import numpy as np

from ..analysis.evidence import Evidence
from ..analysis.findings import Anomaly, Case, Finding, finding
from ..analysis.view import View

DUPLICATE = Anomaly("duplicate", "J2", "one value stands at several offsets")
MISPLACED = Anomaly("misplaced", "J2", "a value stands elsewhere than its acknowledgement said")
ANOMALIES = (DUPLICATE, MISPLACED)


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    """Sends whose value was seen or told at more than one place."""
    order = view.order
    doubled = np.flatnonzero(order.copies > 1)

    def places(send: int) -> dict[str, object]:
        found = [evidence.place(place) for place in order.places_of(send)]
        return {"places": [f"{p}@{o}" for p, o in found], "offsets": [o for _, o in found]}

    def case(send: int) -> Case:
        facts = {
            "value": view.value(send),
            "count": int(order.copies[send]),
            **places(send),
            "writer": evidence.send(send),
        }
        return Case(f"value {facts['value']} stands at {facts['places']}", facts)

    yield from finding(DUPLICATE, doubled, case)

    # one place only, but another partition than the writer's
    once = np.flatnonzero((order.copies == 1) & (view.partition >= 0))
    partition = view.places.group_of(order.first_place[once])
    astray = once[partition != view.partition[once]]

    def astray_case(send: int) -> Case:
        found = places(send)
        told = f"sent to {evidence.partition(int(view.partition[send]))}"
        facts = {"value": view.value(send), **found, "writer": evidence.send(send)}
        return Case(f"value {facts['value']}, {told}, stands at {found['places']}", facts)

    yield from finding(MISPLACED, astray, astray_case)
