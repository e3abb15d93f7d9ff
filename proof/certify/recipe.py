"""A recipe: what a stranger needs to repeat a verdict, and what the system promises.

    NAME/recipe.toml     system, version, language, mode, command; [install], [prove]
    NAME/expected.toml   promise, the page that says so, what it says, second_reading
    NAME/...             the program

[prove] holds settings of `ProveSettings` by their names.
"""

import hashlib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any, cast

from ...deploy.cluster.failure import Failure
from ...storage.checkpoint import TEMPORARY_SUFFIX
from ..prove.settings import ProveSettings

RECIPES = Path(__file__).resolve().parents[2] / "certify"
RECIPE, EXPECTED, VERDICT = "recipe.toml", "expected.toml", "verdict.json"
LOCK = "certify.lock"  # of the run that writes to a folder
PROMISES = ("exactly once", "at least once", "at most once")
FILE_BYTES_MAX, FILES_MAX = 1_000_000, 50
NOT_IN_RECIPES = {"command", "seed", "seconds", "bootstrap", "command_config", "faults"}
PACKAGES = {
    "pip": re.compile(r"(?!-).+==[\w.\-]+"),
    "npm": re.compile(r"(?!-).+@[0-9]+\.[0-9]+\.[0-9]+([\-+][\w.\-+]+)?"),  # no range, no tag
    "maven": re.compile(r"(?!-)[^:]+:(?!-)[^:]+:[0-9][\w.\-]*"),
}
HOW = {"pip": "NAME==VERSION", "npm": "NAME@1.2.3", "maven": "GROUP:ARTIFACT:VERSION"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """install: packages with their versions by installer; empty: this oncelog. second_reading: the
    day on which another person has held the program against the page, or empty."""

    folder: Path
    system: str
    version: str
    language: str
    mode: str
    command: tuple[str, ...]
    install: Mapping[str, tuple[str, ...]]
    prove: Mapping[str, Any]
    promise: str
    page: str
    says: str
    second_reading: str
    digest: str

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def title(self) -> str:
        return f"{self.system} {self.version}, {self.mode}"

    def settings(self, command: Sequence[str], **others: Any) -> ProveSettings:
        """Return what a run is asked for; Failure where the recipe asks for nonsense."""
        return ProveSettings(command=tuple(command), **{**self.prove, **others})


def find_recipe(name: str) -> Recipe:
    """Return a recipe by its folder, or by its name among ours; Failure where there is none."""
    for folder in (Path(name), RECIPES / name):
        if (folder / RECIPE).is_file():
            return read_recipe(folder.resolve())
    known = ", ".join(recipe.name for recipe in all_recipes())
    raise Failure(f"There is no recipe {name!r}. Give a folder, or one of: {known}", exit_code=2)


def all_recipes(folder: Path = RECIPES) -> list[Recipe]:
    """Return the recipes of a folder, by name."""
    return [read_recipe(file.parent) for file in sorted(folder.glob(f"*/{RECIPE}"))]


def read_recipe(folder: Path) -> Recipe:
    """Return a recipe; Failure with the file and what is wrong in it."""
    recipe, expected = _toml(folder / RECIPE), _toml(folder / EXPECTED)
    texts = {
        key: _text(folder / RECIPE, recipe, key)
        for key in ("system", "version", "language", "mode")
    }
    promise = _text(folder / EXPECTED, expected, "promise")
    if promise not in PROMISES:
        raise Failure(f"{folder / EXPECTED}: promise is one of {', '.join(PROMISES)}.", exit_code=2)
    command = recipe.get("command")
    if not isinstance(command, list) or not command or not all(isinstance(x, str) for x in command):
        raise Failure(f"{folder / RECIPE}: command is a list of texts.", exit_code=2)
    found = Recipe(
        folder=folder, command=tuple(command), install=_install(folder / RECIPE, recipe),
        prove=_prove(folder / RECIPE, recipe), digest=_digest(folder), promise=promise,
        page=_text(folder / EXPECTED, expected, "page"),
        says=_text(folder / EXPECTED, expected, "says"),
        second_reading=_day(folder / EXPECTED, expected), **texts,
    )  # fmt: skip
    try:
        found.settings(command)
    except (Failure, TypeError) as problem:
        raise Failure(f"{folder / RECIPE}: {problem}", exit_code=2) from None
    return found


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise Failure(f"{file} cannot be read: {problem}", exit_code=2) from None


def _text(file: Path, table: Mapping[str, Any], key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value.strip():
        raise Failure(f"{file}: {key} is missing, or no text.", exit_code=2)
    return value.strip()


def _day(file: Path, expected: Mapping[str, Any]) -> str:
    value = expected.get("second_reading", "")
    if not isinstance(value, (str, date)):
        raise Failure(f"{file}: second_reading is a day.", exit_code=2)
    return str(value)


def _table(file: Path, recipe: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = recipe.get(key, {})
    if not isinstance(value, dict):
        raise Failure(f"{file}: {key} is no table.", exit_code=2)
    return cast("dict[str, Any]", value)


def _install(file: Path, recipe: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Packages without a version are refused: a verdict is about one version."""
    found: dict[str, tuple[str, ...]] = {}
    for installer, packages in _table(file, recipe, "install").items():
        if installer not in PACKAGES or not isinstance(packages, list):
            raise Failure(f"{file}: [install] holds lists for {', '.join(PACKAGES)}.", exit_code=2)
        for package in cast("list[Any]", packages):
            if not isinstance(package, str) or not PACKAGES[installer].fullmatch(package):
                raise Failure(
                    f"{file}: {package} names no version as {HOW[installer]} does.", exit_code=2
                )
        found[installer] = tuple(map(str, cast("list[Any]", packages)))
    return found


def _prove(file: Path, recipe: Mapping[str, Any]) -> dict[str, Any]:
    types = {each.name: each.type for each in fields(ProveSettings)}
    given = _table(file, recipe, "prove")
    for key, value in given.items():
        if key in types and (kind := _wrong_kind(types[key], value)):
            raise Failure(f"{file}: {key} of [prove] is no {kind}.", exit_code=2)
    found = {
        key: tuple(cast("list[Any]", value)) if isinstance(value, list) else value
        for key, value in given.items()
    }
    if wrong := sorted(found.keys() & NOT_IN_RECIPES):
        raise Failure(f"{file}: [prove] does not hold {', '.join(wrong)}.", exit_code=2)
    return found


def _wrong_kind(wanted: Any, value: Any) -> str:
    """Return in words what a setting should have been; empty where it is."""
    if wanted is bool:
        return "" if isinstance(value, bool) else "true or false"
    if wanted in (int, float):
        kinds = (int,) if wanted is int else (int, float)
        return "" if type(value) in kinds else "number" if wanted is float else "whole number"
    if wanted == tuple[str, ...]:
        return "" if isinstance(value, list) and _are_texts(value) else "list of texts"
    if wanted == Mapping[str, str]:
        is_right = isinstance(value, dict) and _are_texts(cast("dict[str, Any]", value).values())
        return "" if is_right else "table of texts"
    return "" if isinstance(value, str) else "text"


def _are_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _digest(folder: Path) -> str:
    """Return what a verdict is bound to: all files of the recipe but the promise and verdicts."""
    others = (EXPECTED, VERDICT, f"{VERDICT}{TEMPORARY_SUFFIX}", LOCK)
    endings = (".md", ".xml", ".sarif")
    hashed = hashlib.sha256()
    files = [file for file in sorted(folder.iterdir()) if file.is_file()]
    for file in files[:FILES_MAX]:
        if file.name not in others and not file.name.removesuffix(TEMPORARY_SUFFIX).endswith(
            endings
        ):
            with file.open("rb") as opened:
                hashed.update(f"{file.name}\n".encode() + opened.read(FILE_BYTES_MAX) + b"\n")
    return hashed.hexdigest()[:16]
