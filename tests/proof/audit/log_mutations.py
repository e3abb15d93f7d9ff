"""One falsification of the rows, or of the visible records, for each anomaly of the audit.

A falsification returns the partition and the offset of its anomaly if that is one place.
"""

from collections.abc import Callable
from dataclasses import replace

from .model_log import SEQUENCE_MAX, ModelLog, Place, Row

Spot = tuple[int, int]  # partition, offset
Mutation = Callable[[ModelLog], Spot | None]
MUTATIONS: dict[str, Mutation] = {}
# Further anomalies that a falsification may cause in the log, or for its readers.
BROUGHT_ALONG: dict[str, set[str]] = {
    "offset-disorder": {"sequence-repeated"},  # a batch twice has its sequences twice
    "offset-gap": {"phantom-read"},  # the missing record was shown
    "sequence-gap": {"sequence-repeated"},  # of the following batch
    "leader-epoch-fell": {"sequence-repeated"},  # within a batch: both have its sequence
    "plain-in-transaction": {"committed-hidden"},  # from an aborted transaction
    "marker-missing": {"committed-hidden", "aborted-visible"},  # the next marker decides
    # The missing marker leaves a hole where others wrote after it.
    "open-transaction": {"open-visible", "offset-gap"},
    "mixed-markers": {"committed-hidden", "aborted-visible"},
    "open-visible": {"open-transaction", "aborted-visible"},  # the reader was shown everything
}


def mutation(name: str) -> Callable[[Mutation], Mutation]:
    def register(function: Mutation) -> Mutation:
        MUTATIONS[name] = function
        return function

    return register


def is_data(place: Place) -> bool:
    return not place.row.is_control


def has_sequence(place: Place) -> bool:
    return place.row.sequence >= 0


def ends(place: Place) -> bool:
    """Return whether this row is a marker directly after the data of its transaction."""
    return place.row.is_control and place.before is not None and not place.before.is_control


def at(w: ModelLog, row: Row) -> tuple[str, int, int]:
    return (w.topic, row.partition, row.offset)


def spot(row: Row) -> Spot:
    return (row.partition, row.offset)


@mutation("offset-disorder")
def _(w: ModelLog) -> None:
    w.rows.append(replace(w.pick(is_data).row))


@mutation("offset-gap")
def _(w: ModelLog) -> None:
    place = w.pick(lambda p: p.row.producer_id < 0 and p.row not in (p.log[0], p.log[-1]))
    w.rows.remove(place.row)


@mutation("leader-epoch-fell")
def _(w: ModelLog) -> Spot:
    place = w.pick(lambda p: p.row is not p.log[0])
    place.row.leader_epoch = place.log[0].leader_epoch - 1
    return spot(place.row)


@mutation("zombie-append")
def _(w: ModelLog) -> Spot:
    place = w.pick(lambda p: p.row.producer_epoch > 0 and p.follows_in_epoch)
    for row in place.batch:
        row.producer_epoch -= 1
    return spot(place.row)


@mutation("sequence-gap")
def _(w: ModelLog) -> Spot:
    place = w.pick(lambda p: has_sequence(p) and p.follows_in_epoch)
    for row in place.batch:
        row.sequence = (row.sequence + 7) & SEQUENCE_MAX
    return spot(place.row)


@mutation("sequence-repeated")
def _(w: ModelLog) -> Spot:
    place = w.pick(lambda p: has_sequence(p) and not p.row.is_transactional
                   and p.row.producer_epoch == p.own[-1].producer_epoch)  # fmt: skip
    end = place.log[-1].offset + 1
    for number, row in enumerate(place.batch):
        w.rows.append(replace(row, offset=end + number, leader_epoch=99))
    return (place.row.partition, end)


@mutation("plain-in-transaction")
def _(w: ModelLog) -> Spot:
    place = w.pick(lambda p: p.row.is_transactional and is_data(p) and p.follows_in_epoch
                   and p.before is not None and not p.before.is_control)  # fmt: skip
    for row in place.batch:
        row.is_transactional = False
    return spot(place.row)


@mutation("marker-missing")
def _(w: ModelLog) -> None:
    place = w.pick(lambda p: ends(p) and p.before is not None and p.after is not None
                   and p.row.producer_epoch > p.before.producer_epoch
                   and not p.after.is_control)  # fmt: skip
    place.row.producer_id, place.row.producer_epoch = place.row.producer_id + 50, 0


@mutation("coordinator-epoch-fell")
def _(w: ModelLog) -> Spot:
    place = w.pick(lambda p: p.row.is_control and any(r.is_control for r in p.own[: p.at]))
    next(r for r in place.own if r.is_control).coordinator_epoch = 9
    place.row.coordinator_epoch = 0
    return spot(place.row)


@mutation("open-transaction")
def _(w: ModelLog) -> None:
    w.pick(lambda p: ends(p) and p.after is None).row.producer_id += 50


@mutation("mixed-markers")
def _(w: ModelLog) -> None:
    seen: dict[tuple[int, int], set[int]] = {}

    def is_wide(place: Place) -> bool:
        row, before = place.row, place.before
        if not ends(place) or before is None or before.producer_epoch >= row.producer_epoch:
            return False
        parts = seen.setdefault((row.producer_id, row.producer_epoch), set())
        parts.add(row.partition)
        return len(parts) > 1

    row = w.pick(is_wide).row
    row.control_type = "abort" if row.control_type == "commit" else "commit"


@mutation("aborted-visible")
def _(w: ModelLog) -> Spot:
    row = w.pick(lambda p: p.row.outcome == "aborted").row
    w.shown.append(at(w, row))
    return spot(row)


@mutation("committed-hidden")
def _(w: ModelLog) -> Spot:
    row = w.pick(lambda p: is_data(p) and p.row.outcome != "aborted").row
    w.shown.remove(at(w, row))
    return spot(row)


@mutation("open-visible")
def _(w: ModelLog) -> None:
    MUTATIONS["open-transaction"](w)
    w.shown = [at(w, row) for row in w.rows if not row.is_control]


@mutation("phantom-read")
def _(w: ModelLog) -> Spot:
    row = w.pick(lambda p: p.row.is_control).row
    w.shown.append(at(w, row))
    return spot(row)


@mutation("replica-divergence")
def _(w: ModelLog) -> None:
    place = w.pick(is_data, copy=2)
    if w.edge == "compacted":
        newest = {row.key: row for row in place.log if row.outcome != "aborted" and row.value}
        w.rng.choice(list(newest.values())).value = b"another"
    elif w.rng.random() < 0.5:
        place.row.batch_crc, place.row.value = place.row.batch_crc ^ 1, b"another"
    else:
        w.rows.remove(place.row)
