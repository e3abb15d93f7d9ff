"""The schedule: the same seed gives the same faults, and each kind comes early."""

from itertools import islice

import pytest

from oncelog.deploy.chaos.client_actions import CLIENT_ACTIONS
from oncelog.deploy.chaos.lanes import ACTIONS
from oncelog.deploy.chaos.link_actions import LINK_ACTIONS
from oncelog.deploy.chaos.node_actions import NODE_ACTIONS
from oncelog.deploy.faults.schedule import KINDS, LANES, NEED_FOUR_NODES, Planned, plan


@pytest.mark.parametrize("lane", LANES)
def test_the_same_seed_gives_the_same_schedule(lane: str) -> None:
    one = list(islice(plan(7, lane, nodes=3), 100))
    assert one == list(islice(plan(7, lane, nodes=3), 100))
    assert one != list(islice(plan(8, lane, nodes=3), 100))


@pytest.mark.parametrize("lane", LANES)
def test_each_kind_comes_once_before_any_comes_twice(lane: str) -> None:
    kinds = [k for k in LANES[lane] if k not in NEED_FOUR_NODES]
    dealt = [planned.kind for planned in islice(plan(3, lane, nodes=3), 2 * len(kinds))]
    assert sorted(dealt[: len(kinds)]) == sorted(dealt[len(kinds) :]) == sorted(kinds)


def test_two_halves_need_four_nodes() -> None:
    assert "bisect" not in {p.kind for p in islice(plan(1, "links", nodes=3), 50)}
    assert "bisect" in {p.kind for p in islice(plan(1, "links", nodes=4), 50)}


def test_only_the_kinds_that_were_asked_for_are_dealt() -> None:
    assert {p.kind for p in islice(plan(1, "nodes", nodes=3, kinds=frozenset({"kill"})), 9)} == {
        "kill"
    }
    assert not list(plan(1, "links", nodes=3, kinds=frozenset({"kill"})))


def test_every_kind_has_an_action_and_every_action_a_kind() -> None:
    assert {lane: set(actions) for lane, actions in ACTIONS.items()} == {
        lane: set(kinds) for lane, kinds in LANES.items()
    }
    assert {*NODE_ACTIONS, *LINK_ACTIONS, *CLIENT_ACTIONS} == set(KINDS)


def test_numbers_choose_within_what_there_is() -> None:
    planned = Planned("nodes", "kill", (0.0, 0.999999, 0.5, 0.25))
    assert planned.pick(0, [1, 2, 3]) == 1 and planned.pick(1, [1, 2, 3]) == 3
    assert planned.between(2, 10, 20) == 15
