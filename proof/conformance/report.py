"""Surveys and comparisons as text for a person, within 80 columns."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .compare import ConformanceRow, counts
from .survey import Survey, api_label, came_in_words, survey_fields, version_range

API_COLUMNS = {"key": "KEY", "api": "API", "versions": "VERSIONS", "came": "WHAT CAME"}
ROW_COLUMNS = {"what": "WITHOUT A REASON", "theirs": "THERE", "ours": "HERE"}
NAMES_SHOWN_MAX = 2


def api_rows(survey: Survey) -> list[dict[str, Any]]:
    """Return a table row for each API of a survey."""
    return [
        {
            "key": key,
            "api": api_label(key),
            "versions": version_range(api.oldest, api.newest),
            "came": came_in_words(api.came),
        }
        for key, api in sorted(survey.apis.items())
    ]


def survey_lines(survey: Survey) -> Iterator[str]:
    """Yield lines of text about a survey's features and configuration keys."""
    for name, feature in sorted(survey.features.items()):
        yield f"feature {name}  {feature}"
    if not survey.features:
        yield "features: none are advertised"
    for kind, names in sorted(survey.configs.items()):
        yield f"{kind} keys ({len(names)})  {', '.join(sorted(names)) or '-'}"


def unexplained_rows(rows: Iterable[ConformanceRow]) -> list[dict[str, Any]]:
    """Return table rows for the differences without a known reason."""
    return [
        {
            "what": row.name if row.kind in ("api", "answer") else f"{row.kind} {row.name}",
            "theirs": "there" if row.kind == "config" else row.theirs,
            "ours": row.ours,
        }
        for row in rows
        if row.verdict == "without"
    ]


def reason_lines(rows: Iterable[ConformanceRow], *, shows_keys: bool = False) -> Iterator[str]:
    """Yield lines of text with the explained and unasked rows under each reason."""
    families: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        if row.verdict in ("reason", "not asked"):
            heading, item = _labelled(row)
            said = row.reason if row.is_asked else f"not asked: {row.reason}"
            families.setdefault(said, {}).setdefault(heading, []).append(item)
    for reason, headings in families.items():
        yield reason
        for heading, items in headings.items():
            is_long = heading.endswith("keys") and not shows_keys
            more = len(items) - NAMES_SHOWN_MAX
            named = items[:NAMES_SHOWN_MAX] if is_long else items
            tail = f" and {more} more" if is_long and more > 0 else ""
            yield f"  {heading}  {', '.join(named)}{tail}"


def _labelled(row: ConformanceRow) -> tuple[str, str]:
    if not row.is_asked:
        return "answers", row.name
    if row.kind == "config":
        kind, _, name = row.name.partition(" ")
        return f"{kind} keys", name
    if row.kind == "feature":
        return "features", row.name
    if row.kind == "api":
        return "APIs", f"{row.name} {row.theirs}"
    return f"{row.kind}", f"{row.name} ({row.theirs}; here {row.ours})"


def summary(rows: Sequence[ConformanceRow], surveys: Mapping[str, Survey]) -> Iterator[str]:
    """Yield a line with the number of rows by verdict, and a line for each stopped survey."""
    found = counts(rows)
    yield (
        f"{surveys['ours'].address} beside {surveys['theirs'].address}: {found['equal']} equal, "
        f"{found['reason']} with a reason, {found['without']} without, "
        f"{found['not asked']} not asked"
    )
    yield from stopped_lines(*surveys.values())


def stopped_lines(*surveys: Survey) -> Iterator[str]:
    """Yield a line for each survey that stopped early, with its reason."""
    for each in surveys:
        if each.stopped:
            yield f"{each.address} was not asked to the end: {each.stopped}."


def report_fields(
    ours: Survey, theirs: Survey | None, rows: Sequence[ConformanceRow]
) -> dict[str, Any]:
    """Return the whole report as JSON values (docs/conformance.md)."""
    fields: dict[str, Any] = {"cluster": survey_fields(ours)}
    if theirs is not None:
        listed = [{**row._asdict(), "verdict": row.verdict} for row in rows]
        fields |= {"against": survey_fields(theirs), "rows": listed, "counts": counts(rows)}
    return fields
