"""The folder of a run, which has report.json and report.html.

Only the owner can read the folder. A report is checked when it is read, since it may come from
anywhere.
"""

import os
import stat
import time
from dataclasses import replace
from pathlib import Path

from ...deploy.cluster.advice import shell_command
from ...deploy.cluster.failure import Failure
from ...deploy.cluster.private import make_private_directory, write_private
from .run_page import run_file
from .run_report import BYTES_MAX, RunReport, read_report

DATA, PAGE = "report.json", "report.html"


def keep_report(report: RunReport, folder: Path, page: Path | None = None) -> Path:
    """Write report.json and the page to the folder, and return the path of the page.

    Only the owner can read the folder. page: a path for the page outside of the folder.
    """
    make_private_directory(folder)
    report = replace(report, made_ms=time.time_ns() // 1_000_000)
    write_private(folder / DATA, report.as_json())
    page = page or folder / PAGE
    page.write_text(run_file(report), encoding="utf-8")
    return page


def report_in(folder: Path) -> RunReport:
    """Read the report of a folder, or raise Failure with a sentence if it is missing or invalid."""
    file = folder / DATA
    try:
        # Opening a pipe would wait for its writer.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Failure(f"{file} is not a file.", exit_code=2)
            data = opened.read(BYTES_MAX + 1)
    except OSError as problem:
        raise Failure(_missing(folder, problem), exit_code=2) from None
    if len(data) > BYTES_MAX:
        raise Failure(
            f"{file} has more than the {BYTES_MAX // 1_000_000} MB that are shown.", exit_code=2
        )
    try:
        return read_report(data)
    except ValueError as problem:
        raise Failure(f"{file} cannot be shown: {problem}.", exit_code=2) from None


def _missing(folder: Path, problem: OSError) -> str:
    if not os.path.isdir(folder):
        return f"{folder} is not a folder that can be read."
    if not isinstance(problem, FileNotFoundError):
        return f"{folder / DATA} cannot be read ({problem.strerror})."
    if (folder / "run.json").exists():
        return f"{folder} has no {DATA} yet. Write it: {shell_command('chaos report', folder)}"
    return (
        f"{folder} has no {DATA}. It is written by: oncelog chaos run, and prove, demo and bench "
        "with --keep DIR."
    )
