"""All checks, in the order in which they are run and printed."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .analysis.evidence import Evidence
from .analysis.findings import Anomaly, Finding
from .analysis.view import View
from .checks import (
    a1_atomicity,
    a2_dirty_read,
    a3_stable_offset,
    a4_zombies,
    a5_read_process_write,
    j1_inconsistent_offsets,
    j2_duplicate,
    j3_aborted_read,
    j4_lost_write,
    j5_unseen,
    j6_poll_order,
    j7_send_order,
    j8_precommitted_read,
    j9_cycles,
    l1_liveness,
    w1_raw_log,
    w2_replicas,
    w3_derived_files,
)
from .checks.groups import a6_group_offsets, g1_owners, g2_epochs, g3_fenced_commits


@dataclass(frozen=True, slots=True)
class Check:
    """One check; it is skipped when a table of `needs` has no rows."""

    name: str
    what: str
    run: Callable[[View, Evidence], Iterable[Finding]]
    anomalies: tuple[Anomaly, ...]
    needs: tuple[str, ...]


def _check(module: object, name: str, what: str, *needs: str) -> Check:
    return Check(name, what, getattr(module, "check"), getattr(module, "ANOMALIES"), needs)  # noqa: B009


CHECKS = (
    _check(j1_inconsistent_offsets, "J1", "an offset holds one value", "sends"),
    _check(j2_duplicate, "J2", "a value stands once", "sends"),
    _check(j3_aborted_read, "J3", "failed values are never read", "sends"),
    _check(j4_lost_write, "J4", "readers pass nothing over", "sends"),
    _check(j5_unseen, "J5", "what was acknowledged is there", "sends"),
    _check(j6_poll_order, "J6", "consumers read in order", "polls", "scan"),
    _check(j7_send_order, "J7", "what was sent in order stands in order", "sends"),
    _check(j8_precommitted_read, "J8", "a transaction never reads its own records", "polls"),
    _check(j9_cycles, "J9", "information flows one way", "transactions"),
    _check(a1_atomicity, "A1", "a transaction is visible whole or not at all", "scan"),
    _check(a2_dirty_read, "A2", "nothing is read before its commit", "polls", "scan"),
    _check(a3_stable_offset, "A3", "no reader passes an open transaction", "polls", "scan"),
    _check(
        a4_zombies,
        "A4",
        "a superseded producer writes nothing visible",
        "initializations",
        "batches",
    ),
    _check(a5_read_process_write, "A5", "inputs are used once", "offset_commits", "derivations"),
    _check(
        a6_group_offsets,
        "A6",
        "a group's members own and commit one after the other",
        "group_commits",
        "ownerships",
    ),
    _check(g1_owners, "G1", "a consumer group's partition has one member at a time", "tenures"),
    _check(g2_epochs, "G2", "a consumer group's epochs never go back", "member_epochs"),
    _check(g3_fenced_commits, "G3", "nothing is committed from a fenced epoch", "tenures"),
    _check(w1_raw_log, "W1", "the raw logs keep the rules", "batches"),
    _check(w2_replicas, "W2", "replicas are equal", "batches", "survivors"),
    _check(
        w3_derived_files,
        "W3",
        "files beside the logs tell the truth",
        "file_findings",
        "batches",  # a dump includes derived files; an empty table means that they are sound
    ),
    _check(l1_liveness, "L1", "after the healing everything goes on"),
)
ANOMALIES: dict[str, Anomaly] = {a.name: a for check in CHECKS for a in check.anomalies}
