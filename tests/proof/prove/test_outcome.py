"""Test how a failing pytest test shows the outcome of a run."""

from collections.abc import Sequence
from xml.etree import ElementTree

import pytest

from oncelog.proof.pages.run_page import run_file
from oncelog.proof.prove.diagnosis.catalogue import CATALOGUE, ApplicationFinding
from oncelog.proof.prove.facts import Struck, Wrote
from oncelog.proof.prove.judgement import Judgement, verdict_of
from oncelog.proof.prove.outcome import REPR_MAX, ProveOutcome
from oncelog.proof.prove.page import junit_of, report_of
from oncelog.proof.prove.settings import ProveSettings
from oncelog.proof.prove.story import Line
from oncelog.proof.pytest_plugin.plugin import _outcomes

FAULT = "FAULT kill -9 of instance-1 before its OffsetCommit"
STORY: list[Line] = [(1.0, "instance-1", "fetched it (in/0@7)"), (2.0, "instance-1", FAULT)]


def outcome(story: Sequence[Line] = STORY, **judged: object) -> ProveOutcome:
    judgement = Judgement(inputs=3, **{"doubled": {"r-7": 1}, **judged})  # type: ignore[arg-type]
    return ProveOutcome(
        settings=ProveSettings(command=("true",), seed=41), judgement=judgement, struck=(),
        verdict=verdict_of(judgement, 1), story_of="r-7, doubled", story=story,
    )  # fmt: skip


def test_outcome_repr_has_verdict_seed_and_faults() -> None:
    assert repr(outcome()) == (
        "<AT LEAST ONCE: 1 doubled; seed 41; r-7, doubled: kill -9 of instance-1 before its "
        "OffsetCommit>"
    )
    assert len(repr(outcome(story=STORY * 20))) <= REPR_MAX + 2


def test_outcome_exactly_once_names_the_planned_faults_that_met_no_work() -> None:
    found = outcome(doubled={})
    found.sure = ["stall@leader", "slow@Produce", "slow@Produce", "hold@Produce", "error@Produce"]
    found.struck = [
        Struck(1.0, "instance-1", "slow@Produce", "", met=1),
        Struck(2.0, "instance-1", "slow@Produce", "", is_made=False),
        Struck(3.0, "", "stall@leader", "", is_made=False),
        Struck(4.0, "instance-1", "hold@Produce", "", met=0),
    ]
    named = "not tested: error@Produce, hold@Produce, stall@leader (they had to be made"
    assert named in str(found) and found.as_fields()["untested"] == found.untested
    found.sure = ["slow@Produce"]
    assert "not tested" not in str(found)


def test_outcome_in_a_failed_assertion_is_shown_completely() -> None:
    found = outcome()
    with pytest.raises(AssertionError, match="AT LEAST ONCE: 1 doubled; seed 41") as failed:
        assert found.is_exactly_once
    ((title, text),) = _outcomes(failed)
    assert title == "oncelog prove" and text == str(found) and "fetched it (in/0@7)" in text


def test_junit_of_an_outcome_is_one_test_that_passes_only_where_something_is_proved() -> None:
    kinds: dict[str, list[str]] = {}
    for name, doubled in (("violated", {"r-7": 1}), ("proved", {}), ("stood", {})):
        found = outcome(doubled=doubled)
        if name == "stood":
            found.verdict = verdict_of(found.judgement, 0)
        (case,) = ElementTree.fromstring(junit_of(found))
        kinds[name] = [each.tag for each in case]
        assert case.get("name") == "true, seed 41"
        if name == "violated":
            assert case[0].get("message") == "AT LEAST ONCE: 1 doubled"
            assert "fetched it (in/0@7)" in str(case[0].text)
    assert kinds == {"violated": ["failure"], "proved": [], "stood": ["error"]}


def test_failed_test_with_a_lazy_local_does_not_evaluate_the_local() -> None:
    class Lazy:
        """A lazy object like Django's SimpleLazyObject, or Flask's request outside a request."""

        @property
        def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
            raise RuntimeError("working outside of request context")

    lazy, found = Lazy(), outcome()
    with pytest.raises(AssertionError) as failed:
        assert found.is_exactly_once and lazy
    assert [title for title, _ in _outcomes(failed)] == ["oncelog prove"]


def test_outcome_of_an_application_not_at_rest_is_marked_and_counts_pending_inputs() -> None:
    found = outcome(pending=["a", "b"])
    assert found.as_fields()["rest"] is True
    found.rest = False
    assert found.as_fields()["rest"] is False
    assert "not through: 2 of 3 inputs" in found.lines()


def test_outcome_report_has_story_findings_and_a_time_axis() -> None:
    found = outcome()
    kind = CATALOGUE["commit-before-produce"]
    found.findings = [ApplicationFinding(kind, "instance-1", "t", "EndTxn was sent", 3.0)]
    found.facts = [Wrote(at, "instance-1", "", "out", 0, 1, 2, 7, 0, -1) for at in (1.0, 65.0)]
    found.struck = [Struck(2.0, "instance-1", "slow@EndTxn", "late", 1, until_s=14.0)]
    report = report_of(found)
    assert (report.state, report.verdict) == ("bad", found.verdict.line)
    assert report.spans == [("instance-1", 2.0, 14.0, "late")]
    assert [mark.at_s for mark in report.marks] == [1.0, 65.0] and report.seconds == 65
    page = run_file(report)
    assert kind.remedy in page and "EndTxn was sent" in page and kind.title in page
    assert "fetched it (in/0@7)" in page and f"■ </span>{FAULT}" in page
    assert ">0 s</text>" in page and ">60 s</text>" in page and ">10 s</text>" in page


def test_outcome_report_with_many_facts_has_only_as_many_marks_as_can_be_seen() -> None:
    found = outcome()
    times = [n / 1000 for n in range(10_000)]
    found.facts = [Wrote(at, "instance-1", "", "out", 0, 1, 2, 7, 0, -1) for at in times]
    assert 700 < len(report_of(found).marks) <= 801
