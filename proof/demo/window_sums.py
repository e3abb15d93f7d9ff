"""The judge of the Spark job's sums by origin, carrier and month, with one record for each change.

The file does no I/O. A record's key is ORIGIN/CARRIER/FIRST-DAY-OF-THE-MONTH, its value a JSON
object with flights, arrivals (of known delay), minutes of arrival delay, and miles. All records of
a key are in one partition, and each record counts more flights than the record before. A batch that
was written twice would therefore be visible. The last record must be the sum of all inputs.
"""

import json

from ..judge.analysis.findings import Findings
from .flights import CARRIER, Sums, added_up, csv_rows
from .output_judge import WRONG_SUMS, Inputs, Records

FIELDS = ("flights", "arrivals", "minutes", "miles")
ORIGIN = 12


def judge_window_sums(inputs: Inputs, records: Records, found: Findings) -> tuple[int, Sums]:
    """Check all records of sums. Return their number, and the last sum of each key."""
    last: Sums = {}
    home: dict[tuple[str | int, ...], int] = {}
    count = 0
    for partition, offset, key, value in records:
        count += 1
        here = f"{partition}@{offset}"
        try:
            group, sums = read_sum(key, value)
        except ValueError:
            found.add(WRONG_SUMS, f"{here}: {value[:60]!r}")
            continue
        before = last.get(group)
        if home.setdefault(group, partition) != partition:
            found.add(WRONG_SUMS, f"{here}: {_name(group)} is also in {home[group]}")
        elif before is not None and sums[0] <= before[0]:
            found.add(WRONG_SUMS, f"{here}: {_name(group)} {sums} after {before}")
        last[group] = sums
    values = (value for of_partition in inputs.values() for value in of_partition.values())
    added = added_up((value.decode().split(",")[1:] for value in values), ORIGIN, CARRIER)
    for group, sums in added.items():
        if last.get(group) != sums:
            ends = f"ends with {last.get(group)}, not {sums}"
            found.add(WRONG_SUMS, f"{_name(group)} {ends}")
    for group in last.keys() - added.keys():
        found.add(WRONG_SUMS, f"{_name(group)} is there, and no flight of it")
    return count, last


def read_sum(key: bytes, value: bytes) -> tuple[tuple[str, str, int], tuple[int, ...]]:
    """Parse a record of sums, or raise ValueError.

    Returns (origin, carrier, month), and the sums in the order of FIELDS.
    """
    origin, carrier, day = key.decode().split("/")
    found = json.loads(value)
    if not isinstance(found, dict) or set(found) != set(FIELDS) or not day.endswith("-01"):
        raise ValueError(f"{value[:60]!r} is no sum")
    return (origin, carrier, int(day[5:7])), tuple(int(found[name]) for name in FIELDS)


def sums_of_csv(rows: int | None = None) -> Sums:
    """Compute the sums directly from the CSV, without the code of the job."""
    return added_up(csv_rows(rows), ORIGIN, CARRIER)


def _name(group: tuple[str | int, ...]) -> str:
    return "/".join(map(str, group))
