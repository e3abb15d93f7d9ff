"""Test that the scoreboard shows the verdicts that are stored beside the recipes."""

import json
import re

import pytest

from oncelog.proof.certify.board import board_page, with_table
from oncelog.proof.certify.certifying import kept_verdicts
from oncelog.proof.certify.digest import VERDICT
from oncelog.proof.certify.recipe import all_recipes
from oncelog.proof.certify.verdict import BROKEN, runs_in

from .page import pages
from .test_results import FIELDS


@pytest.mark.parametrize("file", ["certified.md", "certified.html"])
def test_certify_scoreboard_page_equals_the_kept_verdicts(file: str) -> None:
    (found,) = [(path, text) for path, text in pages().items() if path.name == file]
    written = found[0].read_text(encoding="utf-8")
    assert written == found[1], "write it anew: python -m tests.proof.certify.page"


def test_certify_verdict_in_the_tree_matches_its_recipe_and_contains_no_path() -> None:
    for recipe in all_recipes():
        file = recipe.folder / VERDICT
        if file.exists():
            text = file.read_text(encoding="utf-8")
            assert len(text) < 100_000, recipe.name
            assert runs_in(json.loads(text), recipe), f"{recipe.name}: of another program"
            assert not re.search(r"[\"' ](?:/\w[\w.-]*){2,}", text), f"{recipe.name}: a path"


def test_board_shows_a_broken_promise_only_for_programs_reviewed_a_second_time() -> None:
    verdicts = {v["recipe"]: v["verdict"] for v in kept_verdicts(all_recipes())}
    read = {recipe.name for recipe in all_recipes() if recipe.second_reading}
    assert {name for name, word in verdicts.items() if word == BROKEN} <= read


def test_certify_board_page_escapes_texts_of_a_system() -> None:
    page = board_page([{**FIELDS, "system": "<script>", "mode": "a | b"}])
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert "FAULT kill -9 of instance-1\n</pre>" in page
    table = with_table("by hand", [{**FIELDS, "mode": "a | b"}])
    assert "| a / b |" in table


def test_board_has_a_separate_table_for_each_oncelog_version() -> None:
    older = {**FIELDS, "system": "of before", "versions": {"oncelog": "0.1.0"}}
    newer = {**FIELDS, "system": "of today", "versions": {"oncelog": "0.2.0"}}
    tables = with_table("by hand", [older, newer]).split("With oncelog ")
    assert [part[:5] for part in tables[1:]] == ["0.2.0", "0.1.0"]
    assert "of today" in tables[1] and "of before" not in tables[1]
    assert "of before" in tables[2] and "of today" not in tables[2]
    page = board_page([older, newer])
    assert page.count("</table>") == 2 + 2  # a table of verdicts for each, and of runs
    assert "With oncelog 0.1.0" in page
