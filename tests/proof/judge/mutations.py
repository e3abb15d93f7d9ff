"""One falsification for each anomaly, with the effect that a broken cluster has on a history.

Each mutation takes an `Edit` of a legal history, and changes one random place. A mutation often
violates several checks. A lost record, for example, also makes its transaction incomplete. A test
therefore requires only that the anomaly with the mutation's name is found. Mutations of logs and
ends are in log_mutations.py, and `all_mutations` has both.
"""

import random
from collections.abc import Callable, Iterator

import numpy as np

from oncelog.proof.judge.history.schema import OpOutcome

from .edit import Edit, NoPlace
from .model_cluster import ModelCluster

MUTATIONS: dict[str, Callable[[Edit], None]] = {}
Mutation = Callable[[Edit], None]


def mutation(name: str) -> Callable[[Mutation], Mutation]:
    def register(function: Mutation) -> Mutation:
        MUTATIONS[name] = function
        return function

    return register


def all_mutations() -> dict[str, Mutation]:
    """Return the mutation for each anomaly by the anomaly's name."""
    from . import log_mutations

    assert log_mutations
    return MUTATIONS


def mutated(
    name: str, times: int, *, steps: int = 1_000, first_seed: int = 0
) -> Iterator[tuple[int, Edit]]:
    """Yield (seed, history) with the anomaly planted in each history.

    The histories are the first legal ones that have a place for the anomaly.
    """
    for seed in range(first_seed, first_seed + times * 20):
        edit = Edit(ModelCluster(seed, steps=steps).recorder, random.Random(seed))
        try:
            all_mutations()[name](edit)
        except NoPlace:
            continue
        yield seed, edit
        times -= 1
        if not times:
            return
    raise AssertionError(f"no more places for {name}")


@mutation("inconsistent-offsets")
def _(e: Edit) -> None:
    sends, rows = e["sends"], e.committed_sends()
    one = e.pick(rows)
    same = rows[(sends["partition"][rows] == sends["partition"][one]) & (rows != one)]
    sends["offset"][e.pick(same)] = sends["offset"][one]


@mutation("duplicate")
def _(e: Edit) -> None:
    row = e.pick(range(len(e["scan"])))
    same = e["scan"]["partition"] == e["scan"]["partition"][row]
    end = int(e["scan"]["offset"][same].max()) + 1
    e.insert("scan", int(np.flatnonzero(same)[-1]) + 1, e.copy("scan", row, offset=end))


@mutation("misplaced")
def _(e: Edit) -> None:
    rows = e.committed_sends()
    row = e.pick(rows)
    sends, value = e["sends"], e["sends"]["value"][row]
    other = e.pick(np.setdiff1d(sends["partition"][rows], [sends["partition"][row]]))
    sends["offset"][row] = -1
    e.remove("polls", np.flatnonzero(e["polls"]["value"] == value))
    e["scan"]["partition"][e["scan"]["value"] == value] = other
    e["scan"]["offset"][e["scan"]["value"] == value] += 10_000


@mutation("G1a")
def _(e: Edit) -> None:
    failed = np.isin(e["sends"]["transaction"], e.transactions(OpOutcome.FAIL))
    row = e.pick(np.flatnonzero(failed & (e["sends"]["offset"] >= 0)))
    read = e.pick(range(len(e["polls"])))
    fields = {name: e["sends"][name][row] for name in ("partition", "offset", "value")}
    e.insert("polls", read, e.copy("polls", read, **fields))


@mutation("phantom-read")
def _(e: Edit) -> None:
    e["scan"]["value"][e.pick(range(len(e["scan"])))] = 10**15


@mutation("lost-write")
def _(e: Edit) -> None:
    sends, scan, rows = e["sends"], e["scan"], e.committed_sends()
    last = {int(p): scan["offset"][scan["partition"] == p].max() for p in scan["partition"]}
    rows = [r for r in rows if sends["offset"][r] < last[int(sends["partition"][r])]]
    e.hide(int(sends["value"][e.pick(rows)]))


@mutation("unseen")
def _(e: Edit) -> None:
    e.hide(int(e["sends"]["value"][e.pick(e.committed_sends())]))


@mutation("lso-stuck")
def _(e: Edit) -> None:
    e["ends"]["last_stable_offset"][e.pick(np.flatnonzero(e["ends"]["replica"] == -1))] -= 1


def _neighbours(e: Edit, *, within: bool) -> list[tuple[int, int]]:
    """Return pairs of consecutive rows of one consumer session in a partition.

    With `within` both rows are from one poll, else from different polls.
    """
    polls, last, found = e["polls"], {}, []
    for row in range(len(polls)):
        if polls["transaction"][row] >= 0:
            continue
        key = tuple(int(polls[name][row]) for name in ("process", "session", "partition"))
        if key in last:
            same = polls["call"][row] == polls["call"][last[key]]
            if same == within:
                found.append((last[key], row))
        last[key] = row
    return found


def _skip(e: Edit, *, within: bool) -> None:
    # a, b, c follow one another: without b, c skips
    pairs = dict(_neighbours(e, within=within))
    e.remove("polls", [e.pick(b for b in pairs.values() if b in pairs)])


@mutation("poll-skip")
def _(e: Edit) -> None:
    _skip(e, within=False)


@mutation("int-poll-skip")
def _(e: Edit) -> None:
    _skip(e, within=True)


def _swap(e: Edit, *, within: bool) -> None:
    pairs = _neighbours(e, within=within)
    one, other = pairs[e.pick(range(len(pairs)))]
    for name in ("offset", "value"):
        column = e["polls"][name]
        column[one], column[other] = column[other], column[one]


@mutation("nonmonotonic-poll")
def _(e: Edit) -> None:
    _swap(e, within=False)


@mutation("int-nonmonotonic-poll")
def _(e: Edit) -> None:
    _swap(e, within=True)


def _swap_sends(e: Edit, *, within: bool) -> None:
    sends, last, found = e["sends"], {}, []
    for row in e.committed_sends():
        key = tuple(int(sends[name][row]) for name in ("process", "session", "partition"))
        if key in last and (sends["transaction"][row] >= 0) == within:
            same = sends["transaction"][row] == sends["transaction"][last[key]]
            if same or not within:
                found.append((last[key], row))
        last[key] = row
    one, other = found[e.pick(range(len(found)))]
    for name in ("offset", "value"):
        column = sends[name]
        column[one], column[other] = column[other], column[one]


@mutation("nonmonotonic-send")
def _(e: Edit) -> None:
    _swap_sends(e, within=False)


@mutation("int-nonmonotonic-send")
def _(e: Edit) -> None:
    _swap_sends(e, within=True)


@mutation("precommitted-read")
def _(e: Edit) -> None:
    writer = dict(zip(e["sends"]["value"], e["sends"]["transaction"], strict=True))
    rows = [r for r, v in enumerate(e["polls"]["value"]) if writer[v] >= 0]
    row = e.pick(rows)
    e["polls"]["transaction"][row] = writer[e["polls"]["value"][row]]


def _reads(e: Edit, reader: int, writer: int) -> None:
    """Add a poll in which transaction `reader` reads a value of transaction `writer`."""
    sends = e["sends"]
    row = int(np.flatnonzero((sends["transaction"] == writer) & (sends["offset"] >= 0))[0])
    fields = {name: sends[name][row] for name in ("partition", "offset", "value")}
    process = e["transactions"]["process"][e["transactions"]["transaction"] == reader][0]
    made = e.copy("polls", 0, transaction=reader, process=process, session=99, **fields)
    e.insert("polls", len(e["polls"]), made)


def _writers(e: Edit) -> list[int]:
    sends = e["sends"]
    known = sends["transaction"][sends["offset"] >= 0]
    return [int(t) for t in e.transactions(OpOutcome.OK) if t in known]


@mutation("G1c")
def _(e: Edit) -> None:
    one, other = e.rng.sample(_writers(e), 2)
    _reads(e, one, other)
    _reads(e, other, one)


@mutation("G1c-realtime")
def _(e: Edit) -> None:
    rows = {int(r["transaction"]): r for r in e["transactions"]}
    writers = _writers(e)
    pairs = [(a, b) for a in writers for b in writers if rows[a]["ended_ns"] < rows[b]["begun_ns"]]
    _reads(e, *pairs[e.pick(range(len(pairs)))])


@mutation("torn-transaction")
def _(e: Edit) -> None:
    sends, rows = e["sends"], e.committed_sends()
    owners, counts = np.unique(sends["transaction"][rows], return_counts=True)
    owner = e.pick(owners[(counts > 1) & (owners >= 0)])
    e.hide(int(sends["value"][e.pick(rows[sends["transaction"][rows] == owner])]))


def _owner_times(e: Edit) -> dict[int, tuple[int, int]]:
    """Return (transaction, time of its commit call) by value, for committed transactions."""
    asked = {
        int(r["transaction"]): int(r["commit_invoked_ns"])
        for r in e["transactions"]
        if r["outcome"] == OpOutcome.OK
    }
    return {
        int(r["value"]): (int(r["transaction"]), asked[int(r["transaction"])])
        for r in e["sends"]
        if int(r["transaction"]) in asked
    }


@mutation("dirty-read")
def _(e: Edit) -> None:
    owner = _owner_times(e)
    row = e.pick([r for r, v in enumerate(e["polls"]["value"]) if int(v) in owner])
    e["polls"]["returned_ns"][row] = owner[int(e["polls"]["value"][row])][1] - 1


@mutation("read-past-open")
def _(e: Edit) -> None:
    owner, sends = _owner_times(e), e["sends"]
    plain = {int(r["value"]): int(r["invoked_ns"]) for r in sends if r["transaction"] < 0}
    open_ones = [
        (int(r["partition"]), int(r["offset"]), owner[int(r["value"])][1])
        for r in sends
        if int(r["value"]) in owner and r["offset"] >= 0
    ]
    places = [
        (row, plain[int(r["value"])])
        for row, r in enumerate(e["polls"])
        if int(r["value"]) in plain
        and any(
            p == r["partition"] and o < r["offset"] and plain[int(r["value"])] < asked
            for p, o, asked in open_ones
        )
    ]
    row, invoked_ns = places[e.pick(range(len(places)))]
    e["polls"]["returned_ns"][row] = invoked_ns


@mutation("zombie-write")
def _(e: Edit) -> None:
    owner, sends = _owner_times(e), e["sends"]
    row = e.pick([r for r in e.committed_sends() if int(sends["value"][r]) in owner])
    number = owner[int(sends["value"][row])][0]
    transaction = e["transactions"][e["transactions"]["transaction"] == number][0]
    inits = np.flatnonzero(
        (e["initializations"]["process"] == transaction["process"])
        & (e["initializations"]["producer_id"] == transaction["producer_id"])
    )
    when = int(sends["invoked_ns"][row]) - 1
    made = e.copy("initializations", e.pick(inits), process=9_999, producer_epoch=30_000,
                  invoked_ns=when - 1, returned_ns=when)  # fmt: skip
    e.insert("initializations", len(e["initializations"]), made)


def _shown_derivations(e: Edit) -> np.ndarray:
    return np.flatnonzero(np.isin(e["derivations"]["value"], e["scan"]["value"]))


@mutation("input-lost")
def _(e: Edit) -> None:
    rows = _shown_derivations(e)
    if len(rows) < 2:  # a group that derives nothing is no read-process-write job
        raise NoPlace
    e.remove("derivations", [e.pick(rows)])


@mutation("input-doubled")
def _(e: Edit) -> None:
    rows = _shown_derivations(e)
    row = e.pick(rows)
    same = e["derivations"]["partition"][rows] == e["derivations"]["partition"][row]
    other = e.pick(rows[same & (rows != row)])
    e["derivations"]["offset"][other] = e["derivations"]["offset"][row]


@mutation("input-invisible")
def _(e: Edit) -> None:
    e["derivations"]["offset"][e.pick(_shown_derivations(e))] = 10_000


def _done_commits(e: Edit, least: int) -> np.ndarray:
    rows = e["offset_commits"]
    ok = np.isin(rows["transaction"], e.transactions(OpOutcome.OK))
    return np.flatnonzero(ok & (rows["from_offset"] >= least))


@mutation("offset-overlap")
def _(e: Edit) -> None:
    e["offset_commits"]["from_offset"][e.pick(_done_commits(e, 1))] = 0


@mutation("offset-gap")
def _(e: Edit) -> None:
    of_job = np.isin(e["committed"]["group"], e["offset_commits"]["group"])
    e["committed"]["offset"][e.pick(np.flatnonzero(of_job))] = 0


@mutation("output-order")
def _(e: Edit) -> None:
    sends = {int(r["value"]): (int(r["partition"]), int(r["offset"])) for r in e["sends"]}
    made = e["derivations"]
    rows = [r for r in _shown_derivations(e) if sends[int(made["value"][r])][1] >= 0]
    one = e.pick(rows)
    same = [
        r
        for r in rows
        if r != one
        and made["partition"][r] == made["partition"][one]
        and sends[int(made["value"][r])][0] == sends[int(made["value"][one])][0]
    ]
    other = e.pick(same)
    offsets = made["offset"]
    offsets[one], offsets[other] = offsets[other], offsets[one]


@mutation("commit-undone")
def _(e: Edit) -> None:
    rows = e["group_commits"]
    ok = rows["outcome"] == OpOutcome.OK
    ends = {(int(r["group"]), int(r["partition"])): i for i, r in enumerate(e["committed"])}
    last = {}
    for r in rows[ok]:
        key = int(r["group"]), int(r["partition"])
        last[key] = max(last.get(key, -1), int(r["generation"]))
    earlier = [
        i
        for i in np.flatnonzero(ok)
        if rows["generation"][i] < last[int(rows["group"][i]), int(rows["partition"][i])]
    ]
    one = rows[e.pick(earlier)]
    end = e["committed"][ends[int(one["group"]), int(one["partition"])]]
    later = rows[(rows["partition"] == one["partition"]) & (rows["generation"] > one["generation"])]
    if one["offset"] in later["offset"]:
        raise NoPlace
    end["offset"] = one["offset"]


@mutation("two-owners")
def _(e: Edit) -> None:
    row = e.pick(range(len(e["ownerships"])))
    e.insert("ownerships", row, e.copy("ownerships", row, owner=e.name("another")))


@mutation("held-twice")
def _(e: Edit) -> None:
    """Give a partition to another member while its owner still has it."""
    rows = e["tenures"]
    one = e.pick(np.flatnonzero(rows["confirmed_ns"] > rows["taken_ns"] + 1))
    other = e.pick(np.flatnonzero(rows["process"] != rows["process"][one]))
    twin = e.copy(
        "tenures", one, process=rows["process"][other], owner=rows["owner"][other],
        asked_ns=rows["taken_ns"][one], taken_ns=rows["taken_ns"][one] + 1,
        confirmed_ns=-1, ended_ns=-1,
    )  # fmt: skip
    e.insert("tenures", one + 1, twin)


@mutation("member-epoch-fell")
def _(e: Edit) -> None:
    rows = e["member_epochs"]
    later = e.pick(np.flatnonzero(rows["epoch"] > rows["epoch"].min()))
    before = rows["returned_ns"] < rows["invoked_ns"][later]
    if not before.any():
        raise NoPlace
    is_own = before & (rows["process"] == rows["process"][later])
    if rows["said"][later] != 0 and not is_own.any():
        raise NoPlace
    highest = rows["epoch"][is_own if rows["said"][later] != 0 else before].max()
    rows["epoch"][later] = highest - 1


@mutation("fenced-commit")
def _(e: Edit) -> None:
    """Accept a commit after another member has taken the partition."""
    rows, commits = e["tenures"], e["group_commits"]
    places = []
    for i in np.flatnonzero(commits["group"] == e.name("shared")):
        of_partition = rows["partition"] == commits["partition"][i]
        own = np.flatnonzero(of_partition & (rows["process"] == commits["process"][i]))
        begun = rows["taken_ns"][own]
        own = own[begun < commits["invoked_ns"][i]]
        if len(own):
            later = np.flatnonzero(of_partition & (rows["asked_ns"] >= rows["taken_ns"][own].max()))
            others = later[rows["process"][later] != commits["process"][i]]
            places += [(i, j) for j in others[:1]]
    commit, tenure = places[e.pick(range(len(places)))]
    again = rows["process"] == commits["process"][commit]
    if (again & (rows["taken_ns"] > rows["taken_ns"][tenure])).any():
        raise NoPlace
    commits["outcome"][commit] = OpOutcome.OK
    commits["invoked_ns"][commit] = rows["taken_ns"][tenure] + 1
    commits["returned_ns"][commit] = rows["taken_ns"][tenure] + 2
