"""Whole clusters under virtual time: nothing acknowledged is lost, doubled, torn or stuck.

Each chunk of seeds runs in a process of its own, where the order of sets of names is fixed, so a
failing seed fails again with `python -m tests.simulation.run --seed N`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SEEDS, CHUNK = 150, 25
HOURS_LEAST = 4.0


def simulate(*arguments: str, hash_seed: str = "0") -> list[dict[str, Any]]:
    """Run seeds in another process; one dictionary a seed."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.run", "--json", "--no-shrink", *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1_800, check=False,
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert found, done.stderr
    return found


def verdict(runs: list[dict[str, Any]]) -> str:
    """What to print of seeds that failed."""
    return "\n".join(
        f"seed {run['seed']}: {run['violations']}\n"
        f"  python -m tests.simulation.run --seed {run['seed']}"
        for run in runs
        if run["violations"]
    )


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_promises_are_kept_whatever_happens(first: int) -> None:
    """Safety while faults last, liveness once they are healed, then the judge."""
    runs = simulate("--seeds", f"{first}:{first + CHUNK}")
    assert not verdict(runs), verdict(runs)
    assert len(runs) == CHUNK
    assert sum(run["virtual_s"] for run in runs) > HOURS_LEAST * 3600 * CHUNK / SEEDS * 0.8
    assert sum(run["transactions"] for run in runs) > 20 * CHUNK
    assert sum(len(run["faults"]) for run in runs) > 5 * CHUNK


def test_the_same_seed_gives_the_same_run_in_another_process() -> None:
    """Every message, disk operation and timer, at the same moment."""
    once, again = (simulate("--seeds", "3:7") for _ in range(2))
    assert [run["trace"] for run in once] == [run["trace"] for run in again]
    assert len({run["trace"] for run in once}) == len(once)


@pytest.mark.soak
def test_many_clusters(request: pytest.FixtureRequest) -> None:
    """The same for a long time."""
    if "soak" not in request.config.getoption("-m"):
        pytest.skip("runs with -m soak")
    for first in range(10_000, 15_000, 50):
        runs = simulate("--seeds", f"{first}:{first + 50}")
        assert not verdict(runs), verdict(runs)
