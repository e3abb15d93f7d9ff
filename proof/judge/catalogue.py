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
    """A check of the judge, which is skipped when all tables in `needs` are empty."""

    name: str
    what: str
    run: Callable[[View, Evidence], Iterable[Finding]]
    anomalies: tuple[Anomaly, ...]
    needs: tuple[str, ...]


def _check(module: object, name: str, what: str, *needs: str) -> Check:
    return Check(name, what, getattr(module, "check"), getattr(module, "ANOMALIES"), needs)  # noqa: B009


CHECKS = (
    _check(j1_inconsistent_offsets, "J1", "an offset has one value", "sends"),
    _check(j2_duplicate, "J2", "a value has one offset", "sends"),
    _check(j3_aborted_read, "J3", "failed values are never read", "sends"),
    _check(j4_lost_write, "J4", "readers skip no value", "sends"),
    _check(j5_unseen, "J5", "acknowledged values are there", "sends"),
    _check(j6_poll_order, "J6", "consumers read in order", "polls", "scan"),
    _check(j7_send_order, "J7", "values keep the order in which they were sent", "sends"),
    _check(j8_precommitted_read, "J8", "a transaction never reads its own records", "polls"),
    _check(j9_cycles, "J9", "transactions do not read from one another in cycles", "transactions"),
    _check(a1_atomicity, "A1", "a transaction is visible as a whole or not at all", "scan"),
    _check(a2_dirty_read, "A2", "no value is read before its commit", "polls", "scan"),
    _check(
        a3_stable_offset, "A3", "committed readers stop before an open transaction", "polls", "scan"
    ),
    _check(
        a4_zombies,
        "A4",
        "records of a superseded producer are invisible",
        "initializations",
        "batches",
    ),
    _check(
        a5_read_process_write,
        "A5",
        "each input has its output once",
        "offset_commits",
        "derivations",
    ),
    _check(
        a6_group_offsets,
        "A6",
        "a partition has one owner in a generation, and commits stay",
        "group_commits",
        "ownerships",
    ),
    _check(g1_owners, "G1", "a partition has one member of a consumer group at a time", "tenures"),
    _check(g2_epochs, "G2", "the epochs of a consumer group never decrease", "member_epochs"),
    _check(g3_fenced_commits, "G3", "commits with a fenced epoch are refused", "tenures"),
    _check(w1_raw_log, "W1", "the batches of a log follow Kafka's rules", "batches"),
    _check(w2_replicas, "W2", "replicas are equal", "batches", "survivors"),
    _check(
        w3_derived_files,
        "W3",
        "files beside the logs agree with the logs",
        "file_findings",
        "batches",  # a dump includes derived files, so an empty table means that they are right
    ),
    _check(l1_liveness, "L1", "everything works after the faults are repaired"),
)
ANOMALIES: dict[str, Anomaly] = {a.name: a for check in CHECKS for a in check.anomalies}
