"""The files of a run's directory, with outcome.json, its report, and the application's logs."""

from collections.abc import Mapping
from pathlib import Path

from ..pages.junit import JunitCase, Problem, junit_xml
from ..pages.run_folder import keep_report
from ..pages.run_report import FaultSpan, RunReport, RunTable, StoryLine, WorkMark
from .facts import TransactionEnded, Wrote
from .judgement import PROVED, VIOLATED
from .outcome import ProveOutcome

PROBLEMS: Mapping[int, Problem] = {PROVED: "", VIOLATED: "failure"}
MARKS_A_ROW_MAX = 800  # more cannot be told apart on the axis


def keep_outcome(outcome: ProveOutcome, directory: Path) -> Path:
    """Write all files of a run, and return the path of the HTML page."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    (directory / "outcome.json").write_text(outcome.as_json())
    (directory / "settings.json").write_text(outcome.settings.as_json())
    return keep_report(report_of(outcome), directory)


def junit_of(outcome: ProveOutcome) -> str:
    """Return JUnit XML of the run.

    A violation is a failure. A run that proves nothing is an error, because a test that was not
    made must not pass.
    """
    case = JunitCase(
        suite="oncelog.prove",
        name=f"{' '.join(outcome.settings.command)}, seed {outcome.settings.seed}",
        seconds=outcome.seconds,
        problem=PROBLEMS.get(outcome.exit_code, "error"),
        message=outcome.verdict.line,
        text="\n".join(outcome.lines()),
    )
    return junit_xml("oncelog prove", [case])


def report_of(outcome: ProveOutcome) -> RunReport:
    """Return the report of an outcome, whose times begin with the run."""
    j, s, begun = outcome.judgement, outcome.settings, outcome.begun_s
    times = [f.at_s for f in outcome.facts] + [x.until_s for x in outcome.struck]
    settings = {
        "application": " ".join(s.command),
        "seed": str(s.seed),
        "groups": ", ".join(outcome.groups) or "none",
        "transactional ids": ", ".join(outcome.transactional_ids) or "none",
        "timeouts lowered": "; ".join(outcome.lowered) or "none",
    }
    seconds = max(1.0, max(times, default=begun) - begun)
    return RunReport(
        command="oncelog prove",
        state={0: "ok", 1: "bad"}.get(outcome.exit_code, "note"),
        verdict=outcome.verdict.line,
        facts=[
            ("instances", s.instances),
            ("inputs", j.inputs),
            ("outputs", j.outputs),
            ("doubled", len(j.doubled)),
            ("lost", len(j.lost)),
            ("not through", len(j.pending)),
            ("of no input", len(j.stray)),
            ("of aborted inputs", len(j.aborted)),
            ("wrong at the end", len(j.wrong)),
        ],
        words=outcome.notes,
        story_of=outcome.story_of,
        story=[
            StoryLine(None if at is None else at - begun, who, what)
            for at, who, what in outcome.story
        ],
        seconds=seconds,
        spans=[
            FaultSpan(x.instance, x.at_s - begun, max(x.at_s, x.until_s) - begun, x.what)
            for x in outcome.made
        ],
        marks=_marks(outcome, seconds),
        tables=[
            RunTable(
                "What the protocol shows",
                ("Finding", "Instance", "What", "Seen", "Why it matters", "Remedy"),
                [
                    (f.kind.name, f.instance, f.kind.title, f.evidence, f.kind.why, f.kind.remedy)
                    for f in outcome.findings
                ],
            ),
            RunTable(
                "Faults and what they met",
                ("At, s", "Fault", "Instance", "What", "Work in flight"),
                [
                    (
                        round(x.at_s - begun, 2),
                        x.name,
                        x.instance or "all",
                        x.what,
                        str(x.met) if x.is_made else "not made",
                    )
                    for x in outcome.struck
                ],
            ),
            RunTable("Settings", ("What", "Value"), list(settings.items())),
        ],
    )


def _marks(outcome: ProveOutcome, seconds: float) -> list[WorkMark]:
    """Return times at which each instance wrote a batch or ended a transaction, to draw them."""
    found: dict[tuple[str, int], WorkMark] = {}
    for fact in outcome.facts:
        if isinstance(fact, (Wrote, TransactionEnded)):
            at_s = fact.at_s - outcome.begun_s
            place = fact.instance, int(at_s / seconds * MARKS_A_ROW_MAX)
            found.setdefault(place, WorkMark(fact.instance, at_s))
    return list(found.values())
