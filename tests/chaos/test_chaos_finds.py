"""Test that undirected chaos finds the bugs of broken brokers.

The directed runs of tests/switches trigger each bug deliberately. Here the random schedule and the
load must trigger the bug within a minute.
"""

from pathlib import Path

import pytest

from oncelog.deploy.faults.faulty_cluster import FaultyCluster
from oncelog.proof.chaos.load.settings import LoadSettings
from oncelog.proof.chaos.plan_settings import RunSettings
from oncelog.proof.chaos.run import ChaosRun
from oncelog.proof.chaos.verdict import judge_run, words

from .broken_faulty_node import node_with

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.filterwarnings("ignore")]
SECONDS, SEED = 35, 5
FOUND_AS = {
    "no-dedupe": {"duplicate", "sequence-repeated"},
    "no-stable-offset": {"dirty-read", "read-past-open"},
    "no-epoch-check": {"zombie-append", "zombie-write", "G1a"},
    "early-acknowledgement": {"lost-write", "unseen"},
    "lone-high-watermark": {"lost-write", "unseen", "inconsistent-offsets"},
}


@pytest.mark.parametrize("switch", FOUND_AS)
def test_chaos_run_of_nodes_with_a_planted_bug_reports_a_violation(
    switch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FaultyCluster, "node_type", node_with(switch))
    load = LoadSettings(pause_ms=4)
    settings = RunSettings(seconds=SECONDS, seed=SEED, faults_per_minute=60, load=load)
    run = ChaosRun(tmp_path / "run", settings)
    outcome = run.go()
    verdict = judge_run(run.out)
    print("\n".join(words(run.out, settings, outcome, verdict)))
    assert FOUND_AS[switch] & verdict.names()
