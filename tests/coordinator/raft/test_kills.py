"""Test that Raft processes on real disks lose no acknowledged command after SIGKILLs."""

from pathlib import Path

import pytest

from .kill_cluster import KillCluster


def judge(directory: Path, seconds: float, seed: int, groups: int) -> None:
    cluster = KillCluster(directory, seed, groups=groups)
    try:
        verdict = cluster.run(seconds)
    finally:
        cluster.close()
    print(verdict)
    assert verdict.acknowledged > 100, "hardly anything was at stake"
    assert sum(verdict.kills) >= 3
    assert (verdict.lost, verdict.doubled, verdict.disordered) == (0, 0, 0)


@pytest.mark.cluster
def test_raft_nodes_killed_repeatedly_lose_no_acknowledged_command(short_path: Path) -> None:
    """One, two or all nodes are killed at a time, while the journal is compacted."""
    judge(short_path, 6, seed=1, groups=2)


@pytest.mark.chaos
def test_raft_nodes_killed_for_three_minutes_lose_no_acknowledged_command(
    short_path: Path, request: pytest.FixtureRequest
) -> None:
    """Kill the processes as in the short test, but for three minutes."""
    if "chaos" not in str(request.config.getoption("-m")):
        pytest.skip("runs with -m chaos")
    judge(short_path, 180, seed=2, groups=3)
