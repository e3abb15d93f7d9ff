"""A recipe, which has everything to repeat a verdict, and the promise of the system.

    NAME/recipe.toml     system, version, language, mode, command; [install], [prove]
    NAME/expected.toml   promise, the page that says so, what it says, uses, [second_reading]
    NAME/...             the program

[prove] has settings of `ProveSettings` by their names.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from ...deploy.cluster.failure import Failure
from ...wire.messages.apis import APIS
from ..prove.settings import ProveSettings
from .digest import EXPECTED, digest_of, program_files
from .reading import SecondReading, reading_of, settings_not_made

RECIPES = Path(__file__).resolve().parents[2] / "certify"
RECIPE = "recipe.toml"
REQUESTS = frozenset(api.name for api in APIS.values())
PROMISES = ("exactly once", "at least once", "at most once")
NOT_IN_RECIPES = {"command", "seed", "seconds", "bootstrap", "command_config", "faults"}
PACKAGES = {
    "pip": re.compile(r"(?!-).+==[\w.\-]+"),
    "npm": re.compile(r"(?!-).+@[0-9]+\.[0-9]+\.[0-9]+([\-+][\w.\-+]+)?"),  # no range, no tag
    "maven": re.compile(r"(?!-)[^:]+:(?!-)[^:]+:[0-9][\w.\-]*"),
    "go": re.compile(r"(?!-)[^@\s]+@v[0-9]+\.[0-9]+\.[0-9]+([\-+][\w.\-+]+)?"),
}
HOW = {
    "pip": "NAME==VERSION",
    "npm": "NAME@1.2.3",
    "maven": "GROUP:ARTIFACT:VERSION",
    "go": "MODULE@v1.2.3",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A recipe, which has a program, its environment, and the guarantee that the system promises.

    install: packages with their versions by installer, empty for this oncelog. uses: requests that
    an application in this mode sends.
    """

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
    uses: tuple[str, ...]
    reading: SecondReading | None
    digest: str

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def second_reading(self) -> str:
        """Return the day on which another person found the program correct.

        Returns an empty text without such a reading of the current files.
        """
        found = self.reading
        return found.on if found and found.agrees and found.digest == self.digest else ""

    @property
    def refusal(self) -> str:
        """Return why the second reader found the current program wrong, or "" if that is not so."""
        found = self.reading
        return found.note if found and not found.agrees and found.digest == self.digest else ""

    @property
    def title(self) -> str:
        return f"{self.system} {self.version}, {self.mode}"

    def settings(self, command: Sequence[str], **others: Any) -> ProveSettings:
        """Return the `prove` settings of a run, or raise Failure for invalid ones in the recipe."""
        return ProveSettings(command=tuple(command), **{**self.prove, **others})


def find_recipe(name: str) -> Recipe:
    """Return the recipe in the folder `name`, or the one of this name that is part of oncelog.

    Raises Failure if there is neither.
    """
    for folder in (Path(name), RECIPES / name):
        if (folder / RECIPE).is_file():
            return read_recipe(folder.resolve())
    known = ", ".join(recipe.name for recipe in all_recipes())
    raise Failure(f"There is no recipe {name!r}. Give a folder, or one of: {known}", exit_code=2)


def all_recipes(folder: Path = RECIPES) -> list[Recipe]:
    """Return the recipes in a folder, sorted by name."""
    return [read_recipe(file.parent) for file in sorted(folder.glob(f"*/{RECIPE}"))]


def read_recipe(folder: Path) -> Recipe:
    """Read the recipe in a folder. Raises Failure that names the file and its error."""
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
    for part in cast("list[str]", command):
        _require_whole_places(folder / RECIPE, part)
    found = Recipe(
        folder=folder, command=tuple(command), install=_install(folder / RECIPE, recipe),
        prove=_prove(folder / RECIPE, recipe), digest=digest_of(folder), promise=promise,
        page=_text(folder / EXPECTED, expected, "page"),
        says=_text(folder / EXPECTED, expected, "says"),
        uses=_uses(folder / EXPECTED, expected), reading=_reading(folder / EXPECTED, expected),
        **texts,
    )  # fmt: skip
    _require_settings_of_mode(found)
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


def _require_whole_places(file: Path, part: str) -> None:
    """Raise Failure if an argument has a placeholder among other words, such as `exec {python}`.

    A shell would split such an argument at a blank in the path.
    """
    if " " in part and (place := re.search(r"\{[a-z]+\}", part)):
        raise Failure(
            f"{file}: {place[0]} stands among other words in {part!r}. Hand it over as an argument "
            'of its own: ["sh", "-c", \'exec "$1" app.py\', "sh", "{python}"].',
            exit_code=2,
        )


def _require_settings_of_mode(recipe: Recipe) -> None:
    given: Mapping[str, Any] = recipe.prove.get("environment", {})
    texts = [*recipe.command, *map(str, given.values())]
    for file in program_files(recipe.folder):
        if file != recipe.folder / RECIPE:
            texts.append(file.read_text(encoding="utf-8", errors="replace"))
    if wrong := settings_not_made(recipe.mode, texts):
        raise Failure(
            f"{recipe.folder / RECIPE}: the mode says {', '.join(wrong)}, and neither the program "
            "nor [prove.environment] sets it.",
            exit_code=2,
        )


def _reading(file: Path, expected: Mapping[str, Any]) -> SecondReading | None:
    try:
        return reading_of(expected.get("second_reading"))
    except ValueError as problem:
        raise Failure(f"{file}: {problem}.", exit_code=2) from None


def _uses(file: Path, expected: Mapping[str, Any]) -> tuple[str, ...]:
    value = expected.get("uses", [])
    if not isinstance(value, list) or not _are_texts(cast("list[Any]", value)):
        raise Failure(f"{file}: uses is a list of requests, as EndTxn.", exit_code=2)
    if unknown := sorted({str(each) for each in cast("list[Any]", value)} - REQUESTS):
        raise Failure(f"{file}: Kafka has no request {', '.join(unknown)}.", exit_code=2)
    return tuple(cast("list[str]", value))


def _table(file: Path, recipe: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = recipe.get(key, {})
    if not isinstance(value, dict):
        raise Failure(f"{file}: {key} is no table.", exit_code=2)
    return cast("dict[str, Any]", value)


def _install(file: Path, recipe: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the packages by installer. Refuse packages without a version.

    A verdict is about one version.
    """
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
    """Return the expected kind of a setting as words, or "" for a value of that kind."""
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
