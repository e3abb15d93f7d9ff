"""Reports of made-up runs, which tests show as pages."""

from oncelog.proof.pages.run_report import (
    BarChart,
    FaultSpan,
    RunCurve,
    RunReport,
    RunTable,
    StoryLine,
    WorkMark,
)

KILL = "FAULT kill -9 of instance-1 before its OffsetCommit"
MARKUP = "</style><script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u202e\x00\ud800&lt;"


def violated(words: str = "") -> RunReport:
    """Return a run with a duplicated record. `words` is appended to all of its texts."""

    def text(plain: str) -> str:
        return f"{plain}{words}"

    return RunReport(
        command=text("oncelog prove"),
        state="bad",
        verdict=text("AT LEAST ONCE: 1 doubled"),
        facts=[(text("inputs"), 300), (text("seed"), text("41"))],
        words=[text("instance-2 was restarted by its liveness probe")],
        story_of=text("r-7, doubled"),
        story=[
            StoryLine(None, "", text("input r-7 stands at in/0@7")),
            StoryLine(3.25, text("instance-1"), text("wrote its output out/0@9")),
            StoryLine(3.5, text("instance-1"), text(KILL)),
            StoryLine(5.0, text("instance-2"), text("wrote its output out/0@11")),
        ],
        seconds=20.0,
        curves=[RunCurve(text("written"), text("records/s"), [(0.5, 10.0), (10.5, 30.0)])],
        spans=[
            FaultSpan(text("instance-1"), 3.5, 4.0, text("kill -9 of instance-1")),
            FaultSpan("", 9.0, 9.5, text("kill -9 of node 2")),
        ],
        marks=[WorkMark(text("instance-1"), 3.25), WorkMark(text("instance-2"), 5.0)],
        charts=[BarChart(text("MB/s"), [(text("RF 1"), 120.0), (text("RF 3"), 60.0)])],
        tables=[
            RunTable(
                text("Settings"),
                (text("What"), text("Value")),
                [(text("application"), text("python invoices.py")), ("rate", 50.0)],
            )
        ],
    )


def hostile() -> RunReport:
    """Return a run with HTML markup in all of its texts."""
    return violated(MARKUP)
