"""Write the scoreboard from the kept verdicts with `python -m tests.proof.certify.page`."""

from pathlib import Path

from oncelog.proof.certify.board import board_page, with_table
from oncelog.proof.certify.certifying import kept_verdicts
from oncelog.proof.certify.recipe import all_recipes

DOCS = Path(__file__).parents[3] / "docs"
PAGE, HTML = DOCS / "certified.md", DOCS / "certified.html"


def pages() -> dict[Path, str]:
    """Return the expected text of the Markdown page and of the HTML page."""
    recipes = all_recipes()
    verdicts = kept_verdicts(recipes)
    refused = {recipe.name: recipe.refusal for recipe in recipes if recipe.refusal}
    there = {each["recipe"] for each in verdicts} | refused.keys()
    missing = sorted({recipe.name for recipe in recipes} - there)
    by_hand = PAGE.read_text(encoding="utf-8")
    return {
        PAGE: with_table(by_hand, verdicts, missing, refused),
        HTML: board_page(verdicts) + "\n",
    }


if __name__ == "__main__":
    for file, text in pages().items():
        file.write_text(text, encoding="utf-8")
        print("written:", file.name)
