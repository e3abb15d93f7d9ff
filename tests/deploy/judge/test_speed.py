"""A history of some size is judged in bounded time and memory; the full size is a command."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SENDS, OPERATIONS = 200_000, 420_000
CPU_S_MAX, PEAK_MIB_MAX = 10.0, 500.0  # 10 million operations: 30 s, 3 GB


@pytest.mark.filterwarnings("ignore")
def test_a_history_of_four_hundred_thousand_operations(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.deploy.judge.speed", str(SENDS), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = re.search(r"([\d,]+) operations.* CPU ([\d.]+) s, peak ([\d,]+) MiB", done.stdout)
    assert found, done.stdout
    assert int(found[1].replace(",", "")) == OPERATIONS
    assert float(found[2]) < CPU_S_MAX
    assert float(found[3].replace(",", "")) < PEAK_MIB_MAX
    assert not list(tmp_path.iterdir())
