"""Test that a report.json is read back as written, and other files are refused."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.proof.pages.run_page import run_file
from oncelog.proof.pages.run_report import ITEMS_MAX, FaultSpan, read_report

from .known_runs import hostile, violated

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)
PARTS = sorted(json.loads(violated().as_json()))


@pytest.mark.parametrize("report", [violated(), hostile()], ids=["plain", "hostile"])
def test_run_report_is_read_back_as_written(report) -> None:
    assert read_report(report.as_json()).as_json() == report.as_json()


@given(st.sampled_from(PARTS), JSON)
def test_run_report_with_an_arbitrary_part_is_shown_or_refused_with_a_message(
    part: str, value: Any
) -> None:
    text = json.dumps({**json.loads(violated().as_json()), part: value})
    try:
        report = read_report(text)
    except ValueError as problem:
        assert str(problem).startswith(("its ", "it is not "))
    else:
        assert run_file(report)


@given(st.data())
def test_run_report_with_an_arbitrary_item_is_shown_or_refused_with_a_message(
    data: st.DataObject,
) -> None:
    found = json.loads(violated().as_json())
    place: Any = found
    while True:  # down to a list or an object, one item of which becomes something else
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        inner = place[key]
        if not isinstance(inner, (list, dict)) or not inner or data.draw(st.booleans()):
            break
        place = inner
    place[key] = data.draw(JSON)
    try:
        report = read_report(json.dumps(found))
    except ValueError as problem:
        assert len(str(problem).splitlines()) == 1
    else:
        assert run_file(report)


@pytest.mark.parametrize("length", [0, 1, 40, 400, -2])
def test_run_report_that_is_truncated_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="it is not JSON"):
        read_report(violated().as_json()[:length])


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "9" * 10_000, "[]", "null", '{"format":2}', "\x00"]
)
def test_run_report_of_other_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="it is not"):
        read_report(text)


def test_run_report_writes_at_most_the_item_limit_and_a_file_with_more_is_refused() -> None:
    spans = [FaultSpan("node", at, at + 1, "kill") for at in range(ITEMS_MAX + 5)]
    long = replace(violated(), spans=spans)
    assert len(read_report(long.as_json()).spans) == ITEMS_MAX
    found = {**json.loads(violated().as_json()), "spans": spans}
    with pytest.raises(ValueError, match=r"its spans: it has 20,005 items"):
        read_report(json.dumps(found))
