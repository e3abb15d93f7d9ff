"""The judge of an engine's outputs, by which every input must have exactly one output.

No uncommitted record may be visible. The file does no I/O. The judge gets the inputs from their
log, the outputs as a read_committed consumer saw them up to the end, and the transactions that the
workers reported. If no input is missing, doubled or out of order, the outputs' input offsets cover
the input without gap or overlap. If a worker died after it had requested the commit, the outcome of
its transaction is unknown, and all or none of it may be visible. For an engine that reports no
transactions, the anomalies `uncommitted` and `torn` are not searched for. A wrongly visible record
is then reported as doubled.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ..judge import contents
from ..judge.analysis.findings import Anomaly, Findings
from ..judge.contents import ContentsVerdict, Place
from .enrichment import Enriched, Flight, Group, Sum, added, read_sum_record, take_apart
from .flights import Sums

COMMITTED, DOUBTFUL = "committed", "committing"
MISSING = Anomaly("missing", "demo", "an input has no output")
UNCOMMITTED = Anomaly(
    "uncommitted",
    "demo",
    "an output is from a transaction that was aborted, or that never requested a commit",
)
TORN = Anomaly("torn", "demo", "only some outputs of a transaction are visible")
WRONG_SUMS = Anomaly(
    "wrong sums",
    "demo",
    "a running sum differs from the sum of the inputs before it, or the last sum is missing",
)
OUTPUT_ANOMALIES = (
    MISSING,
    contents.DOUBLED,
    contents.OUT_OF_ORDER,
    contents.ALTERED,
    UNCOMMITTED,
    TORN,
    WRONG_SUMS,
)

Inputs = Mapping[int, Mapping[int, bytes]]
"""Partition -> offset -> value, in the order of the offsets."""
Records = Iterable[tuple[int, int, bytes, bytes]]
"""(partition, offset, key, value), in the order of each partition's offsets."""
SumsJudge = Callable[[Inputs, Records, Findings], tuple[int, Sums]]
"""How many records of sums there are, and the last sums; adds WRONG_SUMS."""


class TransactionOutcome(Protocol):
    """The name and state of a transaction, as a worker reported them."""

    records: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputVerdict(ContentsVerdict):
    """The verdict on the outputs of an engine.

    totals: the last running sums, added up over all partitions.
    """

    sums_read: int = 0
    totals: Sums = field(default_factory=Sums)


def judge_outputs(
    inputs: Inputs,
    enriched: contents.Records,
    sums: Records,
    transactions: Mapping[str, TransactionOutcome] | None,
    airlines: Mapping[str, str],
    judge_sums: "SumsJudge | None" = None,
) -> OutputVerdict:
    """Compare the outputs of a run with its inputs, and return the verdict.

    transactions: None for an engine that reports no transactions. judge_sums: a function for sums
    of another form than the workers'.
    """
    found = Findings()
    visible: Counter[str] = Counter()

    def input_of(partition: int, offset: int, value: bytes) -> Place | None:
        made = _made_of(inputs, partition, value, airlines)
        if made is None:
            return None
        visible[made.transaction] += 1
        told = None if transactions is None else transactions.get(made.transaction)
        if transactions is not None and (told is None or told.state not in (COMMITTED, DOUBTFUL)):
            state = "never announced" if told is None else told.state
            where = f"{partition}@{offset}"
            found.add(UNCOMMITTED, f"{where}: of {made.transaction}, which was {state}")
        return made.partition, made.offset

    read, places = contents.look_at(enriched, input_of, lambda at: "input {}@{}".format(*at), found)
    for partition, values in inputs.items():
        for offset in values:
            if (partition, offset) not in places:
                found.add(MISSING, f"input {partition}@{offset}")
    for name, told in (transactions or {}).items():
        seen = visible[name]
        allowed = {COMMITTED: (told.records,), DOUBTFUL: (0, told.records)}.get(told.state, (seen,))
        if seen not in allowed:
            found.add(TORN, f"{seen} of {told.records} of {name}, {told.state}")
    sums_read, totals = (judge_sums or judge_running_sums)(inputs, sums, found)
    return OutputVerdict(
        read=read,
        distinct=len(places),
        sums_read=sums_read,
        totals=totals,
        violations=found.of(OUTPUT_ANOMALIES),
    )


def _made_of(
    inputs: Inputs, partition: int, value: bytes, airlines: Mapping[str, str]
) -> Enriched | None:
    """Return the parsed output, or None if its fields do not fit the input that it names."""
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


def judge_running_sums(inputs: Inputs, records: Records, found: Findings) -> tuple[int, Sums]:
    """Check each record of running sums against sums that are added up again from the inputs.

    Returns the number of records, and the last sums. Violations go to `found`.
    """
    by_partition: dict[int, list[tuple[int, bytes, bytes]]] = {p: [] for p in inputs}
    count = 0
    for partition, offset, key, value in records:
        count += 1
        by_partition.setdefault(partition, []).append((offset, key, value))
    totals: dict[Group, Sum] = {}
    for partition, listed in by_partition.items():
        for group, sums in _judge_partition(
            partition, inputs.get(partition, {}), listed, found
        ).items():
            totals[group] = _added(totals.get(group), sums)
    return count, {**totals}


def _judge_partition(
    partition: int,
    inputs: Mapping[int, bytes],
    records: Iterable[tuple[int, bytes, bytes]],
    found: Findings,
) -> dict[Group, Sum]:
    """Check the running sums of one partition, and return the last recorded sum of each group."""
    so_far, last = dict[Group, Sum](), dict[Group, Sum]()
    upcoming = deque(inputs.items())

    def count_up_to(until: float) -> None:
        while upcoming and upcoming[0][0] < until:
            flight = Flight.of(upcoming.popleft()[1])
            group = (flight.carrier, flight.month)
            so_far[group] = _added(so_far.get(group), (1, flight.miles, flight.minutes))

    until = 0
    for offset, key, value in records:
        here = f"{partition}@{offset}"
        try:
            record = read_sum_record(key, value)
        except ValueError:
            found.add(WRONG_SUMS, f"{here}: {value[:40]!r}")
            continue
        count_up_to(record.until)
        expected = so_far.get(record.group)
        if record.until < until or record.sums != expected:
            why = f"after one until {until}" if record.until < until else f"not {expected}"
            what = f"{record.group[0]}/{record.group[1]} until {record.until} is {record.sums}"
            found.add(WRONG_SUMS, f"{here}: {what}, {why}")
        until = max(until, record.until)
        last[record.group] = record.sums
    count_up_to(float("inf"))
    for group, sums in so_far.items():
        if last.get(group) != sums:
            ends = f"ends with {last.get(group)}, not {sums}"
            found.add(WRONG_SUMS, f"{partition}: {group[0]}/{group[1]} {ends}")
    return last


def _added(one: Sum | None, other: Sum) -> Sum:
    flights, miles, minutes = one or (0, 0, 0)
    return flights + other[0], miles + other[1], minutes + other[2]
