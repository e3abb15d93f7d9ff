"""`oncelog certify` finds out if a system keeps the promise of its documentation."""

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from ...deploy.cluster.terminal import closable, say, show, tell
from ..common import Format, check_bootstrap, judging

LISTED = {"recipe": "RECIPE", "system": "SYSTEM", "mode": "MODE", "promise": "PROMISES"}


def register(app: App) -> None:
    """Add the command of this file to `app`."""
    app.command(certify)


@judging()
def certify(
    recipe: Annotated[
        str | None,
        Parameter(help="A folder with a recipe.toml, or the name of a recipe in certify/."),
    ] = None,
    /,
    *,
    seeds: Annotated[
        str, Parameter(help="The seeds as FIRST:LAST, or single seeds separated by commas.")
    ] = "1:10",
    bootstrap: Annotated[
        str | None,
        Parameter(
            help="HOST:PORT,... of any Kafka, instead of a new cluster for each run.",
            validator=check_bootstrap,
        ),
    ] = None,
    resume: Annotated[
        bool,
        Parameter(
            help="Run only the seeds that verdict.json lacks or has as NO RUN or OTHER MODE.",
            negative=(),
        ),
    ] = False,
    seconds: Annotated[
        float,
        Parameter(help="The time during which faults are injected for each seed, in seconds."),
    ] = 20.0,
    shrink: Annotated[
        bool,
        Parameter(help="Find the smallest set of faults that breaks the promise.", negative=()),
    ] = False,
    out: Annotated[
        Path | None,
        Parameter(help="The directory for verdict.json. The default is certified/RECIPE."),
    ] = None,
    format: Format = "table",
) -> int:
    """Install a system, run `prove` with several seeds, and compare the results with its promise.

    Without RECIPE, the command lists the recipes. All results are in verdict.json. The command also
    writes JUnit XML and SARIF, and a report.md if the promise was broken (docs/certified.md).

    The exit code is 0 if the promise was kept in all seeds, and 1 if it was broken. It is 2 for
    wrong usage, or if the system cannot be installed. It is 3 if the runs prove nothing.
    """
    from ...proof.certify.verdict import EXIT_CODES

    if recipe is None:
        with closable(sys.stdout):
            _list(format)
        return 0
    folder, fields = _certified(recipe, seeds, out, seconds, bootstrap, resume, shrink)
    with closable(sys.stdout):
        _tell(fields, folder, format)
    return EXIT_CODES[fields["verdict"]]


def _list(format: str) -> None:
    from ...proof.certify.recipe import all_recipes

    cells = [(r.name, f"{r.system} {r.version}", r.mode, r.promise) for r in all_recipes()]
    rows = [dict(zip(LISTED, each, strict=True)) for each in cells]
    show(rows, format, columns=LISTED, optional=("mode",))


def _certified(
    name: str,
    seeds: str,
    out: Path | None,
    seconds: float,
    bootstrap: str | None,
    resume: bool,
    shrink: bool,
) -> tuple[Path, dict[str, Any]]:
    from ...proof.certify.certifying import certify as run_recipe
    from ...proof.certify.certifying import parse_seeds
    from ...proof.certify.recipe import find_recipe

    recipe = find_recipe(name)
    folder = out or Path("certified") / recipe.name
    return folder, run_recipe(
        recipe, parse_seeds(seeds), folder, seconds=seconds, bootstrap=bootstrap, resume=resume,
        shrink=shrink, say=_say,
    )  # fmt: skip


def _say(*lines: str) -> None:
    with suppress(BrokenPipeError):  # a closed output does not end the run
        say(*lines)


def _tell(fields: Mapping[str, Any], folder: Path, format: str) -> None:
    if format == "json":
        print(json.dumps(fields))
        return
    for run in fields["runs"]:
        tell(f"seed {run['seed']} on {run['cluster']}: {run['verdict']}: {run['why']}")
    tell(f"{fields['promise']} by {fields['page']}: {fields['verdict']}", f"all results: {folder}")
