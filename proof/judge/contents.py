"""Compares a topic's records with the expected records, by the key in each record.

The file does no I/O, and needs no history, cluster, clock or numpy. A record has a key, which is
its row among the records of one producer, or the input from which it was made. Keys ascend within a
partition. Records that were not acknowledged may be present or absent.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from .analysis.findings import Anomaly, Finding, Findings

NO_OFFSET = -1


LOST = Anomaly("lost", "contents", "an acknowledged record is missing")
DOUBLED = Anomaly(
    "doubled", "contents", "a record exists more than once, and each extra copy counts"
)
OUT_OF_ORDER = Anomaly(
    "out of order", "contents", "a record follows a record with a later key in its partition"
)
DISPLACED = Anomaly(
    "displaced", "contents", "a record is not at its acknowledged offset, but at another one"
)
ALTERED = Anomaly("altered", "contents", "a record differs from the sent one, or was never sent")
UNDELIVERED = Anomaly(
    "undelivered",
    "contents",
    "a send failed or got no answer, and the record is missing",
)
STREAM_ANOMALIES = (LOST, DOUBLED, OUT_OF_ORDER, DISPLACED, ALTERED, UNDELIVERED)

STUCK = Anomaly("stuck", "contents", "the last stable offset is below the high watermark")
LEFT_OPEN = Anomaly("left open", "contents", "a transaction has not ended")
OFFSETS_ASTRAY = Anomaly(
    "offsets astray", "contents", "the committed offset of the group is not the end of its input"
)
END_ANOMALIES = (STUCK, LEFT_OPEN, OFFSETS_ASTRAY)

WRONG_TOTALS = Anomaly(
    "wrong totals", "contents", "a sum differs from the same sum in an independent computation"
)

Records = Iterable[tuple[int, int, bytes]]
"""(partition, offset, value), in the order of each partition's offsets, as a reader saw them."""
Place = tuple[int, int]
"""(partition, offset)."""


Key = TypeVar("Key", int, Place)


class Acknowledgement(NamedTuple):
    """The acknowledged partition and offset of a record. The offset is NO_OFFSET for acks=0."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentsVerdict:
    """The counts and violations of a topic. `violations` has only anomalies that occurred."""

    read: int = 0
    distinct: int = 0
    violations: tuple[Finding, ...] = ()


def look_at(
    records: Records,
    key_of: Callable[[int, int, bytes], Key | None],
    name_of: Callable[[Key], str],
    found: Findings,
) -> tuple[int, dict[Key, Place]]:
    """Find altered, doubled and wrongly ordered records, and add them to `found`.

    Return the record count, and each key's place, which is that of its first record. `key_of`
    returns None for an altered record.
    """
    places: dict[Key, Place] = {}
    highest: dict[int, Key] = {}
    read = 0
    for partition, offset, value in records:
        read += 1
        key = key_of(partition, offset, value)
        if key is None:
            found.add(ALTERED, f"{partition}@{offset}: {value[:60]!r}")
        elif key in places:
            first = "@".join(map(str, places[key]))
            found.add(DOUBLED, f"{name_of(key)}: {first}, {partition}@{offset}")
        else:
            places[key] = (partition, offset)
            before = highest.setdefault(partition, key)
            if key < before:
                after = f"{name_of(key)} after {name_of(before)}"
                found.add(OUT_OF_ORDER, f"{partition}@{offset}: {after}")
            else:
                highest[partition] = key
    return read, places


def judge_stream(
    sent: Sequence[bytes],
    acknowledged: Mapping[int, Acknowledgement],
    records: Records,
    row_of: Callable[[bytes], int],
) -> ContentsVerdict:
    """Compare a topic with the records of one producer, where `sent[row]` is the value of a row.

    acknowledged: the producer's acknowledgements by row. row_of: returns the row number in a value,
    negative without one.
    """
    found = Findings()
    at_promised_place: set[int] = set()

    def key_of(partition: int, offset: int, value: bytes) -> int | None:
        row = row_of(value)
        if not 0 <= row < len(sent) or sent[row] != value:
            return None
        if acknowledged.get(row) == (partition, offset):
            at_promised_place.add(row)
        return row

    read, places = look_at(records, key_of, "row {}".format, found)
    for row, (partition, offset) in acknowledged.items():
        if row not in places:
            found.add(LOST, f"row {row}, acknowledged at {partition}@{offset}")
        elif offset != NO_OFFSET and row not in at_promised_place:
            stands = "@".join(map(str, places[row]))
            found.add(DISPLACED, f"row {row}: promised {partition}@{offset}, found {stands}")
    for row in range(len(sent)):
        if row not in acknowledged and row not in places:
            found.add(UNDELIVERED, f"row {row}")
    return ContentsVerdict(read=read, distinct=len(places), violations=found.of(STREAM_ANOMALIES))


class EndOfPartition(NamedTuple):
    """The last stable offset and the high watermark of a partition at the end of a run."""

    name: str  # TOPIC/PARTITION
    last_stable_offset: int
    high_watermark: int


def judge_end(
    ends: Iterable[EndOfPartition],
    open_transactions: Mapping[str, str],
    committed: Mapping[int, int],
    input_ends: Mapping[int, int],
) -> tuple[Finding, ...]:
    """Find low LSOs, open transactions, and committed offsets that are not the end of the input.

    open_transactions: the states of incomplete transactions by transactional id. committed,
    input_ends: by partition of the input.
    """
    found = Findings()
    for end in ends:
        if end.last_stable_offset != end.high_watermark:
            found.add(STUCK, f"{end.name}: LSO {end.last_stable_offset} of {end.high_watermark}")
    for name, state in open_transactions.items():
        found.add(LEFT_OPEN, f"{name} is {state}")
    for partition, end in input_ends.items():
        at = committed.get(partition)
        if at != end and (end or at):
            found.add(OFFSETS_ASTRAY, f"partition {partition}: {at}, and its end is {end}")
    return found.of(END_ANOMALIES)


def compare_sums(
    expected: Mapping[Any, tuple[int, ...]], totals: Mapping[Any, tuple[int, ...]]
) -> tuple[Finding, ...]:
    """Return a finding with each group for which the expected and actual sums differ."""
    found = Findings()
    for key in sorted(expected.keys() | totals.keys()):
        if expected.get(key) != totals.get(key):
            name = "/".join(map(str, key))
            found.add(WRONG_TOTALS, f"{name}: {expected.get(key)} became {totals.get(key)}")
    return found.of([WRONG_TOTALS])
