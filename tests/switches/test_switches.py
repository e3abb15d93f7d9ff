"""Bugs put into the code on purpose are found under their right names; without them it is clean."""

import sys
from types import ModuleType
from typing import Any

import pytest

from oncelog.deploy.checks.catalogue import ANOMALIES

from . import results
from .__main__ import PER_ROUND
from .catalogue import SWITCHES
from .play import CLUSTER_SCENARIOS, RAFT_SCENARIOS
from .rounds import chosen, round_number

EACH = pytest.mark.parametrize("name", SWITCHES)


def attempt(name: str) -> None:
    result, on, off = results.attempt(SWITCHES[name])
    assert off.found == {}, f"{name}: without the bug"
    assert result.caught_by, f"{name}: found was only {on.found}"


@pytest.mark.cluster
@pytest.mark.parametrize("name", chosen(round_number(), PER_ROUND))
def test_those_whose_turn_it_is_are_caught(name: str) -> None:
    print(f"round {round_number()}")
    attempt(name)


@pytest.mark.chaos
@EACH
def test_every_one_is_caught(name: str) -> None:
    attempt(name)


def test_every_one_has_its_turn() -> None:
    rounds = [chosen(number, PER_ROUND) for number in range(100, 100 + len(SWITCHES))]
    assert {name for names in rounds for name in names} == set(SWITCHES)


@EACH
def test_a_switch_has_a_scenario_and_a_right_name(name: str) -> None:
    switch = SWITCHES[name]
    assert switch.breaks
    if switch.scenario not in RAFT_SCENARIOS:
        assert switch.scenario in CLUSTER_SCENARIOS
        assert switch.found_as
        assert not any(ANOMALIES[each].is_legal for each in switch.found_as)


@EACH
def test_a_switch_changes_something_and_leaves_nothing_behind(name: str) -> None:
    before = everything()
    context = SWITCHES[name].install()
    assert everything() == before, "not before it is entered"
    with context:
        assert everything() != before
    assert everything() == before


def test_the_page_tells_of_all_of_them() -> None:
    assert [each.switch for each in results.read()] == list(SWITCHES)
    assert all(each.is_good for each in results.read())


def everything() -> dict[tuple[str, str], int]:
    """What every class and module of the released code has, by identity."""
    found: dict[tuple[str, str], int] = {}

    def take(owner: Any, name: str) -> None:
        for key, value in vars(owner).items():
            found[name, key] = id(value)

    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and name.startswith("oncelog."):
            take(module, name)
            for key, value in list(vars(module).items()):
                if isinstance(value, type) and value.__module__ == name:
                    take(value, f"{name}.{key}")
    return found
