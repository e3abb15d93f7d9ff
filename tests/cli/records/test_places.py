"""Test start and end positions in a topic, as the options of `consume` name them."""

from datetime import UTC, datetime

import pytest

from oncelog.cli.records.places import LogPlace, OutOfRange, parse_end, parse_start, start_of
from oncelog.deploy.cluster.failure import Failure

NOON_MS = round(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", LogPlace("earliest")),
        ("latest", LogPlace("latest")),
        ("17", LogPlace("offset", 17)),
        ("-5", LogPlace("last", 5)),
        ("2026-01-31T12:00:00+00:00", LogPlace("time", NOON_MS)),
        (f"@{NOON_MS}", LogPlace("time", NOON_MS)),
    ],
)
def test_consume_start_is_parsed_from_each_form(text: str, place: LogPlace) -> None:
    assert parse_start(text) == place


BEYOND = ("9223372036854775808", "@9223372036854775808", f"@{'9' * 5_000}", "9" * 5_000)


@pytest.mark.parametrize("text", ["", "soon", "--5", "-", "1.5", "@", "@soon", "²", "-²", *BEYOND])
def test_consume_start_of_an_unknown_form_is_refused(text: str) -> None:
    with pytest.raises(Failure, match="neither earliest"):
        parse_start(text)


def test_consume_end_is_parsed_as_an_offset_or_a_time_and_otherwise_refused() -> None:
    assert parse_end("17") == LogPlace("offset", 17)
    assert parse_end(f"@{NOON_MS}") == LogPlace("time", NOON_MS)
    for text in ("latest", "-5", ""):
        with pytest.raises(Failure, match="neither an offset nor a time"):
            parse_end(text)


@pytest.mark.parametrize(
    ("place", "at_time", "offset"),
    [
        (LogPlace("earliest"), None, 10),
        (LogPlace("latest"), None, 20),
        (LogPlace("offset", 10), None, 10),
        (LogPlace("offset", 20), None, 20),
        (LogPlace("last", 3), None, 17),
        (LogPlace("last", 99), None, 10),
        (LogPlace("last", 0), None, 20),
        (LogPlace("time", 5), 14, 14),
        (LogPlace("time", 5), -1, 20),
    ],
)
def test_consume_start_of_each_form_is_resolved_to_an_offset_of_the_log(
    place: LogPlace, at_time: int | None, offset: int
) -> None:
    assert start_of(place, 10, 20, at_time) == offset


@pytest.mark.parametrize("number", [9, 21, 999_999])
def test_consume_start_below_or_above_the_log_is_out_of_range(number: int) -> None:
    with pytest.raises(OutOfRange, match="offsets 10 to 19"):
        start_of(LogPlace("offset", number), 10, 20, None)


def test_consume_start_below_an_empty_log_is_out_of_range() -> None:
    with pytest.raises(OutOfRange, match="empty, and its next offset is 10"):
        start_of(LogPlace("offset", 0), 10, 10, None)
