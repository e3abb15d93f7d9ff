"""Test the table and the file of the gallery, and four of its applications for a short time.

`python -m tests.prove.gallery` runs all applications by seeds.
"""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

import oncelog
from oncelog.proof.prove.diagnosis.catalogue import CATALOGUE

from .gallery import runner
from .gallery.entries import ENTRIES, FOREIGN, RIGHT, SLOW, WRONG
from .gallery.runner import Cell, cells, run_all, run_one, table

NAME = "confluent-offsets-outside"
FOUND = ["offsets-outside-transaction"]


def test_gallery_entry_of_each_wrong_application_lists_its_verdicts_and_findings() -> None:
    assert len(WRONG) >= 14
    for entry in WRONG:
        assert entry.wrong, entry.name
        assert entry.verdicts, entry.name
        assert entry.findings, entry.name
        assert entry.findings <= CATALOGUE.keys(), entry.name
    assert not any(entry.wrong or entry.findings for entry in RIGHT)
    assert all(entry.wrong and entry.verdicts and not entry.findings for entry in FOREIGN)
    assert len(SLOW) >= 6
    for entry in SLOW:
        assert entry.wrong and entry.verdicts and entry.findings <= CATALOGUE.keys(), entry.name
    assert len(ENTRIES) == len(RIGHT) + len(WRONG) + len(SLOW) + len(FOREIGN), "a name stands twice"


@pytest.mark.parametrize(
    ("name", "verdict", "found", "is_as_expected", "is_named"),
    [
        (NAME, "AT LEAST ONCE", FOUND, True, True),
        (NAME, "AT LEAST ONCE", [*FOUND, "no-idempotence"], True, True),
        (NAME, "AT LEAST ONCE", [], True, False),
        (NAME, "EXACTLY ONCE", FOUND, False, True),
        (NAME, "PROVES NOTHING", FOUND, False, True),
        (NAME, "NO RUN", [], False, False),
        ("confluent-right", "EXACTLY ONCE", [], True, True),
        ("confluent-right", "EXACTLY ONCE", FOUND, False, True),
        ("confluent-right", "AT LEAST ONCE", [], False, True),
        ("confluent-right", "NO RUN", [], False, True),
    ],
)
def test_gallery_cell_is_as_expected_by_its_verdict_and_named_by_its_findings(
    name, verdict, found, is_as_expected, is_named
) -> None:
    cell = Cell(name, 1, verdict, found, [], "", 1.0)
    assert (cell.is_as_expected, cell.is_named) == (is_as_expected, is_named)


def test_gallery_cells_already_in_the_file_are_not_run_again(tmp_path, monkeypatch) -> None:
    file, ran = tmp_path / "cells", list[int]()

    def run(entry, seed, folder, out, **options) -> Cell:
        ran.append(seed)
        return Cell(entry.name, seed, "AT LEAST ONCE", FOUND, [], "", 1.0)

    monkeypatch.setattr(runner, "run_one", run)
    file.write_text(json.dumps(asdict(Cell(NAME, 1, "EXACTLY ONCE", [], [], "", 1.0))) + "\n")
    assert len(run_all([ENTRIES[NAME]], [1, 2, 3], file)) == 3
    assert ran == [2, 3]
    assert len(cells(file)) == 3
    (row,) = [line for line in table(cells(file)).splitlines() if line.startswith(f"| {NAME}")]
    assert "| 2 of 3 | 2 of 3 | AT LEAST ONCE, EXACTLY ONCE |" in row


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("name", "faults"),
    [
        ("confluent-right", "lose-answer@EndTxn,kill@before-EndTxn"),
        ("confluent-offsets-outside", "kill@before-commit"),
        # Twice: right after its commit by timer a kill doubles nothing.
        ("confluent-plain-defaults", "kill@executed-Produce,kill@executed-Produce"),
        ("confluent-commit-before-send", "kill@before-produce"),
        ("oncelog-right-consumer", "lose-answer@ConsumerGroupHeartbeat,kill@rebalance"),
    ],
)
def test_gallery_application_gets_its_expected_verdict(
    name: str, faults: str, tmp_path: Path, oncelog_cluster: oncelog.Cluster
) -> None:
    cell = run_one(ENTRIES[name], 1, tmp_path, faults=faults, bootstrap=oncelog_cluster.bootstrap)
    assert cell.is_as_expected, cell
    assert cell.is_named or not cell.entry.wrong, cell
