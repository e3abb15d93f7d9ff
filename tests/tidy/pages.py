"""Print the mean number of words in the sentences of each docs page: tests.tidy.pages [-v] [PAGE].

Run it by .venv/bin/python -m. Code, tables and headings do not count. An item of a list is a
paragraph. Code in a sentence, and the target of a link, count as one word.
"""

import re
import sys
from pathlib import Path

from .house import ROOT

MEAN_WORDS_MAX = 18
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")],
    key=lambda page: str(page),
)
_FENCED = re.compile(r"```.*?```", re.DOTALL)
_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )")
_MARK = re.compile(r"^\s*(?:[-*]|\d+\.) ")
_SENTENCE = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`*\"(\[])")


def sentences(text: str) -> list[str]:
    """Return the sentences of a Markdown page that have at least three words."""
    found: list[str] = []
    for block in _PARAGRAPH.split(_FENCED.sub("", text)):
        lines = [line for line in block.strip().splitlines() if not line.lstrip().startswith("|")]
        paragraph = _MARK.sub("", " ".join(lines))
        if paragraph.startswith(("#", "<")):
            continue
        paragraph = re.sub(r"`[^`]*`", "code", paragraph)
        paragraph = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)
        found += [s for s in _SENTENCE.split(paragraph) if word_count(s) >= 3]
    return found


def word_count(sentence: str) -> int:
    return len(re.findall(r"[\w'.-]+", sentence))


def mean_words(page: Path) -> float:
    """Return the mean number of words in a page's sentences, or 0 for a page without sentences."""
    counts = [word_count(each) for each in sentences(page.read_text(encoding="utf-8"))]
    return sum(counts) / len(counts) if counts else 0.0


def main(arguments: list[str]) -> None:
    wanted = [ROOT / name for name in arguments if name != "-v"] or PAGES
    for page in wanted:
        print(f"{mean_words(page):5.1f}  {page.relative_to(ROOT)}")
        if "-v" in arguments:
            for each in sentences(page.read_text(encoding="utf-8")):
                print(f"  {word_count(each):3}  {each}")


if __name__ == "__main__":
    main(sys.argv[1:])
