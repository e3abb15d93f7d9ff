"""Test the files that a run writes to its folder, and folders without a run."""

import os
import stat
from pathlib import Path

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.proof.pages.run_folder import keep_report, report_in
from oncelog.proof.pages.run_report import BYTES_MAX

from .known_runs import violated


def test_run_report_is_private_to_its_owner_and_read_back(tmp_path: Path) -> None:
    page = keep_report(violated(), tmp_path / "run")
    assert page == tmp_path / "run" / "report.html"
    assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700
    report = report_in(page.parent)
    assert report.made_ms > 0 and report.story[1].who == "instance-1"
    assert "AT LEAST ONCE" in page.read_text()


def test_run_report_kept_again_replaces_the_old_report(tmp_path: Path) -> None:
    keep_report(violated(" and much more than before" * 50), tmp_path)
    keep_report(violated(), tmp_path)
    assert report_in(tmp_path).command == "oncelog prove"


def refused(folder: Path) -> str:
    with pytest.raises(Failure) as caught:
        report_in(folder)
    assert caught.value.exit_code == 2
    (line,) = str(caught.value).splitlines()
    return line


def test_run_report_folder_without_a_run_is_refused_with_a_message(tmp_path: Path) -> None:
    assert "is not a folder that can be read" in refused(tmp_path / "none")
    assert "prove, demo and bench with --keep DIR" in refused(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    assert f"oncelog chaos report {tmp_path}" in refused(tmp_path)
    (tmp_path / "report.json").write_text(violated().as_json()[:500])
    assert "cannot be shown: it is not JSON" in refused(tmp_path)
    assert "is not a folder" in refused(tmp_path / "report.json")


def test_run_report_file_that_is_far_too_large_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "report.json").open("wb") as file:
        file.truncate(BYTES_MAX * 1_000)
    assert "more than the 16 MB" in refused(tmp_path)


def test_run_report_that_is_a_pipe_or_folder_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "report.json")
    assert "is not a file" in refused(tmp_path)
    (tmp_path / "report.json").unlink()
    (tmp_path / "report.json").mkdir()
    assert "cannot be read" in refused(tmp_path)
