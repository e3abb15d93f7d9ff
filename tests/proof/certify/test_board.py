"""The scoreboard is made from the verdicts that lie beside the recipes."""

import json
import re

import pytest

from oncelog.proof.certify.board import board_page, with_table
from oncelog.proof.certify.certifying import kept_verdicts
from oncelog.proof.certify.recipe import VERDICT, all_recipes
from oncelog.proof.certify.verdict import BROKEN, runs_in

from .page import pages
from .test_results import FIELDS


@pytest.mark.parametrize("file", ["certified.md", "certified.html"])
def test_the_scoreboard_says_what_the_verdicts_say(file: str) -> None:
    (found,) = [(path, text) for path, text in pages().items() if path.name == file]
    written = found[0].read_text(encoding="utf-8")
    assert written == found[1], "write it anew: python -m tests.proof.certify.page"


def test_a_kept_verdict_is_of_its_recipe_and_names_no_machine() -> None:
    for recipe in all_recipes():
        file = recipe.folder / VERDICT
        if file.exists():
            text = file.read_text(encoding="utf-8")
            assert len(text) < 100_000, recipe.name
            assert runs_in(json.loads(text), recipe), f"{recipe.name}: of another program"
            assert not re.search(r"[\"' ](?:/\w[\w.-]*){2,}", text), f"{recipe.name}: a path"


def test_nothing_is_called_broken_without_a_second_reading() -> None:
    verdicts = {v["recipe"]: v["verdict"] for v in kept_verdicts(all_recipes())}
    read = {recipe.name for recipe in all_recipes() if recipe.second_reading}
    assert {name for name, word in verdicts.items() if word == BROKEN} <= read


def test_board_page_escapes_what_a_system_says() -> None:
    page = board_page([{**FIELDS, "system": "<script>", "mode": "a | b"}])
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert "FAULT kill -9 of instance-1\n</pre>" in page
    table = with_table("by hand", [{**FIELDS, "mode": "a | b"}])
    assert "| a / b |" in table
