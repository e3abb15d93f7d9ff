"""Test the imports between subpackages, the size of folders, and file names in docstrings."""

import io
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from .house import (
    FILES,
    MAY_IMPORT,
    MODULES,
    ROOT,
    Module,
    crumbs,
    import_arrows,
    import_circles,
)

pytestmark = pytest.mark.xdist_group("tidy")  # one worker, so that files are parsed once
# From the top down. Rooms of a row do not import one another; files that stand beside the rooms
# are named in rooms of their own, in braces.
ROOMS: dict[str, list[list[set[str]]]] = {
    "proof": [
        [{"certify"}],
        [{"demo"}, {"bench"}, {"chaos"}, {"prove"}, {"pytest_plugin"}, {"audit"}, {"lesson"}],
        [{"judge"}, {"conformance"}, {"pages"}],
    ],
    "deploy": [
        [{"inspect"}],
        [{"faults"}],
        [{"cluster"}],
    ],
    "node": [
        [{"__main__", "broker", "admin_socket", "controlled_clock"}],
        [{"handlers"}, {"metrics"}],
        [{"services"}],
        [{"listener"}, {"groups"}, {"transactions"}, {"membership"}],
        [{"partitions"}, {"controller"}, {"security"}],
        [
            {"config"},
            {"clock", "cluster_id", "connection_ids", "environment", "log_format"}
            | {"loop_watchdog", "linux", "traffic"},
        ],
    ],
}
FLOORS_MAX = 6
FILES_MAX = {"tests": 30}  # of a folder; elsewhere 20
FILE_NAME = re.compile(r"(?<![\w/.<*-])((?:\w+/)*\w+\.py)\b(?!\.\w)")
MODULE_NAME = re.compile(r"\boncelog(?:\.[a-z_0-9]+)+")
EXAMPLES = {
    "invoices.py",
    "test_orders.py",
    "pysyncobj/win_inet_pton.py",
}  # of users, of others


def test_product_imports_including_type_imports_have_no_cycle() -> None:
    assert import_circles(with_types=True) == []


def test_small_module_without_tests_is_imported_by_more_than_one_module() -> None:
    assert crumbs() == []


@pytest.mark.parametrize("part", ROOMS)
def test_product_subpackages_import_only_from_lower_subpackages(part: str) -> None:
    floors = ROOMS[part]
    assert len(floors) <= FLOORS_MAX
    place = {
        name: (floor, number)
        for floor, row in enumerate(floors)
        for number, room in enumerate(row)
        for name in room
    }
    inside = {module[1] for module in MODULES if module[:1] == (part,) and len(module) > 1}
    assert inside == place.keys(), "a room that the table does not know, or one that is gone"
    wrong = [
        f"{'.'.join(module)} -> {'.'.join(target)}"
        for module, targets in import_arrows().items()
        for target in targets
        if module[:1] == target[:1] == (part,) and len(module) > 1 and len(target) > 1
        and place[module[1]] != place[target[1]] and place[module[1]][0] >= place[target[1]][0]
    ]  # fmt: skip
    assert wrong == []


def test_folder_has_at_most_20_files_and_below_tests_30() -> None:
    tests = list((ROOT / "tests").rglob("*.py"))
    counts = Counter(file.parent.relative_to(ROOT) for file in [*FILES, *tests])
    large = {
        str(folder): count
        for folder, count in counts.items()
        if count > FILES_MAX.get(folder.parts[0], 20)
    }
    assert large == {}


def prose(file: Path, text: str) -> Iterator[str]:
    """Yield the docstrings and comments of a Python file, or the whole text of another file."""
    if file.suffix != ".py":
        yield text
        return
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_docstring = token.type == tokenize.STRING and before in (
            tokenize.NEWLINE, tokenize.INDENT,
        )  # fmt: skip
        if is_docstring or token.type == tokenize.COMMENT:
            yield token.string
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            before = token.type


def test_docstrings_and_pages_name_only_existing_files_and_modules() -> None:
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.splitlines() if (ROOT / name).exists()]
    known = {end for file in files for end in ends_of(file.relative_to(ROOT).parts)} | EXAMPLES
    wrong: list[str] = []

    def unknown(text: str) -> list[str]:
        named = [n for n in FILE_NAME.findall(text) if n not in known]
        return named + [n for n in MODULE_NAME.findall(text) if not is_there(n)]

    for file in files:
        if file.suffix != ".py" and file.parent != ROOT / "docs" and file.name != "CONTRIBUTING.md":
            continue
        whole = file.read_text(encoding="utf-8")
        for text in prose(file, whole) if unknown(whole) else ():
            wrong += [f"{file.relative_to(ROOT)}: {name}" for name in unknown(text)]
    assert wrong == []


def ends_of(parts: Module) -> list[str]:
    """Return the forms in which a text may name a path, from the whole path to the file name."""
    return ["/".join(parts[at:]) for at in range(len(parts))]


def is_there(dotted: str) -> bool:
    """Return whether a dotted name is a module of the product, or may be a name in a module.

    The names outside the product's folders, such as those of loggers, are not checked.
    """
    _, *parts = dotted.split(".")
    return parts[0] not in ROOMS.keys() | MAY_IMPORT.keys() or any(
        tuple(parts[:size]) in MODULES for size in range(max(1, len(parts) - 2), len(parts) + 1)
    )
