"""The plan follows from the seed and from what was observed."""

from itertools import islice, pairwise

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.prove.plan import (
    AT_BEGIN,
    FAULTS,
    FIRST,
    INSTANCES_MORE_MAX,
    MORE,
    THEN,
    Act,
    Traits,
    draw,
    is_possible,
    named,
)
from oncelog.deploy.prove.striking import after_a_stall

PLAIN = frozenset(("Fetch", "Produce", "OffsetCommit", "JoinGroup", "SyncGroup"))
TRANSACTIONAL = frozenset(("Fetch", "Produce", "TxnOffsetCommit", "EndTxn", "SyncGroup"))


def names(seed: int, traits: Traits, decks: int = 2) -> list[str]:
    drawn = islice(draw(seed), decks * len(FIRST + THEN))
    return [fault.name for fault in drawn if is_possible(fault, traits, 2)]


def test_a_seed_repeats_its_plan_and_another_has_another() -> None:
    traits = Traits(TRANSACTIONAL, 2, True)
    assert names(7, traits) == names(7, traits) != names(8, traits)


@pytest.mark.parametrize("seed", range(20))
def test_lost_answers_come_in_every_plan_before_the_rest(seed: int) -> None:
    first = list(islice(draw(seed), len(FIRST) + 1))
    assert set(first) == {*FIRST, AT_BEGIN}
    assert sum(fault.act is Act.LOSE_ANSWER for fault in first) == 4
    whole = islice(draw(seed), len(FIRST + THEN + MORE) + 1)
    assert {fault.name for fault in whole} == FAULTS.keys()


def test_only_what_can_meet_the_application_is_made() -> None:
    assert not any("EndTxn" in name or "Txn" in name for name in names(1, Traits(PLAIN, 2, True)))
    assert "lose-answer@OffsetCommit" not in names(1, Traits(TRANSACTIONAL, 2, True))
    foreign = names(1, Traits(PLAIN, 2, False))
    assert foreign and not any(name.startswith("broker") for name in foreign)
    assert "remove" not in names(1, Traits(PLAIN, 1, True))
    assert "add" not in names(1, Traits(PLAIN, 2 + INSTANCES_MORE_MAX, True))
    assert "kill-at-work" not in foreign
    for seed in range(5):
        drawn = names(seed, Traits(PLAIN - {"Produce"}, 2, True), decks=1)
        before = [a for a, b in pairwise(drawn) if b == "kill-at-work"]
        assert all(name.startswith("kill") for name in before), drawn
    sink = names(1, Traits(PLAIN - {"Produce"}, 2, True), decks=1)
    assert sink.count("kill-at-work") > 1
    assert set(names(1, Traits(frozenset(), 2, True))) == {"stop", "add", "remove", "cut"}
    beside = names(1, Traits(frozenset(("Fetch", "SyncGroup")), 2, True))
    assert {"pause-at-work", "kill@after-Fetch"} < set(beside)


@pytest.mark.parametrize("seed", range(10))
def test_a_transaction_is_paused_before_it_begins_in_every_plan(seed: int) -> None:
    """Of one that is open, what is not fenced by its group may be spared by its own timeout."""
    version_1 = Traits(TRANSACTIONAL | {"AddPartitionsToTxn"}, 2, True)
    first = islice(draw(seed), len(FIRST) + 1)
    drawn = [fault.name for fault in first if is_possible(fault, version_1, 2)]
    assert ("pause@before-commit", "pause@before-transaction") in pairwise(drawn)
    assert "pause@before-transaction" not in names(seed, Traits(TRANSACTIONAL, 2, True))


def test_faults_are_named() -> None:
    assert named(" stop, kill@before-commit ,stop") == [
        FAULTS["stop"], FAULTS["kill@before-commit"], FAULTS["stop"],
    ]  # fmt: skip
    with pytest.raises(Failure, match="no fault kill@noon"):
        named("stop,kill@noon")


def test_what_comes_behind_a_stall_is_work_that_has_piled_up() -> None:
    assert after_a_stall([1.0, 1.2, 1.4]) == []
    assert after_a_stall([1.0, 1.2, 4.0, 4.1]) == [4.0, 4.1]
    assert after_a_stall([1.0, 4.0, 4.1, 9.0]) == [9.0]
