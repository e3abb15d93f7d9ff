"""Test that a seed always gives the same schedule, and that each kind of fault comes early."""

from itertools import islice

import pytest

from oncelog.deploy.faults.schedule import (
    ALL_KINDS,
    KINDS,
    KINDS_BY_TARGET,
    NEED_FOUR_NODES,
    NEED_LOGINS,
    NEED_PLAIN_TEXT,
    SECURED_KINDS,
    Fault,
    chaos_schedule,
)
from oncelog.proof.chaos.schedulers import ACTIONS


@pytest.mark.parametrize("target", KINDS_BY_TARGET)
def test_chaos_schedule_of_one_seed_is_always_the_same(target: str) -> None:
    one = list(islice(chaos_schedule(7, target, nodes=3), 100))
    assert one == list(islice(chaos_schedule(7, target, nodes=3), 100))
    assert one != list(islice(chaos_schedule(8, target, nodes=3), 100))


@pytest.mark.parametrize("target", KINDS_BY_TARGET)
def test_chaos_schedule_has_each_kind_once_before_any_kind_twice(target: str) -> None:
    kinds = [k for k in KINDS_BY_TARGET[target] if k not in NEED_FOUR_NODES | NEED_LOGINS]
    dealt = [fault.kind for fault in islice(chaos_schedule(3, target, nodes=3), 2 * len(kinds))]
    assert sorted(dealt[: len(kinds)]) == sorted(dealt[len(kinds) :]) == sorted(kinds)


def test_chaos_schedule_has_bisect_only_with_four_nodes() -> None:
    assert "bisect" not in {p.kind for p in islice(chaos_schedule(1, "links", nodes=3), 50)}
    assert "bisect" in {p.kind for p in islice(chaos_schedule(1, "links", nodes=4), 50)}


def test_chaos_schedule_has_only_the_requested_kinds() -> None:
    assert {p.kind for p in islice(chaos_schedule(1, "nodes", nodes=3, kinds=["kill"]), 9)} == {
        "kill"
    }
    assert not list(chaos_schedule(1, "links", nodes=3, kinds=["kill"]))


def test_chaos_fault_of_each_kind_has_exactly_one_action() -> None:
    assert {target: set(actions) for target, actions in ACTIONS.items()} == {
        target: set(kinds) for target, kinds in KINDS_BY_TARGET.items()
    }
    assert {kind for actions in ACTIONS.values() for kind in actions} == set(ALL_KINDS)


def test_chaos_fault_random_number_selects_an_item_or_a_value_within_bounds() -> None:
    fault = Fault("kill", (0.0, 0.999999, 0.5, 0.25))
    assert fault.pick(0, [1, 2, 3]) == 1 and fault.pick(1, [1, 2, 3]) == 3
    assert fault.between(2, 10, 20) == 15


def test_chaos_schedule_has_login_faults_only_on_secured_clusters() -> None:
    assert not NEED_LOGINS & set(KINDS) and set(SECURED_KINDS) > NEED_LOGINS
    assert not NEED_PLAIN_TEXT & set(SECURED_KINDS)
    dealt = islice(chaos_schedule(1, "clients", nodes=3, kinds=SECURED_KINDS), len(SECURED_KINDS))
    assert {fault.kind for fault in dealt} > NEED_LOGINS
