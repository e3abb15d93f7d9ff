"""Test when a run keeps, breaks or does not prove a promise, and when the verdict is `broken`."""

from dataclasses import replace
from typing import Any

import pytest

from oncelog.proof.certify.recipe import RECIPES, read_recipe
from oncelog.proof.certify.verdict import (
    BROKEN,
    KEPT,
    NOTHING,
    OURS,
    PEER,
    SEEN,
    CertifiedRun,
    certified_run,
    keeps,
    runs_in,
    seed_words,
    tally,
    verdict_fields,
    verdict_on,
)

RECIPE = read_recipe(RECIPES / "oncelog-transactional")
NONE = {"doubled": 0, "lost": 0, "stray": 0, "aborted": 0, "wrong": 0, "pending": 0}


def run(seed: int = 1, is_kept: bool | None = True, cluster: str = OURS) -> CertifiedRun:
    return CertifiedRun(
        seed=seed, cluster=cluster, on="2026-11-29", fault_seconds=20, is_kept=is_kept,
        verdict="EXACTLY ONCE", why="10 inputs",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("promise", "found", "verdict", "is_kept"),
    [
        ("exactly once", {}, "EXACTLY ONCE", True),
        ("exactly once", {"doubled": 3}, "AT LEAST ONCE", False),
        ("exactly once", {"lost": 3}, "AT MOST ONCE", False),
        ("exactly once", {"aborted": 1}, "NEITHER", False),
        ("exactly once", {}, "PROVES NOTHING", None),
        ("at least once", {"doubled": 3}, "AT LEAST ONCE", True),
        ("at least once", {}, "EXACTLY ONCE", True),
        ("at least once", {"doubled": 3, "lost": 1}, "NEITHER", False),
        ("at least once", {"doubled": 3, "pending": 1}, "AT LEAST ONCE", None),
        ("at most once", {"lost": 3}, "AT MOST ONCE", True),
        ("at most once", {"doubled": 1}, "AT LEAST ONCE", False),
    ],
)
def test_certify_run_keeps_its_promise_only_without_a_violation(
    promise, found, verdict, is_kept
) -> None:
    assert keeps(promise, verdict, {**NONE, **found}, has_rested=True) is is_kept


def test_certify_run_of_a_busy_program_with_duplicates_proves_nothing_about_at_least_once() -> None:
    doubled = {**NONE, "doubled": 3}
    assert keeps("at least once", "AT LEAST ONCE", doubled, has_rested=False) is None
    assert keeps("exactly once", "AT LEAST ONCE", doubled, has_rested=False) is False


def test_certify_run_with_missing_outputs_of_a_busy_program_proves_nothing() -> None:
    lost = {**NONE, "lost": 3}
    assert keeps("at least once", "AT MOST ONCE", lost, has_rested=False) is None
    assert keeps("exactly once", "AT MOST ONCE", lost, has_rested=False) is None
    assert keeps("exactly once", "NEITHER", {**lost, "doubled": 1}, has_rested=False) is False


@pytest.mark.parametrize(
    ("runs", "second_reading", "word"),
    [
        ([], "", NOTHING),
        ([run(1), run(2)], "", KEPT),
        ([run(1), run(2, None)], "", NOTHING),
        ([run(1, False), run(2, False)], "2026-11-29", SEEN),
        ([run(1, False), run(1, False, PEER)], "2026-11-29", SEEN),
        ([run(1, False), run(2, False, PEER)], "2026-11-29", SEEN),
        ([run(1, False), run(2, False), run(1, False, PEER)], "2026-11-29", SEEN),
        ([run(1, False), run(1, False, PEER), run(2, False, PEER)], "2026-11-29", SEEN),
        ([run(s, False, at) for s in (1, 2) for at in (OURS, PEER)], "2026-11-29", BROKEN),
        ([run(s, False, at) for s in (1, 2) for at in (OURS, PEER)], "", SEEN),
        ([run(1, False), run(2, False, "Kafka, metadata.version 30")], "2026-11-29", SEEN),
    ],
)
def test_certify_verdict_broken_requires_two_seeds_both_clusters_and_a_second_reader(
    runs, second_reading, word
):
    assert verdict_on(runs, second_reading) == word


def outcome(**found: Any) -> dict[str, Any]:
    return {
        "verdict": "AT LEAST ONCE", "why": "1 doubled\n  instance-1 | its last words",
        "rest": True, "apis": [], "inputs": 9, "outputs": 10,
        "doubled": {"a": 1}, "lost": {}, "pending": 0, "stray": [], "aborted": {}, "wrong": [],
        "seed": 7, "story_of": "a, doubled", "story": ["  1.0 s  FAULT kill -9"] * 100,
        "faults": [{"name": "cut", "met": 2, "is_made": True},
                   {"name": "stop", "met": 0, "is_made": True},
                   {"name": "add", "met": 0, "is_made": False}],
        "findings": [{"name": "no-idempotence", "weight": "wrong"}] * 2, "seconds": 61.2, **found,
    }  # fmt: skip


def test_certify_run_stores_the_events_of_a_doubled_record_only_if_the_promise_is_broken() -> None:
    found = {"cluster": OURS, "on": "2026-11-29", "fault_seconds": 20.0}
    broken = certified_run("exactly once", outcome(), **found)
    assert broken.why == "1 doubled"  # the message of a process may name the machine
    assert broken.is_kept is False and broken.counts["doubled"] == 1
    assert broken.faults == ["cut", "stop"] and broken.met == 1
    assert broken.findings == ["no-idempotence (wrong)"] and len(broken.story) == 60
    lost = certified_run("at least once", outcome(lost={"b": 1}), **found)
    assert lost.is_kept is False and lost.story == ()  # which is of a doubled record
    kept = certified_run("at least once", outcome(), **found)
    assert kept.is_kept is True and kept.story == ()


def test_certify_run_without_the_requests_of_its_mode_proves_nothing() -> None:
    found = {"cluster": OURS, "on": "2026-11-29", "fault_seconds": 20.0}
    uses = ["TxnOffsetCommit", "EndTxn"]
    other = certified_run("exactly once", outcome(apis=["OffsetCommit"]), **found, uses=uses)
    assert (other.is_kept, other.verdict) == (None, "OTHER MODE")
    assert "no TxnOffsetCommit and no EndTxn" in other.why and other.story == ()
    same = certified_run("exactly once", outcome(apis=["Fetch", *uses]), **found, uses=uses)
    assert same.is_kept is False and same.verdict != "OTHER MODE"


def test_certify_verdict_json_is_reused_only_for_the_same_program_and_promise() -> None:
    runs = [run(2), run(1, None), run(1, True, PEER)]
    fields = verdict_fields(RECIPE, runs, versions={"oncelog": "1"}, machine="m")
    assert runs_in(fields, RECIPE) == [run(1, None), run(2), run(1, True, PEER)]
    assert fields["command"] == "oncelog certify oncelog-transactional --seeds 1:2 --seconds 20"
    assert runs_in(fields, replace(RECIPE, digest="other")) == []
    assert runs_in(fields, replace(RECIPE, promise="at least once")) == []
    with pytest.raises(ValueError, match="it is of the recipe 'oncelog-transactional'"):
        runs_in(fields, replace(RECIPE, folder=RECIPE.folder.with_name("other")))


@pytest.mark.parametrize("fields", [None, [], {}, {"schema": 99}])
def test_certify_runs_in_a_malformed_verdict_are_refused(fields: object) -> None:
    with pytest.raises(ValueError, match=r"JSON|schema"):
        runs_in(fields, RECIPE)


def test_certify_runs_of_an_unknown_form_are_refused() -> None:
    with pytest.raises(ValueError, match="a run is not as it should be"):
        runs_in(
            {**verdict_fields(RECIPE, [], versions={}, machine="m"), "runs": [{"nosuch": 1}]},
            RECIPE,
        )


def test_certify_seeds_and_counts_are_formatted() -> None:
    assert [seed_words(s) for s in ([3], [2, 1, 3], [1, 4])] == ["3", "1:3", "1,4"]
    runs = [run(1), run(2, False), run(3, None)]
    assert tally(runs, OURS) == "kept 1, broken 1, proves nothing 1 of 3"
    assert tally(runs, PEER) == "not run"
