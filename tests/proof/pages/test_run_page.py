"""Test that the page of a run is complete, escaped, bounded and self-contained."""

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from oncelog.proof.pages.axis import TICKS_MAX, ticks
from oncelog.proof.pages.run_page import ROWS_MAX, SPANS_MAX, run_file, run_view
from oncelog.proof.pages.run_report import FaultSpan, RunReport, RunTable

from .known_runs import KILL, hostile, violated


class Tags(HTMLParser):
    """The tags of a page, and the names and values of all attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.attributes = list[str](), list[tuple[str, str | None]]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def test_run_page_loads_and_runs_no_external_code() -> None:
    page = run_file(violated())
    found = Tags(page)
    assert not {"script", "link", "img", "iframe", "object"} & set(found.tags)
    assert {value[:1] for name, value in found.attributes if name == "href" and value} == {"#"}
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src &#x27;sha256-{digest}&#x27;" in page and "default-src" in page
    assert "url(" not in style and "@import" not in style


def test_run_page_has_verdict_story_timeline_faults_and_figures() -> None:
    page = run_view(violated(), "RUN")
    for words in (
        "■</span> broken</span>: <strong>AT LEAST ONCE: 1 doubled", "r-7, doubled", "3.250 s",
        KILL, "kill -9 of node 2", ">10 s</text>", "at most 30 records/s", "RF 3",
        "python invoices",
    ):  # fmt: skip
        assert words in page, words
    assert re.findall(r'href="#(\w+)">', page) == [
        "verdict", "story", "timeline", "faults", "figures", "tables",
    ]  # fmt: skip


def test_run_page_escapes_texts_of_a_run() -> None:
    plain, found = Tags(run_view(violated(), "r")), Tags(run_view(hostile(), "r"))
    assert found.tags == plain.tags
    assert [name for name, _ in found.attributes] == [name for name, _ in plain.attributes]
    for page in (run_file(hostile()), run_view(hostile(), hostile().verdict)):
        page.encode()
        assert not re.search("[\x00\u202e]", page) and page.count("</style>") <= 1


def test_run_page_figures_below_one_have_two_decimal_places() -> None:
    table = RunTable("Figures", ("p50 ms", "MB/s", "p99 ms"), [(0.284, 120.0, None)])
    page = run_view(replace(violated(), tables=[table]), "r")
    assert re.findall(r'data-label="(?:MB/s|p99 ms)" role="cell">([^<]+)', page) == ["120", "-"]
    assert '">0.28</th>' in page


def test_run_page_with_only_a_verdict_is_drawn() -> None:
    page = run_view(RunReport(command="oncelog bench txn", verdict="What it costs"), "r")
    assert "What it costs" in page and "<table" not in page and "<svg" not in page


def test_run_page_faults_beyond_the_limit_are_counted_and_not_shown() -> None:
    spans = [FaultSpan(f"row {n % 300}", n, n + 1, "kill") for n in range(20_000)]
    page = run_file(replace(violated(), spans=spans, seconds=20_000))
    assert f"and {20_000 - ROWS_MAX:,} more in report.json" in page
    assert page.count('class="span"') <= SPANS_MAX and len(page) < 1_000_000


def test_run_page_times_outside_the_run_are_drawn_at_its_edges() -> None:
    spans = [FaultSpan("a", -5, 1e9, "early"), FaultSpan("b", 3, 1, "backwards")]
    page = run_file(replace(violated(), spans=spans, marks=[], seconds=10.0))
    found = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="16"', page)
    places = [(float(x), float(width)) for x, width in found]
    assert places[0] == (156.0, 798.0) and places[1][1] == 3.0


@pytest.mark.parametrize("span_ms", [0, 1, 900, 9_900, 64_000, 3_600_000, 10**8, 10**12])
@pytest.mark.parametrize("start_ms", [0, 1_772_000_123_456])
def test_run_page_timeline_ticks_are_few_and_equally_spaced(span_ms: int, start_ms: int) -> None:
    found = ticks(start_ms, start_ms + span_ms)
    assert len(found) <= TICKS_MAX + 1
    assert len({b - a for a, b in pairwise(found)}) <= 1
    assert all(start_ms <= at_ms <= start_ms + span_ms for at_ms in found)
    assert span_ms < 2_000 or len(found) > 1
