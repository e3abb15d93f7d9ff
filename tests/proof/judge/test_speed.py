"""Test that a history of 200,000 operations is judged in bounded memory."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SENDS, OPERATIONS = 100_000, 210_000
PEAK_MIB_MAX = 300.0  # 10 million operations: 3 GB


@pytest.mark.filterwarnings("ignore")
def test_judge_of_200_000_operations_stays_below_its_memory_limit(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.proof.judge.speed", str(SENDS), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = re.search(r"([\d,]+) operations.* peak ([\d,]+) MiB", done.stdout)
    assert found, done.stdout
    assert int(found[1].replace(",", "")) == OPERATIONS
    assert float(found[2].replace(",", "")) < PEAK_MIB_MAX
    assert not list(tmp_path.iterdir())
