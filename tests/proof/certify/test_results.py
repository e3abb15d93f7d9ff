"""Test that JUnit XML, SARIF and the report contain the findings of the runs."""

import json
import os
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from oncelog.proof.certify.reading import SecondReading
from oncelog.proof.certify.recipe import RECIPES, read_recipe
from oncelog.proof.certify.results import badge, junit, report, sarif, sentences, write_results
from oncelog.proof.certify.verdict import OURS, SEEN, CertifiedRun, verdict_fields

RECIPE = read_recipe(RECIPES / "oncelog-transactional")
KEPT = CertifiedRun(
    seed=1, cluster=OURS, on="2026-11-29", fault_seconds=20, is_kept=True,
    verdict="EXACTLY ONCE", why="9 inputs, 9 outputs", faults=["cut"], met=1, seconds=60,
)  # fmt: skip
BROKEN = replace(
    KEPT, seed=2, is_kept=False, verdict="AT LEAST ONCE", why="1 doubled",
    findings=["no-idempotence (wrong)", "v1-late-requests (exposed)"],
    story_of="r1-000001, doubled", story=["    1.0 s  instance-1   FAULT kill -9 of instance-1"],
)  # fmt: skip
RUNS = [KEPT, BROKEN, replace(KEPT, seed=3, is_kept=None, verdict="PROVES NOTHING", why="stands")]
FIELDS = verdict_fields(RECIPE, RUNS, versions={"oncelog": "1", "Python": "3"}, machine="m")


def test_write_results_writes_a_report_of_a_violation_and_removes_it_for_a_kept_promise(
    tmp_path: Path,
) -> None:
    write_results(RECIPE, FIELDS, RUNS, tmp_path)
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {
        "verdict.json", "verdict.xml", "verdict.sarif", "badge.json", "report.md"
    }  # fmt: skip
    assert json.loads((tmp_path / "verdict.json").read_text())["verdict"] == SEEN
    write_results(RECIPE, FIELDS, [KEPT], tmp_path)
    assert not (tmp_path / "report.md").exists()


def test_program_refused_by_its_second_reader_gets_no_report(tmp_path: Path) -> None:
    reading = SecondReading("2026-11-29", RECIPE.digest, agrees=False, note="It is another mode.")
    write_results(replace(RECIPE, reading=reading), FIELDS, RUNS, tmp_path)
    assert not (tmp_path / "report.md").exists() and (tmp_path / "verdict.json").exists()


def test_write_results_leaves_a_foreign_report_file(tmp_path: Path) -> None:
    (tmp_path / "report.md").write_text("mine")
    kept = verdict_fields(RECIPE, [KEPT], versions={"oncelog": "1", "Python": "3"}, machine="m")
    for _ in range(2):
        write_results(RECIPE, kept, [KEPT], tmp_path)
    assert (tmp_path / "report.md").read_text() == "mine"


def test_write_results_on_a_full_disk_keeps_the_previous_verdict(
    tmp_path: Path, monkeypatch
) -> None:
    write_results(RECIPE, FIELDS, RUNS, tmp_path)
    before = (tmp_path / "verdict.json").read_text()

    def full(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no room"):
        write_results(RECIPE, {**FIELDS, "machine": "n"}, RUNS, tmp_path)
    assert (tmp_path / "verdict.json").read_text() == before


def test_junit_file_is_valid_xml_whatever_a_program_printed() -> None:
    text = junit(RECIPE, [replace(BROKEN, why="a\x00b\x1b", cluster="c\x01")])
    (case,) = ElementTree.fromstring(text)
    assert (case.get("name") or "").startswith("seed 2 on c")


def test_junit_file_fails_broken_runs_and_skips_unproven_ones(tmp_path: Path) -> None:
    write_results(RECIPE, FIELDS, RUNS, tmp_path)
    suite = ElementTree.parse(tmp_path / "verdict.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    kinds = [[child.tag for child in case] for case in suite]
    assert kinds == [[], ["failure"], ["skipped"]]
    assert "FAULT kill -9" in (suite[1][0].text or "")


def test_sarif_file_names_each_finding_once_with_its_level() -> None:
    run = sarif(RECIPE, [BROKEN, replace(BROKEN, seed=4)])["runs"][0]
    results = {each["ruleId"]: each for each in run["results"]}
    assert results.keys() == {"no-idempotence", "v1-late-requests"}
    assert results["no-idempotence"]["level"] == "error"
    assert results["v1-late-requests"]["level"] == "note"
    assert "seeds 2, 4" in results["no-idempotence"]["message"]["text"]
    place = results["no-idempotence"]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "copier.py"


def test_sarif_level_is_that_of_the_heaviest_finding_of_the_runs() -> None:
    """A finding of level `wrong` may also occur in runs with right outputs."""
    weak = replace(KEPT, findings=["no-idempotence (exposed)"])

    def level(*runs: CertifiedRun) -> str:
        return sarif(RECIPE, runs)["runs"][0]["results"][0]["level"]

    assert level(weak) == "note"
    assert level(replace(BROKEN, findings=["no-idempotence (wrong)"]), weak) == "error"


def test_certify_report_of_an_unrepeated_violation_advises_against_sending_the_report() -> None:
    text = report(RECIPE, FIELDS, RUNS)
    assert "Do not send this yet" in text and RECIPE.page in text
    assert "FAULT kill -9 of instance-1" in text and "## no-idempotence" in text
    sure = report(RECIPE, {**FIELDS, "verdict": "broken"}, RUNS)
    assert "Do not send" not in sure


def test_certify_summary_of_a_violation_names_counts_fault_and_findings() -> None:
    assert sentences(BROKEN) == (
        "Seed 2 on oncelog: 1 doubled. The record r1-000001 (doubled) met this fault: "
        "kill -9 of instance-1. "
        "The protocol shows these findings: no-idempotence."
    )


def test_badge_counts_its_runs_and_is_green_only_where_the_promise_was_kept() -> None:
    kept = verdict_fields(RECIPE, [KEPT], versions={"oncelog": "1"}, machine="m")
    assert badge(kept) == {
        "schemaVersion": 1, "label": "exactly once (oncelog certify)",
        "message": "kept in 1 of 1 runs", "color": "brightgreen",
    }  # fmt: skip
    assert badge(FIELDS)["color"] == "orange" and "1 of 3" in badge(FIELDS)["message"]
