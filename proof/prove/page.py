"""What a run leaves in its directory: outcome.json, report.html, the logs of the application."""

from pathlib import Path

from ...deploy.cluster import html
from .outcome import ProveOutcome

WIDTH, ROW, LEFT = 1040.0, 22.0, 110.0
WORK, ENDS, OTHERS = "#448361", "#c14c8a", "#d9730d"  # the colours of the course
TICKS_MAX = 12
KILLS = ("kill", "stop", "remove", "broker")


def keep_outcome(outcome: ProveOutcome, directory: Path) -> Path:
    """Write both; returns the page."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    (directory / "outcome.json").write_text(outcome.as_json())
    (directory / "settings.json").write_text(outcome.settings.as_json())
    page = directory / "report.html"
    page.write_text(render(outcome))
    return page


def render(outcome: ProveOutcome) -> str:
    j, s = outcome.judgement, outcome.settings
    parts = [
        html.facts({
            "application": " ".join(s.command), "instances": s.instances, "seed": s.seed,
            "inputs": j.inputs, "outputs": j.outputs, "doubled": len(j.doubled),
            "lost": len(j.lost), "not through": len(j.pending), "of no input": len(j.stray),
            "of aborted inputs": len(j.aborted), "wrong at the end": len(j.wrong),
            "groups": ", ".join(outcome.groups) or "none",
            "transactional ids": ", ".join(outcome.transactional_ids) or "none",
            "timeouts lowered": "; ".join(outcome.lowered) or "none",
        }),
        html.section("The run", _legend() + _course(outcome)),
    ]  # fmt: skip
    if outcome.story:
        parts.append(html.section(f"The story of {outcome.story_of}", _story(outcome)))
    if outcome.findings:
        parts.append(html.section("What the protocol shows", _findings(outcome)))
    begun = outcome.begun_s
    rows = [
        (f"{x.at_s - begun:.2f}", x.name, x.instance, x.what, x.met if x.is_made else "not made")
        for x in outcome.struck
    ]
    parts.append(html.section(
        "The faults", html.table(("at, s", "fault", "instance", "what", "work in flight"), rows)
    ))  # fmt: skip
    return html.page("oncelog prove", outcome.verdict.line, *parts)


def _course(outcome: ProveOutcome) -> str:
    """A row an instance: when it wrote (marks), and the faults as bars."""
    begun = outcome.begun_s
    names = sorted({f.instance for f in outcome.facts} | {x.instance for x in outcome.struck})
    rows = {name: n for n, name in enumerate(name or "all" for name in names)}
    times = [f.at_s for f in outcome.facts] + [x.until_s for x in outcome.struck]
    span = max(1.0, max(times, default=begun) - begun)
    scale = (WIDTH - LEFT) / span
    drawn = [html.text(0, n * ROW + 15, name) for name, n in rows.items()]
    seen = set[tuple[str, int]]()
    for fact in outcome.facts:  # a mark for each pixel is enough
        x = LEFT + (fact.at_s - begun) * scale
        if (
            type(fact).__name__ in ("Wrote", "TransactionEnded")
            and (fact.instance, int(x)) not in seen
        ):
            seen.add((fact.instance, int(x)))
            drawn.append(html.bar(x, rows[fact.instance or "all"] * ROW + 8, 1, 8, WORK))
    for struck in outcome.made:
        x = LEFT + (struck.at_s - begun) * scale
        width = max(3.0, (struck.until_s - struck.at_s) * scale)
        colour = ENDS if struck.name.startswith(KILLS) else OTHERS
        y = rows[struck.instance or "all"] * ROW + 3
        drawn.append(html.bar(x, y, width, 16, colour, 'fill-opacity=".55"', struck.what))
    bottom = len(rows) * ROW + 8
    for at_s in _ticks(span):
        x = LEFT + at_s * scale
        drawn.append(html.bar(x, 0, 1, bottom, "#ddd"))
        drawn.append(html.text(x + 3, bottom + 12, f"{at_s:g} s"))
    return html.svg(WIDTH, bottom + ROW, drawn)


def _ticks(span_s: float) -> list[float]:
    """Where the axis of time is marked: at most a dozen round times."""
    steps = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
    step = next((s for s in steps if span_s / s <= TICKS_MAX), 3600)
    return [float(n * step) for n in range(int(span_s / step) + 1)]


def _legend() -> str:
    """What the colours of the course are."""
    drawn: list[str] = []
    for n, (colour, words) in enumerate((
        (WORK, "a batch was written, or a transaction ended"),
        (ENDS, "a fault that ends or removes a process"),
        (OTHERS, "another fault, as long as it lasted"),
    )):  # fmt: skip
        x = n * WIDTH / 3
        drawn += [html.bar(x, 4, 12, 12, colour), html.text(x + 18, 15, words)]
    return html.svg(WIDTH, ROW, drawn)


def _findings(outcome: ProveOutcome) -> str:
    rows = [
        (f.kind.name, f.instance, f.kind.title, f.evidence, f.kind.why, f.kind.remedy)
        for f in outcome.findings
    ]
    return html.table(("finding", "instance", "what", "seen", "why it matters", "remedy"), rows)


def _story(outcome: ProveOutcome) -> str:
    """Time downwards, an instance a column."""
    lines = list(outcome.story)
    columns = list(dict.fromkeys(who for _, who, _ in lines))
    place = {who: 90 + n * 26 for n, who in enumerate(columns)}
    text_at = 90 + len(columns) * 26 + 8
    drawn: list[str] = []
    for n, (at, who, what) in enumerate(lines):
        y = n * ROW + 14
        when = "" if at is None else f"{at - outcome.begun_s:.3f} s"
        is_fault = what.startswith("FAULT")
        colour = "#c14c8a" if is_fault else html.COLOURS[columns.index(who) % len(html.COLOURS)]
        drawn += [
            html.text(0, y, when),
            html.bar(place[who], y - 10, 12, 12, colour, title=who),
            html.text(text_at, y, f"{who}: {what}" if who else what),
        ]
    return html.svg(WIDTH, len(lines) * ROW + 10, drawn)
