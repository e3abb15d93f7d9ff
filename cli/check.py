"""`oncelog check` runs the judge on a recorded run, a cluster's files, or a live topic."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from ..deploy.cluster.failure import Failure
from ..deploy.cluster.terminal import closable, say, show
from .common import QUERY, Query, headings, judging, print_report, require

if TYPE_CHECKING:
    from ..proof.judge.history.columns import History

LARGE_BYTES = 2 << 30


def register(app: App) -> None:
    """Add the command of this file to `app`."""
    app.command(check)


@judging()
def check(
    target: Annotated[
        str | None,
        Parameter(help="The directory of a run, the directory of a cluster, or a topic."),
    ] = None,
    /,
    *,
    only: Annotated[
        list[str] | None,
        Parameter(help="Run only these checks (--catalogue lists them).", negative=()),
    ] = None,
    evidence: Annotated[
        bool, Parameter(help="Print all details of each case.", negative=())
    ] = False,
    catalogue: Annotated[bool, Parameter(help="List all anomalies.", negative=())] = False,
    query: Query = QUERY,
) -> int:
    """Judge a recorded run, the files of a cluster, or a topic of any Kafka-compatible cluster.

    The exit code is 1 if a promise was broken, and 2 if nothing was judged. If the logs are too
    large for the memory of this machine, run the audit on Spark by python -m oncelog.proof.audit
    (docs/audit.md).
    """
    require("check", "numpy", "pyarrow")
    if catalogue:
        from ..proof.judge.report import catalogue_rows

        with closable(sys.stdout):
            columns = headings("check", "anomaly", "what", "kind")
            show(catalogue_rows(), query.format, columns=columns)
        return 0
    if target is None:
        raise Failure("Name a run's directory or a topic, or ask for --catalogue.", exit_code=2)
    place = Path(target)
    if (place / "history").is_dir():
        return _judge(_of_run(place), only, evidence, query.format)
    if (place / "cluster.json").exists():
        return _judge(_of_files(place), only or ["A4", "W1", "W2", "W3"], evidence, query.format)
    if place.is_dir():
        raise Failure(f"{target} holds no history/: it is not the directory of a run.", exit_code=2)
    if only:
        raise Failure("--only chooses among the checks of a run, not of a topic.", exit_code=2)
    import asyncio

    from ..proof.judge.logs.topic_audit import audit_topic
    from ..proof.judge.report import audit_fields, audit_words

    config = query.client_config()
    with query.as_failures():
        # An event loop is only started here, because the other cases would then ignore Ctrl-C.
        audit = asyncio.run(audit_topic(config, target, say))
    print_report(audit_fields(audit), audit_words(audit, evidence=evidence), query.format)
    return 0 if audit.is_clean else 1


def _of_run(run: Path) -> "History":
    from ..proof.judge.history.columns import History
    from ..proof.judge.history.format import HistoryFormat

    try:
        return History.open(run)
    except HistoryFormat as problem:
        raise Failure(f"{problem}.") from None


def _of_files(data: Path) -> "History":
    from ..proof.judge.history.columns import History
    from ..proof.judge.history.recorder import Recorder
    from ..proof.judge.logs.scan import dump_logs

    size_bytes = sum(file.stat().st_size for file in data.glob("node-*/*/*.log"))
    if size_bytes > LARGE_BYTES:
        say(
            f"{size_bytes / 2**30:.0f} GB of logs; with too little memory, audit them on Spark: "
            f"python -m oncelog.proof.audit --cluster {data}"
        )
    recorder = Recorder.in_memory()
    say(f"{dump_logs(recorder, data):,} batches read")
    return History.of(recorder, settings={"is_at_rest": False})


def _judge(history: "History", only: list[str] | None, evidence: bool, output: str) -> int:
    from ..proof.judge.catalogue import CHECKS
    from ..proof.judge.history.format import HistoryFormat
    from ..proof.judge.report import verdict_fields, verdict_words
    from ..proof.judge.verdict import judge

    names = [check.name for check in CHECKS]
    if unknown := ", ".join(sorted({*(only or ())} - {*names})):
        there_are = ", ".join(names)
        raise Failure(f"There is no check {unknown}; there are {there_are}.", exit_code=2)
    try:
        verdict = judge(history, only)
    except HistoryFormat as problem:  # columns are read when they are asked for
        raise Failure(f"{problem}.") from None
    print_report(verdict_fields(verdict), verdict_words(verdict, evidence=evidence), output)
    return 0 if verdict.is_clean else 1
