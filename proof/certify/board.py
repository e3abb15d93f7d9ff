"""The scoreboard: verdicts as a table in Markdown, and as one HTML page without a server. Pure."""

from collections.abc import Mapping, Sequence
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
Verdicts = Sequence[Mapping[str, Any]]


def story(fields: Mapping[str, Any]) -> str:
    """Return three sentences on the first run that broke the promise; empty where none did."""
    broken = [CertifiedRun(**run) for run in fields["runs"] if run["is_kept"] is False]
    return sentences(min(broken, key=lambda run: (not run.story, run.seed))) if broken else ""


def with_table(page: str, verdicts: Verdicts, missing: Sequence[str] = ()) -> str:
    """Return the Markdown page with today's table behind the line MADE; missing: recipes that have
    no verdict."""
    by_hand = page.partition(MADE)[0]
    lines = ["", f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    for each in verdicts:
        runs = [CertifiedRun(**run) for run in each["runs"]]
        promise = f"[{each['promise']}]({each['page']})"
        cells = (
            f"{each['system']} {each['version']}", each["mode"], promise, each["verdict"],
            tally(runs, OURS), tally(runs, PEER), story(each) or "-", f"`{each['command']}`",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    if missing:
        lines += ["", f"Recipes without a verdict: {', '.join(missing)}."]
    return f"{by_hand}{MADE}\n" + "\n".join(lines) + "\n"


def board_page(verdicts: Verdicts) -> str:
    """Return the HTML page."""
    links = [element("a", each["recipe"], href=f"#{each['recipe']}") for each in verdicts]
    rows = [
        (
            element("a", f"{each['system']} {each['version']}", href=f"#{each['recipe']}"),
            each["mode"], each["promise"], _sign(each["verdict"]), _tally(each, OURS),
            _tally(each, PEER),
        )
        for each in verdicts
    ]  # fmt: skip
    main = element(
        "main", element("h1", TITLE),
        section("all", "Verdicts", table(TITLE, HEADINGS[:-2], rows)),
        [_part(each) for each in verdicts],
        id="content", tabindex="-1",
    )  # fmt: skip
    return document("Certified", masthead("certified", links), main, *own_style())


def _part(each: Mapping[str, Any]) -> Child:
    runs = [CertifiedRun(**run) for run in each["runs"]]
    rows = [
        (run.seed, run.cluster, run.on, f"{run.verdict}: {run.why}", len(run.faults), run.met,
         ", ".join(run.findings) or "none") for run in runs
    ]  # fmt: skip
    told = next((run.story for run in runs if run.story), ())
    lines = [joined(line, Html("\n")) for line in told]
    pairs: list[tuple[str, Child]] = [
        ("verdict", _sign(each["verdict"])), ("mode", each["mode"]),
        ("promises", link(each["page"], each["promise"])), ("machine", each["machine"]),
        ("oncelog", each["versions"]["oncelog"]), ("again", element("code", each["command"])),
    ]  # fmt: skip
    return section(
        each["recipe"], f"{each['system']} {each['version']}", facts(pairs),
        element("p", story(each)),
        element("div", element("pre", lines), class_="wide", tabindex="0") if told else None,
        table("Runs", ("seed", "on", "day", "verdict", "faults", "met work", "findings"), rows),
    )  # fmt: skip


def _sign(verdict: str) -> Child:
    sign = SIGNS.get(verdict)
    return state(verdict) if sign in (None, verdict) else joined(state(sign), ": ", verdict)


def _tally(each: Mapping[str, Any], cluster: str) -> str:
    return tally([CertifiedRun(**run) for run in each["runs"]], cluster)
