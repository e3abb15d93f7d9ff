"""Offsets in the forms that users type: earliest, latest, 17, -5 (from the end), or a time.

The file does no I/O. It computes an offset in a partition from the log's start and end offset, and
for a time from the offset that the cluster returned.
"""

from datetime import datetime
from typing import Literal, NamedTuple

from ...deploy.cluster.failure import Failure

TIMES = "a time (2026-01-31T12:00, 2026-01-31T12:00:00+01:00, or @ and milliseconds)"


class LogPlace(NamedTuple):
    """A parsed --offset or --until, which gives one offset in each partition.

    number: the offset (kind "offset"), the distance from the end ("last"), or the wall-clock time
    in ms ("time").
    """

    kind: Literal["earliest", "latest", "offset", "last", "time"]
    number: int = 0


class OutOfRange(Exception):
    """The error of an offset that a log does not have."""


def time_ms(text: str) -> int | None:
    """Return the wall-clock time of an ISO date, or of @ and milliseconds, or None."""
    if text.startswith("@"):
        return int(text[1:]) if _is_number(text[1:]) else None
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def parse_start(text: str) -> LogPlace:
    """Parse --offset, or raise Failure with the choices if it is invalid."""
    if text == "earliest":
        return LogPlace("earliest")
    if text == "latest":
        return LogPlace("latest")
    if text.startswith("-") and _is_number(text[1:]):
        return LogPlace("last", int(text[1:]))
    found = _offset_or_time(text)
    if found is None:
        raise Failure(
            f"--offset {text} is neither earliest, nor latest, nor an offset, nor -N (the last "
            f"N), nor {TIMES}.",
            exit_code=2,
        )
    return found


def parse_end(text: str) -> LogPlace:
    """Parse --until, or raise Failure with the choices if it is invalid."""
    found = _offset_or_time(text)
    if found is None:
        raise Failure(f"--until {text} is neither an offset nor {TIMES}.", exit_code=2)
    return found


def start_of(place: LogPlace, start: int, end: int, at_time: int | None) -> int:
    """Return the first offset to read in a log with offsets from `start` up to `end`.

    `end` is the offset of the next record, and reading may start there. at_time: the offset of the
    first record at or after the place's time, negative if there is no such record. Raises
    OutOfRange for an offset below `start` or above `end`.
    """
    match place.kind:
        case "earliest":
            return start
        case "latest":
            return end
        case "last":
            return max(start, end - place.number)
        case "time":
            return end if at_time is None or at_time < 0 else at_time
    if not start <= place.number <= end:
        raise OutOfRange(_range(start, end))
    return place.number


def _range(start: int, end: int) -> str:
    if start == end:
        return f"it is empty, and its next offset is {end}"
    return f"it has offsets {start} to {end - 1}"


def _offset_or_time(text: str) -> LogPlace | None:
    if _is_number(text):
        return LogPlace("offset", int(text))
    found = time_ms(text)
    return None if found is None else LogPlace("time", found)


def _is_number(text: str) -> bool:
    """Return whether a text is a non-negative decimal number below 2^63."""
    return text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 2**63
