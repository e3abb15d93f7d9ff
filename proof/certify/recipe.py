"""A recipe: what a stranger needs to repeat a verdict, and what the system promises.

    NAME/recipe.toml     system, version, language, mode, command; [install], [prove]
    NAME/expected.toml   promise, the page that says so, what it says, second_reading
    NAME/...             the program

[prove] holds settings of `ProveSettings` by their names.
"""

import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ...deploy.cluster.failure import Failure
from ..prove.settings import ProveSettings

RECIPES = Path(__file__).resolve().parents[2] / "certify"
RECIPE, EXPECTED, VERDICT = "recipe.toml", "expected.toml", "verdict.json"
PROMISES = ("exactly once", "at least once", "at most once")
INSTALLERS = {"pip": "==", "npm": "@", "maven": ":"}  # with what stands before a version
FILE_BYTES_MAX, FILES_MAX = 1_000_000, 50
NOT_IN_RECIPES = {"command", "seed", "seconds", "bootstrap", "command_config", "faults"}
PINNED = re.compile(r"[\w.\-]+")


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
        second_reading=str(expected.get("second_reading", "")), **texts,
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


def _install(file: Path, recipe: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Packages without a version are refused: a verdict is about one version."""
    found: dict[str, tuple[str, ...]] = {}
    for installer, packages in cast("dict[str, Any]", recipe.get("install", {})).items():
        if installer not in INSTALLERS or not isinstance(packages, list):
            raise Failure(
                f"{file}: [install] holds lists for {', '.join(INSTALLERS)}.", exit_code=2
            )
        for package in cast("list[Any]", packages):
            name, _, version = str(package).rpartition(INSTALLERS[installer])
            if not name or not PINNED.fullmatch(version):
                raise Failure(f"{file}: {package} names no version.", exit_code=2)
        found[installer] = tuple(map(str, cast("list[Any]", packages)))
    return found


def _prove(file: Path, recipe: Mapping[str, Any]) -> dict[str, Any]:
    found = {
        key: tuple(cast("list[Any]", value)) if isinstance(value, list) else value
        for key, value in cast("dict[str, Any]", recipe.get("prove", {})).items()
    }
    if wrong := sorted(found.keys() & NOT_IN_RECIPES):
        raise Failure(f"{file}: [prove] does not hold {', '.join(wrong)}.", exit_code=2)
    return found


def _digest(folder: Path) -> str:
    """Return what a verdict is bound to: all files of the recipe but the promise and verdicts."""
    hashed = hashlib.sha256()
    files = [file for file in sorted(folder.iterdir()) if file.is_file()]
    for file in files[:FILES_MAX]:
        if file.name not in (EXPECTED, VERDICT) and file.suffix not in (".md", ".xml", ".sarif"):
            with file.open("rb") as opened:
                hashed.update(f"{file.name}\n".encode() + opened.read(FILE_BYTES_MAX) + b"\n")
    return hashed.hexdigest()[:16]
