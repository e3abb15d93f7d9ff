"""Test the error message of a program if the extra `spark` is not installed."""

import sys
from pathlib import Path

import pytest

from ..programs import run_to_end

HIDDEN = "import runpy, sys; sys.modules['pyspark'] = None; "
WORDS = (
    "ModuleNotFoundError: oncelog.pipeline needs pyspark. "
    "In a checkout of oncelog: pip install '.[spark]'"
)


@pytest.mark.parametrize(
    "program",
    [
        "from oncelog.pipeline import exactly_once",
        "runpy.run_module('oncelog.proof.audit', run_name='__main__')",
        "runpy.run_module('oncelog.pipeline.jobs.flights', run_name='__main__')",
    ],
)
def test_missing_pyspark_is_reported_with_the_install_command(program: str, tmp_path: Path) -> None:
    done = run_to_end([sys.executable, "-c", HIDDEN + program], cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == WORDS
