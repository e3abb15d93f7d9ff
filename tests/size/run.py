"""Run heavy cases, one after the other, each on a fresh cluster of three nodes with a probe.

No ApiVersions may be answered later than 200 ms, and no living broker may be fenced. Otherwise the
exit code is 1. The measurements require an otherwise idle machine. In the printed table, WAIT is
the time for which the nodes and the probe together waited for a processor. LESS is the longest
latency of an answer, from which waits for a processor are subtracted.
"""

import argparse
import json
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from oncelog import Cluster
from oncelog.deploy.cluster.terminal import show

from .batches import compacted, search
from .epochs import epochs
from .journal import journal
from .load import flush, tail
from .members import members
from .partitions import create, delete
from .readers import repeated, unread
from .restart import restart
from .stage import Outcome, Stage, judge, names_of

CASES = names_of((
    create, search, compacted, journal, flush, unread, repeated, delete, restart, tail,
    members, epochs,
))  # fmt: skip
COLUMNS = {
    "case": "CASE",
    "done": "WHAT",
    "seconds": "S",
    "max_ms": "MAX ms 1/2/3",
    "p99_ms": "P99 ms",
    "less_wait_ms": "LESS ms",
    "wait_ms": "WAIT ms",
    "fences": "FENCED",
    "rss_mb": "RSS MB",
    "verdict": "",
}


def play(name: str, cluster: Cluster, *, is_short: bool) -> Outcome:
    """Run one case on a running cluster, and return its outcome without a verdict."""
    stage = Stage(name, cluster, is_short=is_short)
    try:
        CASES[name](stage)
    except Exception as problem:
        traceback.print_exc()
        stage.outcome.problems.append(f"{type(problem).__name__}: {problem}")
    return stage.outcome


def row(outcome: Outcome) -> dict[str, object]:
    """Return the outcome of a case as a line of the printed table."""
    found: dict[str, object] = {
        "case": outcome.case,
        "done": "; ".join(
            words for words in (outcome.done, outcome.skipped, *outcome.notes) if words
        ),
        "verdict": ("skipped" if outcome.skipped else "ok") if outcome.is_good else "RED",
    }
    if outcome.seen is not None:
        nodes = outcome.seen.probe.nodes
        waited_ms = outcome.seen.probe.waited_ms + sum(node.waited_ms for node in nodes)
        found |= {
            "seconds": round(outcome.seconds, 1),
            "max_ms": " / ".join(f"{node.max_ms:,.0f}" for node in nodes),
            "p99_ms": " / ".join(f"{node.p99_ms:,.0f}" for node in nodes),
            "less_wait_ms": f"{outcome.seen.probe.max_less_wait_ms:,.0f}",
            "wait_ms": round(waited_ms),
            "fences": sum(outcome.seen.fences.values()),
            "rss_mb": round(max(node.rss_max_bytes for node in nodes) / 1e6),
        }
    return found


def print_findings(outcome: Outcome) -> None:
    """Print the exceeded limits, and the stalls that the nodes' own watchdogs counted."""
    for problem in outcome.problems:
        print(f"    {outcome.case}: {problem}")
    if outcome.seen is None:
        return
    for node_id, sentences in outcome.seen.stalls.items():
        for sentence in sentences[:5]:
            print(f"    {outcome.case}: node {node_id}: {sentence}")
        loop = outcome.seen.loops.get(node_id)
        if sentences and isinstance(loop, dict):
            counted = ", ".join(f"{k} {v}" for k, v in loop.items() if isinstance(v, int | float))
            print(f"    {outcome.case}: node {node_id}: since its start {counted}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases. Return 0 if every case keeps its limits, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.size.run", description=__doc__)
    parser.add_argument("--only", metavar="NAME,...", help=f"run only these of {', '.join(CASES)}")
    parser.add_argument("--short", action="store_true", help="run the cases at small sizes")
    parser.add_argument("--json", metavar="F", type=Path, help="write all measurements to F")
    options = parser.parse_args(arguments)
    names = options.only.split(",") if options.only else list(CASES)
    if unknown := [name for name in names if name not in CASES]:
        parser.error(f"no such case: {', '.join(unknown)}; there are {', '.join(CASES)}")
    outcomes: list[Outcome] = []
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        with Cluster(3) as cluster:
            outcomes.append(judge(play(name, cluster, is_short=options.short)))
    show([row(outcome) for outcome in outcomes], "table", columns=COLUMNS)
    for outcome in outcomes:
        print_findings(outcome)
    if options.json:
        options.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    return 0 if all(outcome.is_good for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
