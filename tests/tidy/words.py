"""Count docstrings and test names that are not plain: tests.tidy.words [FOLDER ...].

Run it by .venv/bin/python -m. It prints the ratios of all folders, or of the given folders with the
docstrings and names that are not plain.
"""

import argparse
import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from .house import FILES, ROOT, ROOT_FILES, parsed

OPENINGS = re.compile(r"(What|Of|By|Where|Who|As|So)\b")
PRONOUNS = re.compile(r"\b(who|whoever|whom|whose|nobody|somebody)\b", re.IGNORECASE)
TEST_NAME_WORDS = re.compile(r"_(who|whom|whose|what|nobody|somebody)(?=_|$)")
RATIO_MAX = 0.02
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class Folder:
    """The counts of a folder's docstrings and test names, and those that are not plain."""

    docstrings: int = 0
    test_names: int = 0
    openings: list[str] = field(default_factory=list)
    pronouns: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    @property
    def ratios(self) -> dict[str, float]:
        docstrings, names = max(1, self.docstrings), max(1, self.test_names)
        return {
            "openings": len(self.openings) / docstrings,
            "pronouns": len(self.pronouns) / docstrings,
            "test names": len(self.names) / names,
        }


def _definitions(body: list[ast.stmt]) -> Iterator[ast.ClassDef | Function]:
    """Yield all classes and functions of a file, but skip expressions to save time."""
    for statement in body:
        if isinstance(statement, ast.ClassDef | Function):
            yield statement
        yield from _definitions(getattr(statement, "body", []))


def read(folder: Folder, place: str, tree: ast.Module) -> None:
    """Add the docstrings and test names of one file to the counts of its folder."""
    for node in (tree, *_definitions(tree.body)):
        if text := ast.get_docstring(node):
            folder.docstrings += 1
            words = f"{place}:{node.body[0].lineno}: {text.splitlines()[0]}"
            if OPENINGS.match(text):
                folder.openings.append(words)
            if found := PRONOUNS.search(text):
                folder.pronouns.append(f"{words} [{found[0]}]")
        if isinstance(node, Function) and node.name.startswith("test_"):
            folder.test_names += 1
            if TEST_NAME_WORDS.search(node.name):
                folder.names.append(f"{place}:{node.lineno}: {node.name}")


def folder_of(path: Path) -> str:
    """Return the top folder of a path, or for tests the folder below `tests/`."""
    parts = path.parent.parts
    return "/".join(parts[:2] if parts[:1] == ("tests",) else parts[:1]) or "."


@cache
def folders(*wanted: str) -> dict[str, Folder]:
    """Return the counts of the `wanted` folders by name, or of all folders without `wanted`."""
    found: dict[str, Folder] = {}
    for file in sorted([*FILES, *ROOT_FILES, *(ROOT / "tests").rglob("*.py")]):
        path = file.relative_to(ROOT)
        if wanted and folder_of(path) not in wanted:
            continue
        read(found.setdefault(folder_of(path), Folder()), str(path), parsed(file))
    return found


def row_of(name: str, folder: Folder) -> str:
    """Return a line with the folder's ratios."""
    ratios = "  ".join(f"{what} {ratio:6.1%}" for what, ratio in folder.ratios.items())
    return f"{name:20} {folder.docstrings:5} docstrings  {ratios}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.tidy.words", description=__doc__)
    parser.add_argument(
        "folder", nargs="*", help="print the sentences of this folder that break a rule"
    )
    wanted = parser.parse_args().folder
    for name, folder in folders(*wanted).items():
        if wanted:
            print("\n".join(folder.openings + folder.pronouns + folder.names))
        print(row_of(name, folder))


if __name__ == "__main__":
    main()
