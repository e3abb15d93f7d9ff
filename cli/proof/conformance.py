"""`oncelog conformance` lists what a cluster serves, and what it lacks compared with another."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from ...deploy.cluster.terminal import say, show, tell
from ..common import QUERY, Query, check_bootstrap

if TYPE_CHECKING:
    from ...proof.conformance.compare import ConformanceRow
    from ...proof.conformance.survey import Survey


def register(app: App) -> None:
    """Add the command of this file to `app`."""
    app.command(conformance)


def conformance(
    *,
    against: Annotated[
        str | None,
        Parameter(
            help="Compare with the cluster at HOST:PORT,..., for example Apache Kafka.",
            validator=check_bootstrap,
        ),
    ] = None,
    against_config: Annotated[
        Path | None,
        Parameter(
            help="Read the TLS and SASL settings for --against from this client.properties file."
        ),
    ] = None,
    query: Query = QUERY,
) -> int:
    """Send one request for each API and version, and print the answers. Nothing is changed.

    With --against, print what this cluster lacks or answers differently. The exit code is 1 if a
    difference has no known reason, or if a cluster stopped answering (docs/conformance.md).
    """
    from ...proof.conformance.compare import compared, counts, reasons_for
    from ...proof.conformance.report import report_fields

    ours = _survey(query)
    if against is None:
        _print_survey(ours, report_fields(ours, None, ()), query.format)
        return 1 if ours.stopped else 0
    other = replace(query, bootstrap=against, command_config=against_config, profile=None)
    theirs = _survey(other)
    rows = compared(ours, theirs, reasons_for(ours))
    _print_rows(rows, ours, theirs, report_fields(ours, theirs, rows), query.format)
    return 1 if counts(rows)["without"] or ours.stopped or theirs.stopped else 0


def _survey(query: Query) -> "Survey":
    from ...proof.conformance.surveying import survey

    config = query.client_config()
    with query.as_failures():
        return survey(config, say)


def _print_survey(survey: "Survey", fields: dict[str, Any], output: str) -> None:
    from ...proof.conformance.report import API_COLUMNS, api_rows, stopped_lines, survey_lines

    if output == "json":
        print(json.dumps(fields))
        return
    tell(f"{survey.address}, cluster {survey.cluster_id or 'without an id'}")
    show(api_rows(survey), output, columns=API_COLUMNS)
    tell(*survey_lines(survey), *stopped_lines(survey))


def _print_rows(
    rows: "list[ConformanceRow]",
    ours: "Survey",
    theirs: "Survey",
    fields: dict[str, Any],
    output: str,
) -> None:
    from ...proof.conformance.report import ROW_COLUMNS, reason_lines, summary, unexplained_rows

    if output == "json":
        print(json.dumps(fields))
        return
    if lines := list(reason_lines(rows)):
        tell(*lines)
    if unexplained := unexplained_rows(rows):
        show(unexplained, output, columns=ROW_COLUMNS)
    tell(*summary(rows, {"ours": ours, "theirs": theirs}))
