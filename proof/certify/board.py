"""The scoreboard, with verdicts as a table in Markdown, and as one HTML page.

The file does no I/O.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ..pages.document import document, masthead, own_style
from ..pages.markup import Child, Html, element, joined
from ..pages.parts import facts, link, section, state, table
from .results import sentences
from .verdict import BROKEN, KEPT, OURS, PEER, SEEN, CertifiedRun, tally

MADE = "<!-- made from certify/*/verdict.json: python -m tests.proof.certify.page -->"
TITLE = "Certified: what systems on Kafka promise, and keep"
SIGNS = {KEPT: "kept", BROKEN: "broken", SEEN: "note"}
HEADINGS = ("system", "mode", "promises", "verdict", "seeds here", f"on {PEER}", "story", "command")
RUN_HEADINGS = ("seed", "on", "day", "verdict", "faults", "met work", "findings")
Verdicts = Sequence[Mapping[str, Any]]


def story(fields: Mapping[str, Any]) -> str:
    """Return sentences on a run that broke the promise, if possible with a story, or ""."""
    broken = [CertifiedRun(**run) for run in fields["runs"] if run["is_kept"] is False]
    return sentences(min(broken, key=lambda run: (not run.story, run.seed))) if broken else ""


def with_table(
    page: str,
    verdicts: Verdicts,
    missing: Sequence[str] = (),
    refused: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the Markdown page, in which everything after the line MADE is replaced by new tables.

    missing: recipes without a verdict. refused: for each recipe that a second reader refused, the
    reason.
    """
    lines: list[str] = []
    for version, alike in by_version(verdicts):
        lines += ["", f"### With oncelog {version}", "", *_table_lines(alike)]
    if missing:
        lines += ["", f"Recipes without a verdict: {', '.join(missing)}."]
    for name, why in refused.items():
        lines += [
            "",
            f"{name} has no verdict, because its second reading refused it ({why}).",
        ]
    return f"{page.partition(MADE)[0]}{MADE}\n" + "\n".join(lines) + "\n"


def by_version(verdicts: Verdicts) -> list[tuple[str, Verdicts]]:
    """Return the verdicts by the version of oncelog that gave them, the newest first.

    Verdicts of two versions are not in one table, because the newer version may find more
    anomalies.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for each in verdicts:
        found.setdefault(each["versions"]["oncelog"], []).append(each)
    return sorted(found.items(), key=lambda item: _numbers(item[0]), reverse=True)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def _table_lines(verdicts: Verdicts) -> list[str]:
    lines = [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    for each in verdicts:
        runs = [CertifiedRun(**run) for run in each["runs"]]
        promise = f"[{each['promise']}]({each['page']})"
        tallies = [tally(runs, cluster) for cluster in (OURS, PEER)]
        words = [*tallies, story(each) or "-", f"`{each['command']}`"]
        cells = [_system(each), each["mode"], promise, each["verdict"], *words]
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return lines


def board_page(verdicts: Verdicts) -> str:
    """Return the scoreboard as an HTML page."""
    links = [element("a", each["recipe"], href=f"#{each['recipe']}") for each in verdicts]
    tables = [_table(version, alike) for version, alike in by_version(verdicts)]
    parts = [_part(each) for each in verdicts]
    main = element("main", element("h1", TITLE), tables, parts, id="content", tabindex="-1")
    return document("Certified", masthead("certified", links), main, *own_style())


def _table(version: str, verdicts: Verdicts) -> Child:
    rows = [_row(each) for each in verdicts]
    title = f"With oncelog {version}"
    return section(f"oncelog-{version}", title, table(title, HEADINGS[:-2], rows))


def _row(each: Mapping[str, Any]) -> Sequence[Child]:
    name = element("a", _system(each), href=f"#{each['recipe']}")
    tallies = [_tally(each, cluster) for cluster in (OURS, PEER)]
    return name, each["mode"], each["promise"], _sign(each["verdict"]), *tallies


def _part(each: Mapping[str, Any]) -> Child:
    runs = [CertifiedRun(**run) for run in each["runs"]]
    rows = [_run_row(run) for run in runs]
    told = next((run.story for run in runs if run.story), ())
    lines = [joined(line, Html("\n")) for line in told]
    pairs: list[tuple[str, Child]] = [
        ("verdict", _sign(each["verdict"])),
        ("mode", each["mode"]),
        ("promises", link(each["page"], each["promise"])),
        ("machine", each["machine"]),
        ("oncelog", each["versions"]["oncelog"]),
        ("second reading", each["second_reading"] or "none"),
        ("again", element("code", each["command"])),
    ]
    record = element("div", element("pre", lines), class_="wide", tabindex="0") if told else None
    words = facts(pairs), element("p", story(each)), record
    return section(each["recipe"], _system(each), *words, table("Runs", RUN_HEADINGS, rows))


def _run_row(run: CertifiedRun) -> Sequence[Child]:
    findings = ", ".join(run.findings) or "none"
    why = f"{run.verdict}: {run.why}"
    return run.seed, run.cluster, run.on, why, len(run.faults), run.met, findings


def _system(each: Mapping[str, Any]) -> str:
    return f"{each['system']} {each['version']}"


def _sign(verdict: str) -> Child:
    sign = SIGNS.get(verdict)
    return state(verdict) if sign in (None, verdict) else joined(state(sign), ": ", verdict)


def _tally(each: Mapping[str, Any], cluster: str) -> str:
    return tally([CertifiedRun(**run) for run in each["runs"]], cluster)
