"""Enriches a flight and adds up the running sums of the demo's workers, without I/O.

An enriched flight is a line of five fields, separated by tabs:

  partition@offset   the position of its input: each input must be here exactly once
  transaction        the name that the worker gave to the transaction it was written in
  flight             the input's value, unchanged
  airline            the carrier's name
  mph                miles per hour in the air, NA if unknown

The running sums of a partition (flights, miles, minutes of arrival delay) are kept by carrier for
the current month. Flights come in order of months, so a month's sums are final when the next month
begins. The sums are small enough for the metadata of the committed offset. Therefore the offset and
the sums of all flights before that offset are one record, and cannot contradict each other.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .flights import ARRIVAL_DELAY, CARRIER, DISTANCE, MONTH

AIR_TIME = 14
NOT_KNOWN = "NA"
ROW_NUMBER = 1  # fields that stand before the CSV's own


class Flight(NamedTuple):
    """The fields of a flight that the sums need. Miles and minutes are 0 if unknown."""

    carrier: str
    month: int
    miles: int
    minutes: int
    mph: str

    @classmethod
    def of(cls, value: bytes) -> "Flight":
        """Parse a record's value, or raise ValueError for any value that is not a flight."""
        fields = value.decode().split(",")[ROW_NUMBER:]
        if len(fields) <= DISTANCE:
            raise ValueError(f"{value[:40]!r} is no flight")
        miles, in_the_air = int(fields[DISTANCE]), fields[AIR_TIME]
        delay = fields[ARRIVAL_DELAY]
        return cls(
            fields[CARRIER],
            int(fields[MONTH]),
            miles,
            int(delay) if delay and delay != NOT_KNOWN else 0,
            str(miles * 60 // int(in_the_air)) if in_the_air.isdigit() else NOT_KNOWN,
        )


class Enriched(NamedTuple):
    """The fields of an enriched flight."""

    partition: int
    offset: int
    transaction: str
    flight: bytes
    added: bytes  # airline and speed


def added(flight: Flight, airlines: Mapping[str, str]) -> bytes:
    """Return the airline and speed of a flight, as the last two fields of an enriched flight."""
    return f"{airlines.get(flight.carrier, flight.carrier)}\t{flight.mph}".encode()


def enrich(partition: int, offset: int, transaction: str, value: bytes, more: bytes) -> bytes:
    """Return the value of an enriched flight, whose last two fields (`added`) are `more`."""
    return b"%d@%d\t%s\t%s\t%s" % (partition, offset, transaction.encode(), value, more)


def take_apart(value: bytes) -> Enriched:
    """Parse the value of an enriched flight, or raise ValueError."""
    place, transaction, flight, more = value.split(b"\t", 3)
    partition, _, offset = place.partition(b"@")
    return Enriched(int(partition), int(offset), transaction.decode(), flight, more)


Group = tuple[str, int]
"""(carrier, month)."""
Sum = tuple[int, int, int]
"""Flights, miles, minutes of arrival delay."""


@dataclass(slots=True)
class RunningSums:
    """The sums of one partition for each carrier in the current month."""

    month: int = 0
    by_carrier: dict[str, Sum] = field(default_factory=dict[str, Sum])

    def add(self, flight: Flight) -> tuple[Group, Sum]:
        """Add a flight to the sums.

        Return its group (carrier and month) and the group's new sum.
        """
        if flight.month != self.month:
            self.month, self.by_carrier = flight.month, {}
        flights, miles, minutes = self.by_carrier.get(flight.carrier, (0, 0, 0))
        sums = (flights + 1, miles + flight.miles, minutes + flight.minutes)
        self.by_carrier[flight.carrier] = sums
        return (flight.carrier, flight.month), sums

    def to_text(self) -> str:
        """Return the sums as text for the metadata of a committed offset, some 400 characters."""
        return json.dumps([self.month, self.by_carrier], separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str | None) -> "RunningSums":
        """Parse the metadata of a committed offset. Empty metadata gives no sums."""
        if not text:
            return cls()
        month, by_carrier = json.loads(text)
        return cls(month, {carrier: tuple(sums) for carrier, sums in by_carrier.items()})


class SumRecord(NamedTuple):
    """A parsed record of running sums. It has the sum of a group over all inputs below `until`."""

    group: Group
    until: int
    sums: Sum


def sum_record(group: Group, until: int, sums: Sum) -> tuple[bytes, bytes]:
    """Return key and value of a record of running sums.

    The key is carrier/month. The value is `until` and the sum of all inputs below it.
    """
    return f"{group[0]}/{group[1]}".encode(), b"%d,%d,%d,%d" % (until, *sums)


def read_sum_record(key: bytes, value: bytes) -> SumRecord:
    """Parse a record of running sums. Raises ValueError if it is malformed."""
    carrier, _, month = key.decode().partition("/")
    until, flights, miles, minutes = map(int, value.split(b","))
    return SumRecord((carrier, int(month)), until, (flights, miles, minutes))
