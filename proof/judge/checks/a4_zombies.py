"""Check A4: no write of a superseded producer ever becomes visible.

The rule is violated in the view of the clients by the following order of events. The initialization
of a later client with the transactional id has returned. After that an older client calls its
commit, or a send whose value becomes visible. Kafka excludes this, because InitProducerId aborts
the open transaction of the older client before it returns. In the logs the rule is violated by a
batch or marker after a batch of the same producer id with a higher epoch.
"""

from collections.abc import Iterable

import numpy as np

from ..analysis.arrays import Array
from ..analysis.evidence import Evidence, Facts, told
from ..analysis.findings import Anomaly, Finding, finding
from ..analysis.view import View
from ..history.schema import OpOutcome

ZOMBIE_WRITE = Anomaly("zombie-write", "A4", "a superseded producer's record became visible")
ANOMALIES = (ZOMBIE_WRITE,)
NEVER = np.iinfo(np.int64).max


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    """Find visible records whose send or commit was called after their client was superseded."""
    if not view.history.count("initializations") or not view.transactions.count:
        return []
    by, superseded = _superseded(view)
    own = view.transaction[: view.sends]
    is_visible = (view.is_read | view.is_scanned)[: view.sends]
    rows = np.flatnonzero(is_visible & (own >= 0) & (own < view.transactions.count))
    invoked = np.maximum(
        view.history.column("sends", "invoked_ns")[rows],
        view.transactions.commit_invoked_ns[own[rows]],
    )
    rows = rows[invoked > superseded[own[rows]]]

    def facts_of(send: int) -> Facts:
        return {
            "value": view.value(send),
            "writer": evidence.send(send),
            "superseded_by": evidence.row("initializations", int(by[own[send]])),
            "reader": evidence.first_reader(send),
        }

    sentence = "value {value} of a superseded producer became visible"
    return finding(ZOMBIE_WRITE, rows, told(sentence, facts_of))


def _superseded(view: View) -> tuple[Array, Array]:
    """Return, for each transaction, the initialization that superseded its client, and its time."""
    history, count = view.history, view.transactions.count
    init = {
        name: history.column("initializations", name)
        for name in (
            "process",
            "transactional_id",
            "producer_id",
            "producer_epoch",
            "invoked_ns",
            "returned_ns",
            "outcome",
        )
    }
    total = len(init["process"])
    when, by = np.full(total + 1, NEVER), np.full(total + 1, -1)
    is_ok = (init["outcome"] == OpOutcome.OK) & (init["returned_ns"] >= 0)
    for name in np.unique(init["transactional_id"]):
        rows = np.flatnonzero(init["transactional_id"] == name)
        for row in rows:
            # libraries that do not expose the producer id are ordered by times alone
            same_id = (init["producer_id"][rows] == init["producer_id"][row]) & (
                init["producer_id"][row] >= 0
            )
            is_later = np.where(
                same_id,
                init["producer_epoch"][rows] > init["producer_epoch"][row],
                (init["invoked_ns"][rows] > init["returned_ns"][row]) & is_ok[row],
            )
            later = rows[is_later & is_ok[rows] & (rows != row)]
            if is_ok[row] and len(later):
                first = later[np.argmin(init["returned_ns"][later])]
                when[row], by[row] = init["returned_ns"][first], first
    # the initialization of a transaction: the last one of its process and id before it
    keys = _key(init["process"], init["transactional_id"])
    order = np.lexsort((init["invoked_ns"], keys))
    begun = view.transactions.begun_ns[:count]
    names = history.column("transactions", "transactional_id")
    wanted = _key(view.transactions.process[:count], names)
    distinct = np.unique(keys)
    start = min(int(init["invoked_ns"].min()), int(begun.min()))
    width = max(int(init["invoked_ns"].max()), int(begun.max())) - start + 1
    ranked = np.searchsorted(distinct, keys[order]) * width + init["invoked_ns"][order] - start
    rank = np.searchsorted(distinct, wanted)
    place = np.searchsorted(ranked, rank * width + begun - start, "right") - 1
    found = order[np.maximum(place, 0)]
    is_own = (place >= 0) & (keys[found] == wanted)
    found = np.where(is_own, found, total)
    return by[found], when[found]


def _key(process: Array, name: Array) -> Array:
    return (process.astype(np.int64) << 32) | name.astype(np.int64)
