"""Test the events that are derived from the difference of two observations."""

from dataclasses import replace

import pytest

from oncelog.ui.changes import changes
from oncelog.ui.facts import ClusterFacts, ObservedNode

from .known_facts import KEY, NOW_MS, facts, group, member, partition, transaction


def sentences(part: str, before: ClusterFacts, after: ClusterFacts) -> list[tuple[str, str]]:
    return [(e.kind, e.sentence) for e in changes(part, before, after, NOW_MS)]


def test_first_observation_of_a_cluster_makes_no_event() -> None:
    assert changes("cluster", ClusterFacts(), facts(), NOW_MS) == []


def test_observation_without_a_change_makes_no_event() -> None:
    for part in ("cluster", "transactions", "groups", "nodes", "offsets"):
        assert changes(part, facts(), facts(), NOW_MS) == []


def test_elections_between_the_same_nodes_make_one_election_event() -> None:
    keys = [("orders", n) for n in range(6)]
    before = facts(partitions={k: partition(index=k[1]) for k in keys})
    after = facts(partitions={k: partition(index=k[1], leader=2, isr=(2, 3)) for k in keys})
    assert sentences("cluster", before, after) == [
        (
            "election",
            "orders/0, orders/1, orders/2, orders/3 and 2 more: led by node 2, from node 1",
        ),
        ("isr", "node 1 left the ISR of orders/0, orders/1, orders/2, orders/3 and 2 more"),
    ]


def test_created_and_deleted_topics_make_events() -> None:
    before, after = facts(partitions={("a", 0): partition("a")}), facts()
    assert sentences("cluster", before, after) == [
        ("topic", "topic orders was created"),
        ("topic", "topic a was deleted"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "kind", "words"),
    [
        ({}, {"state": "PrepareAbort", "producer_epoch": 3}, "abort", "was aborted (epoch 2 to 3)"),
        (
            {"start_ms": NOW_MS - 60_000},
            {"state": "CompleteAbort", "producer_epoch": 3},
            "abort",
            "after its timeout of 60 s, its producer fenced (epoch 2 to 3)",
        ),
        ({}, {"state": "Empty", "producer_epoch": 3}, "fence", "an older producer is fenced"),
        ({}, {"state": "PrepareEpochFence", "producer_epoch": 3}, "fence", "a newer session"),
    ],
)
def test_transaction_that_is_fenced_or_aborted_makes_an_event(old, new, kind, words) -> None:
    before = facts(transactions={"app-1": transaction(**old)})
    after = facts(transactions={"app-1": transaction(**{**old, **new})})
    ((found, sentence),) = sentences("transactions", before, after)
    assert found == kind
    assert words in sentence


def test_transaction_commits_make_no_event() -> None:
    after = facts(transactions={"app-1": transaction(state="CompleteCommit", producer_epoch=3)})
    assert sentences("transactions", facts(), after) == []


def test_rebalance_event_names_new_and_departed_members() -> None:
    described = group().described
    assert described is not None
    new = replace(described, members=(member("m-2", KEY),), state="PreparingRebalance")
    after = facts(groups={"readers": group(described=new)})
    assert sentences("groups", facts(), after) == [
        ("group", "group readers: joined by m-2; left by m-1; Stable to PreparingRebalance")
    ]


def test_restarted_node_makes_an_event() -> None:
    before = facts(nodes={1: ObservedNode(node_id=1, state="running", pid=5)})
    after = facts(nodes={1: ObservedNode(node_id=1, state="running", pid=6)})
    told = [("node", "node 1 was started again (pid 5 to 6)")]
    assert sentences("nodes", before, after) == told
