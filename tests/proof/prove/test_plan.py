"""Test that the plan of faults follows from the seed and from the application's requests."""

import hashlib
from dataclasses import replace
from itertools import islice, pairwise, product

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.faults.schedule import NEED_LOGINS
from oncelog.proof.prove.plan import (
    AIM_MIN_S,
    AT_BEGIN,
    AT_WORK,
    AT_WORK_IN_A_ROW,
    FAULTS,
    FIRST,
    INSTANCES_MORE_MAX,
    MORE,
    REFUSALS,
    SECURED,
    SECURED_CHOSEN,
    SIDES,
    SURE,
    SURE_TRIES,
    THEN,
    ZOMBIE,
    Act,
    AimedFault,
    Timeouts,
    Traits,
    draw,
    is_possible,
    lowered_timeouts,
    named,
    plan,
    sure_ones,
)
from oncelog.proof.prove.striking import after_a_stall

PLAIN = frozenset(("Fetch", "Produce", "OffsetCommit", "JoinGroup", "SyncGroup"))
FETCHES = frozenset(("OffsetFetch",))
TRANSACTIONAL = frozenset(("Fetch", "Produce", "TxnOffsetCommit", "EndTxn", "SyncGroup"))


def names(seed: int, traits: Traits, decks: int = 2) -> list[str]:
    drawn = islice(draw(seed), decks * len(FIRST + THEN))
    return [fault.name for fault in drawn if is_possible(fault, traits, 2)]


def test_fault_plan_of_one_seed_is_repeatable_and_of_another_different() -> None:
    traits = Traits(TRANSACTIONAL, 2, True)
    assert names(7, traits) == names(7, traits) != names(8, traits)


@pytest.mark.parametrize("seed", range(20))
def test_random_faults_begin_with_the_listed_first_ones_and_later_have_all_without_a_login(
    seed: int,
) -> None:
    first = list(islice(draw(seed), len(FIRST) + 1))
    assert set(first) == {*FIRST, AT_BEGIN}
    assert sum(fault.act is Act.LOSE_ANSWER for fault in first) == 4
    whole = islice(draw(seed), len(FIRST + THEN + MORE) * 2 + len(SURE) + 2)
    assert {fault.name for fault in whole} == FAULTS.keys() - NEED_LOGINS


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("seconds", [60.0, 300.0])
def test_whole_fault_plan_has_every_applicable_fixed_fault(seed: int, seconds: float) -> None:
    for traits in (Traits(TRANSACTIONAL | FETCHES, 2, True), Traits(PLAIN | FETCHES, 2, True)):
        possible = {fault.name for fault in (*SURE, *ZOMBIE) if is_possible(fault, traits, 2)}
        groups = sure_ones(seed, seconds, traits, 2)
        assert {fault.name for group in groups for fault in group} == possible
        (stall,) = [group for group in groups if group[0].act is Act.STALL]
        assert len(stall) == 1, "nothing is slow while a broker stands still: it would meet nothing"
        assert 12 <= stall[0].seconds <= 40
        (slow,) = [group for group in groups if group[0].act is Act.SLOW]
        assert all(2 <= fault.seconds <= 15 and fault.side in SIDES for fault in slow)
        produces = [fault for fault in slow if fault.about == "Produce"]
        late = sorted(fault.seconds for fault in produces)
        assert late[-1] > 10 and late[1] > 4 and {each.side for each in produces} == set(SIDES)
        refused = [group[0].refusal for group in groups if group[0].name == "error@Produce"]
        assert sorted(refused) == sorted(REFUSALS)
    assert {"stall@leader", "slow@EndTxn", "slow@TxnOffsetCommit", "hold@Produce"} & possible == {
        "stall@leader"
    }, "of an application without transactions"


@pytest.mark.parametrize("seed", range(20))
def test_whole_fault_plan_of_v1_transactions_has_its_pause_at_a_commit_in_the_first_half(
    seed: int,
) -> None:
    """Nothing else shows a missing fence, and random faults may not leave enough time for it."""
    version_1 = Traits(TRANSACTIONAL | FETCHES | {"AddPartitionsToTxn"}, 2, True)
    groups = sure_ones(seed, 60.0, version_1, 2)
    (place,) = [n for n, group in enumerate(groups) if group[0].name == "pause@before-commit"]
    assert place <= len(groups) / 2
    assert [fault.name for fault in groups[place]] == [fault.name for fault in ZOMBIE]
    assert all(fault.sure_tries == SURE_TRIES for fault in groups[place])
    short = sure_ones(seed, 59.0, version_1, 2)
    assert not {fault.name for group in short for fault in group} & {f.name for f in ZOMBIE}


def test_whole_fault_plan_without_commits_and_output_kills_several_times_after_a_fetch() -> None:
    """A database holds its positions and its output, so no request shows when it is at work."""
    beside = Traits(frozenset(("Fetch", "SyncGroup")), 2, True)
    assert [[f.name for f in group] for group in sure_ones(1, 60.0, beside, 2)] == [
        ["kill@after-Fetch"]
    ] * AT_WORK_IN_A_ROW
    assert sure_ones(1, 59.0, beside, 2) == []


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("seconds", [10.0, 20.0, 45.0])
def test_short_fault_plan_has_three_or_four_fixed_faults_chosen_by_seed(
    seed: int, seconds: float
) -> None:
    traits = Traits(TRANSACTIONAL | FETCHES, 2, True)
    chosen = [fault for group in sure_ones(seed, seconds, traits, 2) for fault in group]
    assert len({fault.name for fault in chosen}) == len(chosen) == (4 if seconds > 40 else 3)
    assert all(fault.seconds <= 6 for fault in chosen if fault.act is Act.SLOW)
    assert all(fault.seconds <= 15 for fault in chosen if fault.act is Act.STALL)
    assert seconds > 30 or all(fault.act is not Act.STALL for fault in chosen)
    foreign = Traits(TRANSACTIONAL | FETCHES, 2, False)
    assert "stall@leader" not in {f.name for g in sure_ones(seed, 60, foreign) for f in g}


def test_fixed_fault_without_a_matching_request_is_repeated_at_the_end() -> None:
    groups = sure_ones(7, 60.0, Traits(TRANSACTIONAL | FETCHES, 2, True), 2)
    missed, made = groups[0][0], list[AimedFault]()
    for fault in plan(7, groups, lambda: True):
        made.append(fault)
        if fault is missed:
            groups.append([replace(fault, sure_tries=fault.sure_tries - 1)])
    assert made[-1] == replace(missed, sure_tries=1)


def test_whole_fault_plan_transaction_timeout_exceeds_its_slowest_request() -> None:
    groups = sure_ones(1, 60.0, Traits(TRANSACTIONAL, 2, True), 2)
    slowest_s = max(f.seconds for group in groups for f in group if f.act is Act.SLOW)
    assert lowered_timeouts(60.0).transaction_s > slowest_s + 2
    assert lowered_timeouts(20.0).transaction_s == 10.0


def test_fixed_faults_are_chosen_by_the_seed() -> None:
    traits = Traits(TRANSACTIONAL | FETCHES, 2, True)
    chosen = [sure_ones(seed, 20.0, traits, 2) for seed in range(30)]
    assert chosen == [sure_ones(seed, 20.0, traits, 2) for seed in range(30)]
    names = {fault.name for groups in chosen for group in groups for fault in group}
    assert names == {f.name for f in SURE if is_possible(f, traits, 2)} - {"stall@leader"}


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("at_most", [0, 3, 40])
def test_fixed_faults_are_placed_between_or_after_random_faults(seed: int, at_most: int) -> None:
    groups = sure_ones(seed, 60.0, Traits(TRANSACTIONAL | FETCHES, 2, True), 2)
    sure = [fault for group in groups for fault in group]
    made: list[AimedFault] = []
    for fault in plan(seed, groups, lambda: len(made) >= at_most):
        made.append(fault)
    assert [fault for fault in made if any(fault is each for each in sure)][: len(sure)] == sure
    drawn = [fault for fault in made if not any(fault is each for each in sure)]
    assert drawn == list(islice(draw(seed), len(drawn)))
    assert all(
        ((a.act is Act.KILL or a is AT_WORK) and b is AT_WORK) or b is not AT_WORK
        for a, b in pairwise(made)
    )


def test_fault_plan_has_only_faults_applicable_to_the_application() -> None:
    assert not any("EndTxn" in name or "Txn" in name for name in names(1, Traits(PLAIN, 2, True)))
    assert "lose-answer@OffsetCommit" not in names(1, Traits(TRANSACTIONAL, 2, True))
    foreign = names(1, Traits(PLAIN, 2, False))
    assert foreign and not any(name.startswith("broker") for name in foreign)
    assert "remove" not in names(1, Traits(PLAIN, 1, True))
    assert "add" not in names(1, Traits(PLAIN, 2 + INSTANCES_MORE_MAX, True))
    assert "add" in names(1, Traits(PLAIN, 2, True))
    assert "add" not in names(1, Traits(PLAIN, 2, True, is_alone=True))
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
def test_fault_plan_of_v1_transactions_pauses_before_a_transaction_begins(seed: int) -> None:
    """A transaction left open by a pause may reach its own timeout, which hides a missing fence."""
    version_1 = Traits(TRANSACTIONAL | {"AddPartitionsToTxn"}, 2, True)
    first = islice(draw(seed), len(FIRST) + 1)
    drawn = [fault.name for fault in first if is_possible(fault, version_1, 2)]
    assert ("pause@before-commit", "pause@before-transaction") in pairwise(drawn)
    assert "pause@before-transaction" not in names(seed, Traits(TRANSACTIONAL, 2, True))


def in_words(fault: AimedFault) -> str:
    values = (fault.name, fault.seconds, fault.side, fault.refusal, fault.sure_tries)
    return " ".join(map(str, values))


def test_fault_plans_of_unsecured_clusters_have_the_recorded_digest() -> None:
    """The digest is that of the last version without faults of secured clusters."""
    digest = hashlib.sha256()
    login = PLAIN | {"SaslHandshake"}
    for seed in range(300):
        digest.update("".join(f"{in_words(fault)}\n" for fault in islice(draw(seed), 160)).encode())
        for seconds, apis, is_ours in product(
            (10.0, 20.0, 45.0, 60.0, 300.0), (TRANSACTIONAL | FETCHES, login), (True, False)
        ):
            for group in sure_ones(seed, seconds, Traits(apis, 2, is_ours), 2):
                if group[0].act is Act.PAUSE:
                    continue  # newer than the digest
                digest.update(f"{' '.join(map(in_words, group))}\n".encode())
    assert digest.hexdigest() == (
        "90dcd5c5b6daef50c43cb93e8aaf9f8fe2b4c029880fee800c6e72e749179f85"
    )


LOGGED_IN = TRANSACTIONAL | FETCHES | {"SaslHandshake"}


@pytest.mark.parametrize("seed", range(20))
def test_fault_plan_of_a_secured_cluster_adds_its_faults_and_keeps_the_others(seed: int) -> None:
    plain, ours = (
        Traits(LOGGED_IN, 2, True),
        Traits(LOGGED_IN, 2, True, has_tls=True, has_user=True),
    )
    for seconds, count in ((20.0, SECURED_CHOSEN), (60.0, len(SECURED))):
        groups = sure_ones(seed, seconds, ours, 2)
        secured = [group for group in groups if group[0].name in NEED_LOGINS]
        assert len({group[0].name for group in secured}) == len(secured) == count
        assert all(len(group) == 1 and group[0].sure_tries == SURE_TRIES for group in secured)
        assert [g for g in groups if g not in secured] == sure_ones(seed, seconds, plain, 2)
    drawn = {fault.name for fault in islice(draw(seed, is_secured=True), 120)}
    assert drawn == FAULTS.keys()


def test_short_fault_plans_of_secured_clusters_choose_their_faults_by_the_seed() -> None:
    ours = Traits(LOGGED_IN, 2, True, has_tls=True, has_user=True)
    chosen = {
        fault.name
        for seed in range(30)
        for group in sure_ones(seed, 20.0, ours, 2)
        for fault in group
    }
    assert chosen >= NEED_LOGINS


@pytest.mark.parametrize(
    ("apis", "has_tls", "has_user", "possible"),
    [
        (LOGGED_IN, True, True, NEED_LOGINS),
        (LOGGED_IN, True, False, {"certificate-expires"}),  # another cluster, which stays as it is
        (LOGGED_IN, False, False, set()),
        (PLAIN | {"SaslHandshake"}, True, True, {"certificate-expires", "password-change"}),
        (TRANSACTIONAL, True, True, NEED_LOGINS - {"reauthentication-fails"}),
    ],
)
def test_fault_of_secured_clusters_is_possible_by_cluster_and_application(
    apis: frozenset[str], has_tls: bool, has_user: bool, possible: set[str]
) -> None:
    traits = Traits(apis, 2, has_user, has_tls=has_tls, has_user=has_user)
    assert {fault.name for fault in SECURED if is_possible(fault, traits, 2)} == possible


def test_faults_of_secured_clusters_have_the_names_of_chaos() -> None:
    assert {fault.name for fault in SECURED} == NEED_LOGINS


def test_fault_names_are_parsed_from_a_comma_separated_list() -> None:
    assert named(" stop, kill@before-commit ,stop") == [
        FAULTS["stop"], FAULTS["kill@before-commit"], FAULTS["stop"],
    ]  # fmt: skip
    with pytest.raises(Failure, match="no fault kill@noon"):
        named("stop,kill@noon")


def test_commit_times_after_a_stall_are_those_after_the_last_gap() -> None:
    assert after_a_stall([1.0, 1.2, 1.4]) == []
    assert after_a_stall([1.0, 1.2, 4.0, 4.1]) == [4.0, 4.1]
    assert after_a_stall([1.0, 4.0, 4.1, 9.0]) == [9.0]


@pytest.mark.parametrize(
    ("name", "apis"),
    [
        ("lose-answer@ConsumerGroupHeartbeat", {"ConsumerGroupHeartbeat"}),
        ("pause@before-heartbeat", {"ConsumerGroupHeartbeat"}),
        ("kill@rebalance", {"ConsumerGroupHeartbeat", "SyncGroup"}),
    ],
)
def test_fault_that_needs_a_rebalance_is_possible_only_with_its_group_protocol(
    name: str, apis: set[str]
) -> None:
    fault = FAULTS[name]
    assert fault.needs_rebalance and fault.apis == apis
    for api in ("SyncGroup", "ConsumerGroupHeartbeat"):
        assert is_possible(fault, Traits(frozenset({api}), 2), 2) is (api in apis)


def test_fault_plan_waits_longer_for_longer_sessions() -> None:
    short, long = Timeouts(), Timeouts(session_s=45.0)
    assert (short.aim_s, short.longer_s) == (AIM_MIN_S, 0.0)
    assert long.still_s > 45.0 and long.aim_s > long.still_s and long.longer_s == 156.0
    assert long.pause_max_s > 90.0
