"""Test that each planted bug is detected by an expected anomaly, and no anomaly without a bug."""

import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from oncelog.proof.judge.catalogue import ANOMALIES

from ..rounds import chosen, round_number
from . import play, results
from .catalogue import SWITCHES
from .play import CLUSTER_SCENARIOS, RAFT_SCENARIOS, RANDOM_SCENARIOS
from .rounds import DIRECTED, IN_SIMULATION, ON_PROCESSES

EACH = pytest.mark.parametrize("name", SWITCHES)
REAL = [name for name, switch in SWITCHES.items() if switch.plays_on_processes]
ROUND = round_number()


def attempt(name: str, *, on_processes: bool = False) -> None:
    print(f"round {ROUND}")
    result, on, off = results.attempt(SWITCHES[name], on_processes=on_processes)
    assert off == {}, f"{name}: without the bug"
    assert result.is_good, f"{name}: found was only {on}"


@pytest.mark.parametrize("name", chosen(ROUND, IN_SIMULATION, DIRECTED))
def test_each_switch_chosen_for_this_build_is_detected_in_simulation(name: str) -> None:
    attempt(name)


@pytest.mark.cluster
@pytest.mark.parametrize("name", chosen(ROUND, ON_PROCESSES, REAL))
def test_each_switch_chosen_for_this_build_is_detected_on_processes(name: str) -> None:
    attempt(name, on_processes=True)


@pytest.mark.chaos
@EACH
def test_every_switch_is_detected_in_simulation(name: str) -> None:
    attempt(name)


@pytest.mark.chaos
@pytest.mark.parametrize("name", REAL)
def test_every_switch_for_real_processes_is_detected_on_processes(name: str) -> None:
    attempt(name, on_processes=True)


def test_raft_switch_seed_that_finds_the_bug_is_played_without_it_and_finds_no_anomaly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run without the bug must use the seed that found the bug, to prove anything."""
    played: list[tuple[bool, int]] = []

    def once(switch: object, *, is_on: bool, on_processes: bool, seed: int) -> play.Played:
        played.append((is_on, seed))
        return play.Played({play.RAFT: "two leaders"} if is_on else {}, seed - 1, 0.0)

    monkeypatch.setattr(play, "play", once)
    result, _, _ = results.attempt(SWITCHES["forgotten-vote"], seeds=2)
    assert result.is_good
    assert played == [(True, 1), (False, 0), (True, 2), (False, 1)]


def test_switches_chosen_by_successive_builds_include_each_switch() -> None:
    for names, count in ((DIRECTED, IN_SIMULATION), (REAL, ON_PROCESSES)):
        rounds = [chosen(number, count, names) for number in range(100, 100 + len(names))]
        assert {name for each in rounds for name in each} == set(names)


@EACH
def test_switch_has_a_known_scenario_and_expected_anomaly(name: str) -> None:
    switch = SWITCHES[name]
    assert switch.breaks
    if switch.scenario not in RAFT_SCENARIOS:
        assert switch.scenario in (*CLUSTER_SCENARIOS, *RANDOM_SCENARIOS)
        assert switch.found_as
        anomalies = [ANOMALIES[each] for each in switch.found_as if each in ANOMALIES]
        assert not any(anomaly.is_legal for anomaly in anomalies)
        # Names of the simulation's invariants are given in words.
        assert all(
            each in ANOMALIES or " " in each or each == "unhandled" for each in switch.found_as
        )


@EACH
def test_switch_that_is_installed_changes_product_code_and_restores_it_afterwards(
    name: str,
) -> None:
    before = everything()
    context = SWITCHES[name].install()
    assert everything() == before, "not before it is entered"
    with context:
        assert everything() != before
    assert everything() == before


def test_switches_page_lists_every_switch_as_detected() -> None:
    assert [each.switch for each in results.read()] == list(SWITCHES)
    assert all(each.is_good for each in results.read())


def test_released_product_code_imports_no_switch() -> None:
    root = Path(__file__).parents[2]
    packages = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"][
        "packages"
    ]
    for package in packages:
        for file in (root / package.replace(".", "/").removeprefix("oncelog")[1:]).glob("*.py"):
            text = file.read_text(encoding="utf-8")
            assert "tests.switches" not in text and "broken_node" not in text, file


def everything() -> dict[tuple[str, str], int]:
    """Return the id() of each attribute of the product's classes and modules, by its name."""
    found: dict[tuple[str, str], int] = {}

    def take(owner: Any, name: str) -> None:
        for key, value in vars(owner).items():
            if key != "__warningregistry__":  # Python sets this once it has warned in the module
                found[name, key] = id(value)

    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and name.startswith("oncelog."):
            take(module, name)
            for key, value in list(vars(module).items()):
                if isinstance(value, type) and value.__module__ == name:
                    take(value, f"{name}.{key}")
    return found
