"""Test the options of `oncelog chaos`, and that a replay uses the settings of the replayed run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.cli import chaos as cli_chaos
from oncelog.cli.main import run
from oncelog.deploy.faults.schedule import ALL_KINDS
from oncelog.node.config.broker_config import BROKER_KEYS
from oncelog.proof.chaos.load.settings import LoadSettings
from oncelog.proof.chaos.plan_settings import RunSettings
from oncelog.proof.chaos.run import CONFIG, ChaosRun, RunOutcome


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[RunSettings, Path]]:
    """Make `oncelog chaos` run nothing, and return a list of the runs that it requests.

    The list gets the settings and the directory of each requested run.
    """
    found: list[tuple[RunSettings, Path]] = []

    def go(settings: RunSettings, out: Path, output: str) -> int:
        found.append((settings, out))
        return 0

    monkeypatch.setattr(cli_chaos, "_go", go)
    return found


def test_chaos_options_are_translated_to_run_settings(asked: list) -> None:
    assert run(["chaos", "run", "--seconds", "5", "--seed", "4", "-n", "5", "--faults",
                "kill, isolate", "--rate", "60", "--pause", "3"]) == 0  # fmt: skip
    ((settings, out),) = asked
    assert out == Path("chaos-4")
    load = LoadSettings(pause_ms=3, assignor="range", consumer_groups=("job",), visitors=2)
    assert settings == RunSettings(
        seconds=5, seed=4, nodes=5, faults_per_minute=60, kinds=("kill", "isolate"), load=load
    )


def test_chaos_replay_has_the_settings_of_the_first_run_and_a_new_directory(
    asked: list, tmp_path: Path
) -> None:
    settings = replace(RunSettings(seed=11), load=LoadSettings(pause_ms=9))
    first = ChaosRun(tmp_path / "run", settings)
    first.out.mkdir()
    first._write_about(RunOutcome())
    assert json.loads((first.out / "run.json").read_text())["replay"].endswith(str(first.out))
    (tmp_path / "run-replay-1").mkdir()
    assert run(["chaos", "replay", str(first.out)]) == 0
    assert asked == [(settings, tmp_path / "run-replay-2")]


@pytest.mark.parametrize(
    "wrong",
    [["--faults", "earthquake"], ["--nodes", "2"], ["--nodes", "6"], ["--seconds", "0"],
     ["--rate", "0"]],
)  # fmt: skip
def test_chaos_run_with_impossible_options_is_refused(asked: list, wrong: list[str]) -> None:
    assert run(["chaos", "run", *wrong]) == 2
    assert asked == []


def test_chaos_faults_help_lists_all_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["chaos", "run", "--faults", "help"]) == 0
    assert capsys.readouterr().out.split() == list(ALL_KINDS)


@pytest.mark.parametrize(("command", "exit_code"), [("replay", 2), ("report", 1)])
def test_chaos_command_on_a_directory_without_a_run_is_refused(
    command: str, exit_code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["chaos", command, str(tmp_path)]) == exit_code
    assert "not the directory of" in capsys.readouterr().err


def test_chaos_broker_settings_are_all_known_keys() -> None:
    assert {*CONFIG} <= set(BROKER_KEYS)


def test_chaos_outcome_with_only_half_of_its_faults_effective_proves_nothing() -> None:
    assert RunOutcome(faults={"kill": 2}, tried=3).has_hit
    assert not RunOutcome(faults={"kill": 2}, tried=4).has_hit
    assert not RunOutcome().has_hit
    assert not RunOutcome(broken=["x"]).is_clean and not RunOutcome(is_balanced=False).is_clean
