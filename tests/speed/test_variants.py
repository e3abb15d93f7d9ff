"""Test that each row of the table has its figures, which mean little after so short a load."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog import Cluster

from .one_core import held_on, threads_of
from .variants import ROWS, main

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("speed")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as running:
        yield running


@pytest.mark.parametrize("row", ROWS)
def test_speed_row_of_each_kind_reports_positive_figures(
    cluster: Cluster, row: str, tmp_path: Path
) -> None:
    pids = ",".join(str(status.pid) for status in cluster.status())
    file = tmp_path / "figures.json"
    arguments = ["--bootstrap", cluster.bootstrap, "--pids", pids, "--seconds", "0.3"]
    assert main([*arguments, "--only", row, "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["rows"]
    assert rows
    for line, figures in rows.items():
        assert figures, line
        assert all(value > 0 for key, value in figures.items() if "cpu" not in key), (line, figures)
        assert any("cpu" in key for key in figures) or "live" in line, (line, figures)


def test_speed_run_pins_all_threads_to_a_core_and_unpins_the_threads_afterwards(
    cluster: Cluster,
) -> None:
    pids = [status.pid for status in cluster.status() if status.pid is not None]
    before = {tid: os.sched_getaffinity(tid) for pid in pids for tid in threads_of(pid)}
    core = max(os.sched_getaffinity(0))
    with held_on(core, pids):
        assert all(os.sched_getaffinity(tid) == {core} for pid in pids for tid in threads_of(pid))
    assert before == {tid: os.sched_getaffinity(tid) for tid in before}
