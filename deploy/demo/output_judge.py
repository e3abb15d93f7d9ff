"""The judge of the outputs: did every input count exactly once, and nothing that was not committed?

Pure. It is given the inputs as they stand in their log, the outputs as a reader of committed data
saw them up to the end, and what the workers told of their transactions. The words:

  missing        an input that no output was made of
  doubled        an input that several outputs were made of; every one beyond the first counts
  out of order   in its partition, after an output of a later input
  altered        not what is to be made of the input that it names, or that input is not there
  uncommitted    made in a transaction that was aborted, or that nobody asked to commit
  torn           of one transaction some outputs are there and some are not
  wrong sums     a running sum that differs from the sum of all inputs before it, or a last one
                 that is not there

Where nothing is missing, doubled or out of order, the outputs' input offsets tile the input
without gap or overlap. A worker that died after it had asked for the commit left a doubtful
transaction: all of it may be there, or nothing. Of an engine that does not tell of transactions
nothing is called uncommitted or torn: what a reader should not have seen is doubled, too.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from .enrichment import (
    Enriched,
    Flight,
    Group,
    Sum,
    added,
    read_sum_record,
    take_apart,
)
from .stream_judge import Finding, Tally

COMMITTED, DOUBTFUL = "committed", "committing"
KINDS = (
    "missing", "doubled", "out of order", "altered", "uncommitted", "torn", "wrong sums",
)  # fmt: skip
END_KINDS = ("stuck", "left open", "offsets astray")

Inputs = Mapping[int, Mapping[int, bytes]]
"""Partition -> offset -> value, in the order of the offsets."""


Records = Iterable[tuple[int, int, bytes, bytes]]
"""(partition, offset, key, value), in the order of each partition's offsets."""
Totals = dict[tuple[str | int, ...], tuple[int, ...]]
"""What a sum is of -> the sum."""
SumsJudge = Callable[[Inputs, Records, Tally], tuple[int, Totals]]
"""How many records of sums there are, and the last sums; tallies those that are wrong."""


class Told(Protocol):
    """What a worker told of a transaction."""

    records: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputVerdict:
    """What the judge found; `violations` holds only kinds that occurred."""

    inputs: int
    read: int
    distinct: int
    sums_read: int
    totals: Totals  # the last running sums of all partitions, added up
    violations: tuple[Finding, ...]

    def count(self, kind: str) -> int:
        """How often a kind of violation occurred."""
        return sum(f.count for f in self.violations if f.kind == kind)


def judge_outputs(
    inputs: Inputs,
    enriched: Iterable[tuple[int, int, bytes]],
    sums: Records,
    transactions: Mapping[str, Told] | None,
    airlines: Mapping[str, str],
    judge_sums: "SumsJudge | None" = None,
) -> OutputVerdict:
    """Judge a run.

    `enriched` gives (partition, offset, value) in the order of each partition's offsets;
    `transactions` is None when nobody told of any; `judge_sums` is for sums of another form than
    the workers'.
    """
    tallies = {kind: Tally(kind) for kind in KINDS}
    visible: Counter[str] = Counter()
    done: dict[int, set[int]] = {partition: set() for partition in inputs}
    highest: dict[int, int] = {}
    read = 0
    for partition, offset, value in enriched:
        read += 1
        here = f"{partition}@{offset}"
        made = _made_of(inputs, partition, value, airlines)
        if made is None:
            tallies["altered"].add(lambda h=here, v=value: f"{h}: {v[:60]!r}")
            continue
        visible[made.transaction] += 1
        told = None if transactions is None else transactions.get(made.transaction)
        if transactions is not None and (told is None or told.state not in (COMMITTED, DOUBTFUL)):
            state = "never announced" if told is None else told.state
            tallies["uncommitted"].add(
                lambda h=here, n=made.transaction, s=state: f"{h}: of {n}, which was {s}"
            )
        if made.offset in done[partition]:
            tallies["doubled"].add(
                lambda h=here, m=made: f"input {m.partition}@{m.offset} again at {h}"
            )
            continue
        done[partition].add(made.offset)
        if made.offset < highest.get(partition, -1):
            tallies["out of order"].add(
                lambda h=here, m=made, b=highest[partition]: f"{h}: input {m.offset} after {b}"
            )
        else:
            highest[partition] = made.offset
    for partition, values in inputs.items():
        for offset in values:
            if offset not in done[partition]:
                tallies["missing"].add(lambda p=partition, o=offset: f"input {p}@{o}")
    for name, told in (transactions or {}).items():
        seen = visible[name]
        allowed = {COMMITTED: (told.records,), DOUBTFUL: (0, told.records)}.get(told.state, (seen,))
        if seen not in allowed:
            tallies["torn"].add(
                lambda n=name, s=seen, t=told: f"{s} of {t.records} of {n}, {t.state}"
            )
    sums_read, totals = (judge_sums or judge_running_sums)(inputs, sums, tallies["wrong sums"])
    return OutputVerdict(
        inputs=sum(map(len, inputs.values())),
        read=read,
        distinct=sum(map(len, done.values())),
        sums_read=sums_read,
        totals=totals,
        violations=tuple(t.finding() for t in tallies.values() if t.count),
    )


def _made_of(
    inputs: Inputs, partition: int, value: bytes, airlines: Mapping[str, str]
) -> Enriched | None:
    """The output taken apart; None when it is not what should be made of the input it names."""
    try:
        made = take_apart(value)
        is_right = (
            made.partition == partition
            and inputs.get(partition, {}).get(made.offset) == made.flight
            and made.added == added(Flight.of(made.flight), airlines)
        )
    except ValueError:
        return None
    return made if is_right else None


def judge_running_sums(inputs: Inputs, records: Records, wrong: Tally) -> tuple[int, Totals]:
    """The workers' sums: add the inputs up once more, and compare at each record."""
    by_partition: dict[int, list[tuple[int, bytes, bytes]]] = {p: [] for p in inputs}
    count = 0
    for partition, offset, key, value in records:
        count += 1
        by_partition.setdefault(partition, []).append((offset, key, value))
    totals: Counter[tuple[Group, int]] = Counter()
    for partition, listed in by_partition.items():
        last = _judge_partition(partition, inputs.get(partition, {}), listed, wrong)
        for group, sums in last.items():
            for place, number in enumerate(sums):
                totals[group, place] += number
    groups = {group for group, _ in totals}
    return count, {g: (totals[g, 0], totals[g, 1], totals[g, 2]) for g in groups}


def _judge_partition(
    partition: int,
    inputs: Mapping[int, bytes],
    records: Sequence[tuple[int, bytes, bytes]],
    wrong: Tally,
) -> dict[Group, Sum]:
    """The last sum of each group, as the records have it."""
    so_far, last = dict[Group, Sum](), dict[Group, Sum]()
    upcoming = iter(inputs.items())
    behind = next(upcoming, None)
    until = 0
    for offset, key, value in records:
        here = f"{partition}@{offset}"
        try:
            record = read_sum_record(key, value)
        except ValueError:
            wrong.add(lambda h=here, v=value: f"{h}: {v[:40]!r}")
            continue
        while behind is not None and behind[0] < record.until:
            _add(so_far, behind[1])
            behind = next(upcoming, None)
        expected = so_far.get(record.group)
        if record.until < until or record.sums != expected:
            wrong.add(
                lambda h=here, r=record, e=expected, u=until: (
                    f"{h}: {r.group[0]}/{r.group[1]} until {r.until} is {r.sums}, "
                    + (f"after one until {u}" if r.until < u else f"not {e}")
                )
            )
        until = max(until, record.until)
        last[record.group] = record.sums
    while behind is not None:
        _add(so_far, behind[1])
        behind = next(upcoming, None)
    for group, sums in so_far.items():
        if last.get(group) != sums:
            wrong.add(
                lambda g=group, s=sums: (
                    f"{partition}: {g[0]}/{g[1]} ends with {last.get(g)}, not {s}"
                )
            )
    return last


def _add(sums: dict[Group, Sum], value: bytes) -> None:
    flight = Flight.of(value)
    group = (flight.carrier, flight.month)
    flights, miles, minutes = sums.get(group, (0, 0, 0))
    sums[group] = (flights + 1, miles + flight.miles, minutes + flight.minutes)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOfPartition:
    """What is left of a partition's transactions when all is over."""

    name: str  # TOPIC/PARTITION
    last_stable_offset: int
    high_watermark: int


def judge_end(
    ends: Iterable[EndOfPartition],
    open_transactions: Mapping[str, str],
    committed: Mapping[int, int],
    input_ends: Mapping[int, int],
) -> list[Finding]:
    """Is everything decided, readable, and are the group's offsets at the end of the input?

    open_transactions: transactional id -> state, of those that are not at their end. committed,
    input_ends: by partition of the input.
    """
    stuck, left_open, astray = map(Tally, END_KINDS)
    for end in ends:
        if end.last_stable_offset != end.high_watermark:
            stuck.add(lambda e=end: f"{e.name}: LSO {e.last_stable_offset} of {e.high_watermark}")
    for name, state in open_transactions.items():
        left_open.add(lambda n=name, s=state: f"{n} is {s}")
    for partition, end in input_ends.items():
        if committed.get(partition) != end and (end or committed.get(partition)):
            astray.add(
                lambda p=partition, e=end: f"partition {p}: {committed.get(p)}, and its end is {e}"
            )
    return [tally.finding() for tally in (stuck, left_open, astray) if tally.count]
