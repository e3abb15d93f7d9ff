"""Test a share of the hostile frames and floods. A million frames take a quarter of an hour."""

import pytest

from . import floods, run
from .doors import PROTOCOLS

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("hostile")]
BUSY_S = 10.0  # for an answer, where other tests run


@pytest.mark.in_turn
def test_hostile_attack_reports_answers_later_than_its_limit() -> None:
    wrong = run.attack(200, ["plain"], 1, late_s=0.0)
    assert len(wrong) == 1 and "an ApiVersions came after" in wrong[0]


@pytest.mark.in_turn
def test_cluster_under_20000_hostile_frames_keeps_answering_on_each_listener() -> None:
    assert run.attack(20_000, (*PROTOCOLS, run.PEER), 40, late_s=BUSY_S) == []


@pytest.mark.in_turn
def test_cluster_under_floods_of_one_listener_keeps_answering_on_its_reserved_listener() -> None:
    assert floods.floods(0.05, 1.0, late_s=BUSY_S) == []


@pytest.mark.soak
def test_cluster_under_a_million_hostile_frames_keeps_answering() -> None:
    assert run.main(["--frames", "1000000"]) == 0


@pytest.mark.soak
def test_cluster_under_floods_of_thousands_of_connections_answers_on_its_reserved_listener() -> (
    None
):
    assert floods.main([]) == 0
