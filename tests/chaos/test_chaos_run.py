"""Test `oncelog chaos run` with faults of many kinds under load from real clients.

The default test runs 24 seconds. The test with the marker `chaos` runs two minutes.
The long run (1,000 faults, 2 million operations, 45 minutes) is the command in docs/chaos.md.
"""

import json
import resource
from pathlib import Path
from typing import Any

import psutil
import pytest

from oncelog.deploy.cluster import layout
from oncelog.deploy.cluster.ports import is_refused
from oncelog.proof.chaos.run import settings_of

from ..programs import CLI, run_to_end

pytestmark = [pytest.mark.cluster]
SEED = 20_261
# At 50 faults a minute some schedules leave no majority for half of the run.
PACE = ["--rate", "42", "--pause", "4"]
# The CPU time that a run was measured to need on an idle machine: 27 s for starts, restarts and
# the judge, and 10 ms for each transaction with its records, requests and reads.
FIXED_CPU_S, TRANSACTION_CPU_S, MARGIN = 27.0, 0.0102, 0.7


def cpu_s_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def attainable(wanted: int, cpu_s: float) -> int:
    """Return the wanted number of transactions, or fewer if the run got too little CPU time."""
    possible = (cpu_s - FIXED_CPU_S) / TRANSACTION_CPU_S
    if possible >= wanted:
        return wanted
    print(f"the run got {cpu_s:.0f} s of CPU: not enough for {wanted} transactions")
    return max(0, int(MARGIN * possible))


def chaos(*arguments: str, timeout_s: float) -> tuple[int, str, str]:
    done = run_to_end([*CLI, "chaos", *arguments], timeout_s)
    return done.returncode, done.stdout, done.stderr


def assert_nothing_is_left(run: Path) -> None:
    """Assert that no process, port, socket or temporary file of the run is left."""
    file = layout.read(run / "cluster")
    assert file is not None
    assert not Path(file.peer_directory).exists()
    assert all(is_refused(node.port, node.host) for node in file.nodes)
    for process in psutil.process_iter():
        try:
            assert str(run) not in " ".join(process.cmdline()), process
        except psutil.Error:
            continue
    assert list(run.parent.iterdir()) == [run]


def run_and_judge(run: Path, *, seconds: int, timeout_s: float) -> dict[str, Any]:
    code, told, words = chaos(
        "run", "--out", str(run), "--seconds", str(seconds), "--seed", str(SEED), *PACE,
        "--keep", "--format", "json", timeout_s=timeout_s,
    )  # fmt: skip
    assert told, f"exit code {code}, and no verdict: {words}"
    found = json.loads(told)
    outcome, verdict = found["outcome"], found["verdict"]
    print(json.dumps({"counts": found["counts"], "outcome": outcome}, indent=1))
    violations = [one for one in verdict["findings"] if one["is_violation"]]
    reasons = outcome["broken"] or violations or outcome["missed"] or words
    assert found["is_clean"] and code == 0, f"exit code {code}, {reasons}"
    return found


def test_chaos_run_with_faults_of_many_kinds_has_a_clean_verdict(tmp_path: Path) -> None:
    run, before = tmp_path / "run", cpu_s_of_children()
    found = run_and_judge(run, seconds=24, timeout_s=240)
    wanted = attainable(300, cpu_s_of_children() - before)
    faults = found["outcome"]["faults"]
    assert sum(faults.values()) >= 5 and len(faults) >= 5, found["outcome"]
    assert found["verdict"]["operations"] >= 5_000
    assert found["counts"]["transactions"] >= wanted
    assert not found["verdict"]["not_judged"]
    assert {path.name for path in run.iterdir()} == {
        "run.json", "history", "nodes", "workers", "cluster", "report.json", "report.html",
    }  # fmt: skip
    assert_nothing_is_left(run)
    assert settings_of(run).seed == SEED
    code, page, words = chaos("report", str(run), timeout_s=120)
    assert code == 0, words
    html = Path(page.strip()).read_text()
    assert "<svg" in html and "http://" not in html and "https://" not in html
    assert all(kind in html for kind in faults)


@pytest.mark.chaos
def test_chaos_run_of_two_minutes_with_60_faults_has_a_clean_verdict(tmp_path: Path) -> None:
    before = cpu_s_of_children()
    found = run_and_judge(tmp_path / "run", seconds=120, timeout_s=400)
    wanted = attainable(3_000, cpu_s_of_children() - before)
    faults = found["outcome"]["faults"]
    assert sum(faults.values()) >= 60 and len(faults) >= 15, found["outcome"]
    assert found["verdict"]["operations"] >= 36_000
    assert found["counts"]["transactions"] >= wanted
    assert_nothing_is_left(tmp_path / "run")
