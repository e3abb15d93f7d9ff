"""Test the syntax of the GitHub Action, and the commands in its steps, without GitHub."""

import os
import re
import textwrap
from pathlib import Path

import pytest

from ...programs import CLI, run_to_end

FILE = Path(__file__).parents[3] / "action.yml"
TEXT = FILE.read_text(encoding="utf-8")
OURS = """#!/bin/sh
for word in "$@"; do printf '%s\\n' "$word"; done > "$RUNNER_TEMP/words"
"""


def scripts() -> list[str]:
    found = re.findall(r"^      run: \|\n((?:        .*\n)+)", TEXT, re.MULTILINE)
    return [textwrap.dedent(script) for script in found]


def test_action_is_a_composite_of_steps_with_a_shell_for_each_script() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    action = yaml.safe_load(TEXT)
    assert action["runs"]["using"] == "composite"
    steps = action["runs"]["steps"]
    assert all(("run" in step) == ("shell" in step) for step in steps)
    assert [textwrap.dedent(step["run"]) for step in steps if "run" in step] == scripts()
    assert set(re.findall(r"inputs\.(\w+)", TEXT)) == set(action["inputs"])


def test_action_inputs_reach_scripts_only_as_environment_variables() -> None:
    assert len(scripts()) == 2
    assert not any("${{" in script for script in scripts())  # it would be run as a command


def test_action_inputs_are_passed_unsplit(tmp_path: Path) -> None:
    program = tmp_path / "oncelog/bin/oncelog"
    program.parent.mkdir(parents=True)
    program.write_text(OURS)
    program.chmod(0o755)
    given = {"RECIPE": "a b; touch no", "SEEDS": "1:3", "FAULT_SECONDS": "20", "OUT": "o p"}
    environment = {**os.environ, "RUNNER_TEMP": str(tmp_path), **given}
    done = run_to_end(
        ["bash", "-eo", "pipefail", "-c", scripts()[1]], env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    words = (tmp_path / "words").read_text().splitlines()
    assert words == [
        "certify", "a b; touch no", "--seeds", "1:3", "--seconds", "20", "--out", "o p"
    ]  # fmt: skip
    assert not (tmp_path / "no").exists()


def test_action_options_exist_in_the_certify_command() -> None:
    help_text = run_to_end([*CLI, "certify", "--help"]).stdout
    assert all(option in help_text for option in ("--seeds", "--seconds", "--out"))
