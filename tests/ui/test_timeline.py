"""Test the time window, the axis and the curves of the timeline."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.proof.pages.axis import TICKS_MAX
from oncelog.ui import documents
from oncelog.ui.facts import ClusterEvent, ClusterSample
from oncelog.ui.pages.curves import throughput
from oncelog.ui.pages.frame import PageFrame
from oncelog.ui.pages.timeline import timeline_page
from oncelog.ui.window import MINUTE_MS, MINUTES, TimeWindow

from .known_facts import facts

NOW_MS = round(time.mktime((2026, 3, 4, 14, 30, 0, 0, 0, -1)) * 1000)
FRAME = PageFrame(address="/timeline", cluster_name="c", now_ms=NOW_MS, as_of_ms=NOW_MS)


def local(ms: float) -> str:
    return time.strftime("%m-%d %H:%M:%S", time.localtime(ms / 1000))


@pytest.mark.parametrize(
    ("query", "start", "end"),
    [
        ({"at": "14:03"}, "03-04 14:00:30", "03-04 14:05:30"),
        ({"at": "14:03:20", "minutes": "1"}, "03-04 14:02:50", "03-04 14:03:50"),
        ({"at": "23:50", "minutes": "2"}, "03-03 23:49:00", "03-03 23:51:00"),
        ({"at": "2026-01-31T14:03", "minutes": "60"}, "01-31 13:33:00", "01-31 14:33:00"),
        ({"minutes": "15"}, "03-04 14:15:00", "03-04 14:30:00"),
    ],
)
def test_timeline_window_for_a_clock_time_surrounds_its_last_occurrence(
    query: dict[str, str], start: str, end: str
) -> None:
    found = TimeWindow.asked(query, NOW_MS)
    assert found is not None
    assert (local(found.start_ms), local(found.end_ms)) == (start, end)


def test_timeline_window_without_a_time_is_none() -> None:
    assert TimeWindow.asked({"at": " ", "other": "1"}, NOW_MS) is None


@given(st.text(max_size=30), st.text(max_size=10))
def test_timeline_window_of_any_text_is_drawn_or_refused_with_a_message(
    at: str, minutes: str
) -> None:
    try:
        window = TimeWindow.asked({"at": at, "minutes": minutes}, NOW_MS)
    except ValueError as problem:
        assert " is " in str(problem) or " looks like " in str(problem)
    else:
        assert timeline_page(FRAME, documents.events(facts(), NOW_MS), NOW_MS, (), window)


@pytest.mark.parametrize("at", ["0001-01-01T00:00", "9999-12-31T23:59", "25:00"])
def test_timeline_window_beyond_the_calendar_is_refused(at: str) -> None:
    with pytest.raises(ValueError, match=r"^at "):
        TimeWindow.asked({"at": at}, NOW_MS)


def event(seconds_ago: int) -> ClusterEvent:
    words = f"topic t{seconds_ago} was created"
    return ClusterEvent(NOW_MS - seconds_ago * 1000, "topic", f"t{seconds_ago}", words, "/topics")


@pytest.mark.parametrize("minutes", MINUTES)
def test_timeline_of_a_window_has_its_events_and_a_few_ticks(minutes: int) -> None:
    window = TimeWindow(NOW_MS - minutes * MINUTE_MS, minutes)
    known = facts(events=tuple(event(ago) for ago in (7_200, minutes * 60 - 1, 3)))
    found = documents.events(known, NOW_MS, window=window)
    text = timeline_page(FRAME, found, NOW_MS, (), window)
    assert [each["subject"] for each in found["events"]] == ["t3", f"t{minutes * 60 - 1}"]
    assert 2 <= len(re.findall('class="mark tick"', text)) <= TICKS_MAX + 1
    places = [float(x) for x in re.findall(r'circle cx="([0-9.]+)"', text)]
    assert len(places) == 2 and all(156 <= x <= 954 for x in places)
    assert (">closer<" in text, ">wider<" in text) == (minutes != 1, minutes != 60)


def samples() -> list[ClusterSample]:
    told = ((0, 0), (10, 400), (30, 1_200), (30, 1_200))
    return [
        ClusterSample(at_ms, at * 10, 0, 0, None, at_ms - at_ms % 2, written, read, 4.5, 510.0)
        for at, (written, read) in enumerate(told)
        for at_ms in (NOW_MS - 8_000 + at * 2_000, NOW_MS - 7_999 + at * 2_000)
    ]


def test_throughput_curves_of_our_brokers_show_rates_and_request_times() -> None:
    written, read, produce, fetch = throughput(samples())
    assert [value for _, value in written.points] == [5.0, 10.0, 0.0]
    assert [value for _, value in read.points] == [200.0, 400.0, 0.0]
    assert (written.unit, read.unit, produce.highest, fetch.highest) == (
        "records/s", "bytes/s", 4.5, 510.0,
    )  # fmt: skip


def test_throughput_curve_of_another_kafka_shows_the_growth_of_its_end_offsets() -> None:
    told = [ClusterSample(NOW_MS + at * 2_000, at * 100, 0, 0) for at in range(3)]
    (written,) = throughput(told)
    assert (written.unit, [value for _, value in written.points]) == ("offsets/s", [50.0, 50.0])


def test_timeline_curves_have_only_samples_within_the_time_window() -> None:
    window = TimeWindow(NOW_MS - 5 * MINUTE_MS, 5)
    text = timeline_page(FRAME, documents.events(facts(), NOW_MS), NOW_MS, samples(), window)
    assert "at most 10 records/s" in text and text.count("<polyline") == 4
    early = TimeWindow(NOW_MS - 65 * MINUTE_MS, 60)
    text = timeline_page(FRAME, documents.events(facts(), NOW_MS), NOW_MS, samples(), early)
    assert "<polyline" not in text
