"""Falsifications of the recorded logs, replicas, files, end offsets and probes of a run."""

import numpy as np

from oncelog.proof.judge.history.schema import Marker, OpOutcome

from .edit import Edit, NoPlace
from .mutations import mutation


def _batches(e: Edit, chosen: np.ndarray) -> np.ndarray:
    """Return the chosen rows among the batches of the leader's copy."""
    return np.flatnonzero((e["batches"]["replica"] == -1) & chosen)


def _later_batch(e: Edit, *, control: bool = False) -> int:
    """Return a random batch that is not its producer's first in its partition."""
    batches, seen, found = e["batches"], set(), []
    for row in _batches(e, np.ones(len(e["batches"]), bool)):
        key = (int(batches["partition"][row]), int(batches["producer_id"][row]))
        is_control = batches["marker"][row] != Marker.NONE
        if key in seen and is_control == control:
            found.append(row)
        if is_control == control:
            seen.add(key)
    return e.pick(found)


@mutation("offset-disorder")
def _(e: Edit) -> None:
    e["batches"]["base_offset"][_later_batch(e)] -= 1


@mutation("expired")
def _(e: Edit) -> None:
    ends = e["ends"]
    rows = np.flatnonzero((ends["replica"] == -1) & (ends["log_end_offset"] > 1))
    ends["log_start_offset"][e.pick(rows)] = 1


@mutation("leader-epoch-fell")
def _(e: Edit) -> None:
    e["batches"]["leader_epoch"][_later_batch(e)] = 4


@mutation("zombie-append")
def _(e: Edit) -> None:
    batches = e["batches"]
    row = e.pick(_batches(e, (batches["producer_epoch"] > 0) & (batches["marker"] == -1)))
    before = _batches(e, (batches["producer_id"] == batches["producer_id"][row])
                      & (batches["partition"] == batches["partition"][row]))  # fmt: skip
    if before[0] == row:
        raise NoPlace
    batches["producer_epoch"][row] = -1 if batches["producer_epoch"][before[0]] == 0 else 0


@mutation("sequence-gap")
def _(e: Edit) -> None:
    row = _later_batch(e)
    e["batches"]["base_sequence"][row] += 5
    e["batches"]["last_sequence"][row] += 5


@mutation("sequence-repeated")
def _(e: Edit) -> None:
    batches = e["batches"]
    plain = (batches["attributes"] == 0) & (batches["base_sequence"] >= 0)
    row = e.pick(_batches(e, plain))
    here = _batches(e, batches["partition"] == batches["partition"][row])
    end = int(batches["last_offset"][here].max()) + 1
    made = e.copy("batches", row, base_offset=end, last_offset=end)
    e.insert("batches", int(here[-1]) + 1, made)


@mutation("plain-in-transaction")
def _(e: Edit) -> None:
    batches, opened, found = e["batches"], set(), []
    for row in _batches(e, np.ones(len(batches), bool)):
        key = (int(batches["partition"][row]), int(batches["producer_id"][row]))
        if batches["marker"][row] != Marker.NONE:
            opened.discard(key)
        elif batches["attributes"][row]:
            if key in opened:
                found.append(row)
            opened.add(key)
    batches["attributes"][e.pick(found)] = 0


@mutation("coordinator-epoch-fell")
def _(e: Edit) -> None:
    e["batches"]["coordinator_epoch"][_later_batch(e, control=True)] = 2


@mutation("open-transaction")
def _(e: Edit) -> None:
    batches = e["batches"]
    markers = _batches(e, batches["marker"] != Marker.NONE)
    last = {(int(batches["partition"][r]), int(batches["producer_id"][r])): r for r in markers}
    e.remove("batches", [e.pick(list(last.values()))])


def _wide_marker(e: Edit) -> int:
    """Return a random marker of a transaction that also has a marker in another partition."""
    batches = e["batches"]
    rows = _batches(e, batches["marker"] != Marker.NONE)
    keys = list(zip(batches["producer_id"][rows], batches["producer_epoch"][rows], strict=True))
    return e.pick([row for row, key in zip(rows, keys, strict=True) if keys.count(key) > 1])


@mutation("mixed-markers")
def _(e: Edit) -> None:
    row = _wide_marker(e)
    e["batches"]["marker"][row] = 1 - e["batches"]["marker"][row]


@mutation("marker-against-decision")
def _(e: Edit) -> None:
    batches = e["batches"]
    row = e.pick(_batches(e, batches["marker"] != Marker.NONE))
    batches["marker"][row] = 1 - batches["marker"][row]


@mutation("ended-early")
def _(e: Edit) -> None:
    """Put a marker of the same producer between two records of a transaction."""
    batches, sends = e["batches"], e["sends"]
    data = _batches(e, (batches["marker"] == Marker.NONE) & (batches["attributes"] != 0))
    markers = _batches(e, batches["marker"] != Marker.NONE)
    place = {(int(batches["partition"][r]), int(batches["base_offset"][r])): int(r) for r in data}
    seen: dict[tuple[int, int], int] = {}
    found = []
    for row in np.flatnonzero((sends["transaction"] >= 0) & (sends["offset"] >= 0)):
        where = int(sends["partition"][row]), int(sends["offset"][row])
        key = int(sends["transaction"][row]), where[0]
        if key in seen and where in place and where[1] > seen[key] + 1:
            found.append((seen[key], place[where]))
        seen.setdefault(key, where[1])
    first, last = found[e.pick(range(len(found)))]
    between = _batches(
        e,
        (batches["partition"] == batches["partition"][last])
        & (batches["base_offset"] > first)
        & (batches["base_offset"] < batches["base_offset"][last]),
    )
    for name in ("marker", "coordinator_epoch", "attributes"):
        batches[name][between] = batches[name][e.pick(markers)]
    batches["producer_id"][between] = batches["producer_id"][last]
    batches["producer_epoch"][between] = batches["producer_epoch"][last]


@mutation("replica-divergence")
def _(e: Edit) -> None:
    e["batches"]["crc"][e.pick(np.flatnonzero(e["batches"]["replica"] == 2))] ^= 1


@mutation("derived-file")
def _(e: Edit) -> None:
    row = np.zeros(1, e["file_findings"].dtype)[0]
    row["partition"], row["file"] = e["scan"]["partition"][0], e.name("0.txnindex")
    row["problem"], row["is_set"] = e.name("an entry too few"), 1
    e.insert("file_findings", 0, row)


def _leader_end(e: Edit) -> int:
    return e.pick(np.flatnonzero(e["ends"]["replica"] == -1))


@mutation("no-leader")
def _(e: Edit) -> None:
    e["ends"]["leader"][_leader_end(e)] = -1


@mutation("not-in-sync")
def _(e: Edit) -> None:
    e["ends"]["in_sync"][_leader_end(e)] = 2


@mutation("not-replicated")
def _(e: Edit) -> None:
    e["ends"]["log_end_offset"][_leader_end(e)] += 1


@mutation("undecided")
def _(e: Edit) -> None:
    rows = e["decisions"]
    row = int(np.flatnonzero(rows["transactional_id"] == rows["transactional_id"][-1])[-1])
    rows["state"][row], rows["timeout_ms"][row] = e.name("PrepareCommit"), 1
    e["ends"]["taken_ns"] += 10**13


@mutation("probe-failed")
def _(e: Edit) -> None:
    row = e.pick(range(len(e["probes"])))
    e["probes"]["outcome"][row] = OpOutcome.INFO
    e["probes"]["broker"][row] = e.pick([-1, 1])  # the probe of a whole cluster names no broker


@mutation("nothing-succeeded")
def _(e: Edit) -> None:
    e["transactions"]["outcome"] = OpOutcome.INFO
