"""The views of a run without I/O, with verdict, record events, timeline of faults, and figures."""

from collections.abc import Sequence

from .axis import AxisRow, Curve, TimeAxis
from .document import SERVED_ICON, SERVED_STYLE, document, masthead, own_style
from .markup import Child, Html, element, joined
from .parts import clock, facts, number, section, state, table
from .run_report import BarChart, Cell, FaultSpan, RunReport, RunTable, StoryLine

ROWS_MAX, SPANS_MAX, MARKS_MAX, AXIS_ROWS_MAX = 500, 2_000, 5_000, 60
BAR_WIDTH, BAR_HEIGHT = 240, 12
WORDS = {"ok": "kept", "note": "nothing is proved", "bad": "broken"}


def run_file(report: RunReport) -> str:
    """Return the page of a run as an HTML file that needs neither a server nor a network."""
    return _page(report, report.command, own_style())


def run_view(report: RunReport, folder: str) -> str:
    """Return the page of a run as `oncelog ui` serves it, with the name of the run's folder."""
    return _page(report, f"{report.command} in {folder}", [SERVED_STYLE, SERVED_ICON])


def _page(report: RunReport, about: str, style: Sequence[Html]) -> str:
    parts = {
        "verdict": ("Verdict", _verdict(report)),
        "story": ("Story of one record", _story(report)),
        "timeline": ("Timeline", _timeline(report)),
        "faults": ("Faults", _faults(report.spans)),
        "figures": ("Figures", joined([_chart(chart) for chart in report.charts])),
        "tables": ("Tables", joined([_table(each) for each in report.tables])),
    }
    shown = {name: part for name, part in parts.items() if part[1]}
    links = [element("a", title, href=f"#{name}") for name, (title, _) in shown.items()]
    made = element("span", "written at ", clock(report.made_ms, with_date=True), class_="age")
    main = element(
        "main",
        element("h1", report.command),
        [section(name, title, part) for name, (title, part) in shown.items()],
        id="content",
        tabindex="-1",
    )
    return document(report.command, masthead(about, links, made), main, *style)


def _verdict(report: RunReport) -> Html:
    sign = joined(state(WORDS[report.state]), ": ") if report.state else None
    words = [element("li", line) for line in report.words[:ROWS_MAX]]
    return joined(
        element("p", sign, element("strong", report.verdict), class_="heading"),
        facts([(name, _shown(value)) for name, value in report.facts[:ROWS_MAX]]),
        element("ul", words) if words else None,
        _left_out(len(report.words)),
    )


def _story(report: RunReport) -> Html:
    if not report.story:
        return joined()
    rows = [[_at(line.at_s), line.who or "-", _step(line)] for line in report.story[:ROWS_MAX]]
    body = table("Story of one record", ("Time", "Who", "What"), rows)
    return joined(element("p", report.story_of), body, _left_out(len(report.story)))


def _step(line: StoryLine) -> Child:
    """Return one event of an explanation as HTML, with a symbol if the event is a fault."""
    if not line.what.startswith("FAULT"):
        return line.what
    return element("strong", element("span", "■ ", aria_hidden="true"), line.what)


def _timeline(report: RunReport) -> Html:
    names = list(dict.fromkeys([*(m.row for m in report.marks), *(s.row for s in report.spans)]))
    rows = [
        AxisRow(
            name or "all",
            spans=[
                (_ms(s.start_s), _ms(s.end_s), s.words)
                for s in report.spans[:SPANS_MAX]
                if s.row == name
            ],
            marks=[_ms(mark.at_s) for mark in report.marks[:MARKS_MAX] if mark.row == name],
        )
        for name in names[:AXIS_ROWS_MAX]
    ]
    curves = [
        Curve(each.name, each.unit, [(_ms(at_s), value) for at_s, value in each.points])
        for each in report.curves
        if each.points
    ]
    if not rows and not curves:
        return joined()
    axis = TimeAxis(
        start_ms=0, end_ms=max(1, _ms(report.seconds)), label=lambda at_ms: f"{at_ms / 1000:g} s"
    )
    title = f"{len(report.spans)} faults in {report.seconds:.0f} s; the table below names each"
    about = "Bars are faults." + " Short strokes are work." * bool(report.marks)
    words = element("p", about, class_="about") if rows else None
    return joined(words, axis.picture(title, curves, rows))


def _faults(spans: Sequence[FaultSpan]) -> Html:
    if not spans:
        return joined()
    rows = [
        [_at(span.start_s), _at(span.end_s), span.row or "all", span.words]
        for span in spans[:ROWS_MAX]
    ]
    body = table("Faults", ("From", "To", "Of", "What"), rows, numbers=(0, 1))
    return joined(body, _left_out(len(spans)))


def _chart(chart: BarChart) -> Html:
    highest = max((value for _, value in chart.bars), default=0.0) or 1.0
    rows = [[name, _bar(value / highest), _shown(value)] for name, value in chart.bars[:ROWS_MAX]]
    return joined(
        element("h3", chart.title),
        table(chart.title, ("What", "Bar", "Value"), rows, numbers=(2,), empty="not known here"),
        _left_out(len(chart.bars)),
    )


def _bar(share: float) -> Html:
    width = f"{max(0.0, min(1.0, share)) * BAR_WIDTH:.1f}"
    drawn = element("rect", x=0, y=0, width=width, height=BAR_HEIGHT, class_="log readable")
    box = f"0 0 {BAR_WIDTH} {BAR_HEIGHT}"
    return element(
        "svg", drawn, viewBox=box, width=BAR_WIDTH, height=BAR_HEIGHT, aria_hidden="true"
    )


def _table(found: RunTable) -> Html:
    columns = zip(*found.rows[:ROWS_MAX], strict=True)
    numbers = [
        at for at, column in enumerate(columns) if not any(isinstance(v, str) for v in column)
    ]
    rows = [[_shown(value) for value in row] for row in found.rows[:ROWS_MAX]]
    return joined(
        element("h3", found.title),
        table(found.title, found.headings, rows, numbers=numbers),
        _left_out(len(found.rows)),
    )


def _left_out(count: int) -> Html | None:
    if count <= ROWS_MAX:
        return None
    return element("p", f"and {count - ROWS_MAX:,} more in report.json")


def _shown(value: Cell) -> str:
    """Return a number as text with two decimals, since latencies are often below a millisecond."""
    if isinstance(value, str):
        return value
    return number(value) if value is None or value == round(value) else f"{value:,.2f}"


def _at(at_s: float | None) -> str:
    return "-" if at_s is None else f"{at_s:.3f} s"


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
