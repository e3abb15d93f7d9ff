"""The judge: was every acknowledged record kept, exactly once, unchanged and in order?

Pure. It is given what the producer was told and what a reader saw afterwards, and knows nothing of
clusters or clocks. Records bear the row numbers 0, 1, 2, ... in the order in which they were handed
to one producer. The words:

  lost          acknowledged, and not there
  doubled       there more than once; every copy beyond the first counts
  out of order  in a partition, after a record that was handed over later
  displaced     acknowledged at one offset, found only at another
  altered       there, but not what was sent (or never sent at all)
  undelivered   the producer was told that it failed, or told nothing, and it is not there: no
                promise is broken, but the job is not done

Records that were not acknowledged may be there or not; both are legal.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

KINDS = ("lost", "doubled", "out of order", "displaced", "altered", "undelivered")
EXAMPLES_MAX = 5
NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """What the producer was told of a record; NO_OFFSET where it was not told (acks=0)."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of violation: how often, and the first few cases in words."""

    kind: str
    count: int
    examples: tuple[str, ...]


@dataclass(slots=True)
class Tally:
    """Counts one kind, keeps its first cases; for judges."""

    kind: str
    count: int = 0
    examples: list[str] = field(default_factory=list[str])

    def add(self, example: Callable[[], str]) -> None:
        self.count += 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(example())

    def finding(self) -> Finding:
        return Finding(self.kind, self.count, tuple(self.examples))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the judge found; `violations` holds only kinds that occurred."""

    handed_over: int
    acknowledged: int
    read: int
    distinct: int
    violations: tuple[Finding, ...]

    @property
    def is_exactly_once(self) -> bool:
        """Whether nothing at all is to be said against the run."""
        return not self.violations

    def count(self, kind: str) -> int:
        """How often a kind of violation occurred."""
        return sum(f.count for f in self.violations if f.kind == kind)


def judge(
    sent: Sequence[bytes],
    acknowledged: Mapping[int, Acknowledgement],
    read: Iterable[tuple[int, int, bytes]],
    row_of: Callable[[bytes], int],
) -> Verdict:
    """Judge a run.

    `sent[row]` is the value handed over as row; `acknowledged` maps rows to what the producer was
    told; `read` gives (partition, offset, value) in the order of each partition's offsets, as a
    reader saw them up to the end; `row_of` finds the row number in a value, negative for none.
    """
    lost, doubled, disordered = Tally("lost"), Tally("doubled"), Tally("out of order")
    displaced, altered, undelivered = Tally("displaced"), Tally("altered"), Tally("undelivered")
    place: dict[int, tuple[int, int]] = {}  # where a row's first copy stands
    at_promised_place: set[int] = set()
    highest: dict[int, int] = {}  # partition -> highest row seen so far
    total = 0
    for partition, offset, value in read:
        total += 1
        row = row_of(value)
        if not 0 <= row < len(sent) or sent[row] != value:
            altered.add(lambda p=partition, o=offset, v=value: f"{p}@{o}: {v[:40]!r}")
            continue
        promise = acknowledged.get(row)
        if promise is not None and (promise.partition, promise.offset) == (partition, offset):
            at_promised_place.add(row)
        if row in place:
            first = place[row]
            doubled.add(
                lambda r=row, f=first, p=partition, o=offset: f"row {r}: {f[0]}@{f[1]}, {p}@{o}"
            )
            continue
        place[row] = (partition, offset)
        before = highest.get(partition, -1)
        if row < before:
            disordered.add(
                lambda r=row, b=before, p=partition, o=offset: f"{p}@{o}: row {r} after row {b}"
            )
        else:
            highest[partition] = row
    for row, promise in acknowledged.items():
        if row not in place:
            lost.add(lambda r=row, a=promise: f"row {r}, acknowledged at {a.partition}@{a.offset}")
        elif promise.offset != NO_OFFSET and row not in at_promised_place:
            displaced.add(
                lambda r=row, a=promise: (
                    f"row {r}: promised {a.partition}@{a.offset}, found {place[r][0]}@{place[r][1]}"
                )
            )
    for row in range(len(sent)):
        if row not in acknowledged and row not in place:
            undelivered.add(lambda r=row: f"row {r}")
    tallies = (lost, doubled, disordered, displaced, altered, undelivered)
    return Verdict(
        handed_over=len(sent),
        acknowledged=len(acknowledged),
        read=total,
        distinct=len(place),
        violations=tuple(t.finding() for t in tallies if t.count),
    )


def compare_sums(
    expected: Mapping[Any, tuple[int, ...]],
    found: Mapping[Any, tuple[int, ...]],
) -> Finding | None:
    """The groups whose sums differ, as a finding; None when all are equal."""
    tally = Tally("wrong totals")
    for key in sorted(expected.keys() | found.keys()):
        if expected.get(key) != found.get(key):
            name = "/".join(map(str, key))
            tally.add(lambda k=key, n=name: f"{n}: {expected.get(k)} became {found.get(k)}")
    return tally.finding() if tally.count else None
