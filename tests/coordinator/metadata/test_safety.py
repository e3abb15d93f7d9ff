"""Test that no election loses acknowledged records, and that the model detects planted bugs."""

from collections.abc import Callable

import pytest

from oncelog.coordinator.metadata import elections
from oncelog.coordinator.metadata.rules import brokers as rules_brokers
from oncelog.coordinator.metadata.rules import configs, partitions

from . import model_cluster
from .model_cluster import Rules, Violation
from .safety_model import SafetyModel

STEPS = 600


@pytest.mark.parametrize("start", range(0, 80, 20))
def test_elected_leader_in_random_runs_has_all_acknowledged_records(start: int) -> None:
    acknowledged = 0
    for seed in range(start, start + 20):
        model = SafetyModel(seed, nodes=3 + seed % 3)
        model.run(STEPS)
        acknowledged += sum(map(len, model.committed))
    assert acknowledged > 100, "runs in which nothing is acknowledged prove nothing"


@pytest.mark.chaos
def test_elected_leader_in_many_random_runs_has_all_acknowledged_records() -> None:
    for seed in range(1_000, 21_000):
        SafetyModel(seed, nodes=3 + seed % 3).run(STEPS)


Injection = Callable[[pytest.MonkeyPatch], Rules | None]


def broker_epochs_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: the broker epochs of KIP-903 are ignored, so a node that lost its log joins the ISR."""
    original = partitions._why_ineligible

    def lenient(tables, node, broker_epoch):
        broker = tables.brokers.get(node)
        return original(tables, node, broker.broker_epoch if broker else broker_epoch)

    monkeypatch.setattr(partitions, "_why_ineligible", lenient)


def partition_epochs_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: partition epochs are ignored, so an old ISR change is applied twice (KIP-497)."""
    original = partitions._validate

    def lenient(tables, sender, partition, change):
        change = type(change)(
            change.topic_id,
            change.partition,
            change.leader_epoch,
            partition.partition_epoch,
            change.isr,
        )
        return original(tables, sender, partition, change)

    monkeypatch.setattr(partitions, "_validate", lenient)


def pending_members_do_not_count(monkeypatch: pytest.MonkeyPatch) -> Rules:
    """Bug: a leader does not wait for members that it has proposed for the ISR (KIP-497)."""
    return Rules(counts_pending=False)


def a_small_isr_commits(monkeypatch: pytest.MonkeyPatch) -> Rules:
    """Bug: a leader commits records with an ISR below min.insync.replicas (KIP-966)."""
    return Rules(strict_min_isr=False)


def a_return_is_not_a_death(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a node that restarts at once stays in the ISR."""
    original = rules_brokers._shrink_isrs

    def lenient(tables, node_id, **arguments):
        return iter(()) if "lost_power" in arguments else original(tables, node_id)

    monkeypatch.setattr(rules_brokers, "_shrink_isrs", lenient)


def lost_power_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a node that lost power, and with it unsynced records, stays eligible."""
    original = rules_brokers._shrink_isrs
    monkeypatch.setattr(rules_brokers, "_shrink_isrs", lambda t, node_id, **_: original(t, node_id))


def an_empty_directory_counts_as_lost_power(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a replaced data directory counts as a power cut, so its node may be elected."""
    original = rules_brokers._shrink_isrs

    def lenient(tables, node_id, *, lost_power=False, lost_directory=False):
        return original(tables, node_id, lost_power=lost_power or lost_directory)

    monkeypatch.setattr(rules_brokers, "_shrink_isrs", lenient)


def the_eligible_stay_eligible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: the ELR is not emptied when the ISR reaches min.insync.replicas (KIP-966)."""
    original = elections._eligible

    def lenient(before, replicas, isr, min_isr, untrusted, emptied):
        elr, last_known = original(before, replicas, isr, min_isr, untrusted, emptied)
        gone = (*isr, untrusted, emptied)
        return elr or tuple(n for n in before.elr if n in replicas and n not in gone), last_known

    monkeypatch.setattr(elections, "_eligible", lenient)


def who_leaves_a_large_isr_is_eligible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a replica that leaves an ISR above min.insync.replicas becomes eligible (KIP-966)."""
    original = elections._eligible

    def lenient(before, replicas, isr, min_isr, untrusted, emptied):
        return original(before, replicas, isr, len(replicas) + 1, untrusted, emptied)

    monkeypatch.setattr(elections, "_eligible", lenient)


def a_smaller_min_isr_has_no_effect_on_the_elr(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: the ELR is not emptied when min.insync.replicas is lowered to the size of the ISR."""
    monkeypatch.setattr(configs, "settle_each", lambda *arguments: iter(()))


def dropped_replicas_leave_the_leader_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a dropped replica raises no leader epoch, so its earlier fetches still count."""
    monkeypatch.setattr(elections, "_drops_a_replica", lambda *arguments: False)


def elections_are_unclean(monkeypatch: pytest.MonkeyPatch) -> Rules:
    """Unclean elections are no bug but a choice. The model must show that they lose records."""
    return Rules(unclean=True)


# Each with the faults that reveal it; None stands for the mixture of the runs above.
INJECTIONS: list[tuple[Injection, dict[str, float] | None]] = [
    (broker_epochs_are_not_compared, {"interfere": 10, "depose": 3}),
    (partition_epochs_are_not_compared, {"replay": 10}),
    (pending_members_do_not_count, {"depose": 4, "die": 1}),
    (a_small_isr_commits, None),
    (a_return_is_not_a_death, None),
    (lost_power_is_ignored, None),
    (an_empty_directory_counts_as_lost_power, {"lose_directory": 2, "everything_loses_power": 2}),
    (the_eligible_stay_eligible, None),
    (who_leaves_a_large_isr_is_eligible, None),
    (a_smaller_min_isr_has_no_effect_on_the_elr, None),
    (dropped_replicas_leave_the_leader_epoch, {"reassign": 10, "prefer": 10, "flicker": 2}),
    (elections_are_unclean, None),
]


@pytest.mark.parametrize(("inject", "faults"), INJECTIONS, ids=[i.__name__ for i, _ in INJECTIONS])
def test_election_model_with_an_injected_bug_reports_lost_records(
    inject: Injection, faults: dict[str, float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = inject(monkeypatch) or Rules()
    rules.faults = faults
    monkeypatch.setattr(model_cluster, "check_partition", lambda *arguments: None)
    nodes = 5 if inject is dropped_replicas_leave_the_leader_epoch else 3
    for seed in range(500):
        try:
            SafetyModel(seed, nodes=nodes, rules=rules).run(2 * STEPS)
        except Violation:
            return
    pytest.fail(f"500 runs did not notice that {inject.__name__}: {inject.__doc__}")
