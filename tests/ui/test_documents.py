"""Test the ages, the lags and the open transactions in documents made from facts."""

import json
from typing import Any

import pytest

from oncelog.client.admin import LogDirEntry
from oncelog.deploy.inspect.explain import NO_TIMEOUT_MS, PartitionTransaction
from oncelog.ui import documents
from oncelog.ui.facts import ClusterFacts, ClusterSample, ObservedNode, ObservedOffsets
from oncelog.ui.troubles import troubles

from .known_facts import KEY, NOW_MS, PARTS, facts, group, partition, producer, transaction


def test_documents_of_an_unobserved_cluster_are_empty_and_undated() -> None:
    nothing = ClusterFacts()
    for make in (
        documents.cluster, documents.topics, documents.partitions, documents.transactions,
        documents.groups, documents.events,
    ):  # fmt: skip
        found = make(nothing, NOW_MS)
        assert found["as_of_ms"] == 0
        json.dumps(found)


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (documents.cluster, ("cluster", "offsets", "transactions", "groups", "nodes")),
        (documents.topics, ("cluster", "offsets", "transactions")),
        (documents.partitions, ("cluster", "offsets", "transactions")),
        (lambda f, at: documents.partition(f, KEY, at, 2), ("offsets", "transactions", "groups")),
        (documents.transactions, ("transactions",)),
        (lambda f, at: documents.transaction(f, "app-1", at), ("transactions", "offsets")),
        (documents.groups, ("groups", "offsets", "transactions")),
    ],
)
def test_ui_document_is_dated_by_its_oldest_observation(make: Any, parts: tuple[str, ...]) -> None:
    nodes = {1: ObservedNode(node_id=1, state="running")}
    for part in parts:
        told = {**dict.fromkeys(PARTS, NOW_MS), part: NOW_MS - 900}
        found = make(facts(as_of_ms=told, nodes=nodes), NOW_MS)
        assert found["as_of_ms"] == NOW_MS - 900, part
        refused = {name: at_ms for name, at_ms in told.items() if name != part}
        found = make(facts(as_of_ms=refused, nodes=nodes, not_exposed={part: "no"}), NOW_MS)
        assert found["as_of_ms"] == (NOW_MS if len(parts) > 1 else 0), part


def test_ui_figures_requested_less_often_show_their_own_age() -> None:
    told = {
        **dict.fromkeys(PARTS, NOW_MS),
        "log starts": NOW_MS - 9_000,
        "replicas": NOW_MS - 8_000,
    }
    known = facts(as_of_ms=told, min_insync_ms={"orders": NOW_MS - 7_000})
    assert documents.topics(known, NOW_MS)["log_starts_as_of_ms"] == NOW_MS - 9_000
    assert documents.cluster(known, NOW_MS)["log_starts_as_of_ms"] == NOW_MS - 9_000
    for found in (documents.partitions(known, NOW_MS), documents.partition(known, KEY, NOW_MS, 2)):
        assert found["as_of_ms"] == NOW_MS
        assert found["log_starts_as_of_ms"] == NOW_MS - 9_000
        assert found["replicas_as_of_ms"] == NOW_MS - 8_000
    assert found["min_insync_replicas_as_of_ms"] == NOW_MS - 7_000


def test_ui_log_start_beyond_the_log_end_is_treated_as_unknown() -> None:
    known = facts(log_starts={KEY: 31}, groups={"readers": group(offset=10)})
    assert known.offsets_of(KEY).log_start is None
    assert [each.about for each in troubles(known, NOW_MS) if each.about.startswith("group")] == []


def test_topic_row_with_a_leaderless_partition_has_no_record_count() -> None:
    keys = ("orders", 0), ("orders", 1)
    known = {key: partition(*key, leader=1 - 2 * key[1]) for key in keys}
    told = {keys[0]: ObservedOffsets(10, 30)}
    (row,) = documents.topics(facts(partitions=known, offsets=told), NOW_MS)["topics"]
    assert (row["records"], row["held_back"], row["leaderless"]) == (None, None, 1)


def test_transactions_document_lists_the_oldest_open_one_first() -> None:
    known = {
        "done": transaction("done", state="CompleteCommit", start_ms=-1, partitions=()),
        "young": transaction("young", start_ms=NOW_MS - 5),
        "old": transaction("old", start_ms=NOW_MS - 50),
    }
    found = documents.transactions(facts(transactions=known), NOW_MS)["transactions"]
    assert [each["transactional_id"] for each in found] == ["old", "young", "done"]
    assert [each["age_ms"] for each in found] == [50, 5, None]


def test_transaction_age_is_measured_at_the_observation_and_not_at_the_page_request() -> None:
    (row,) = documents.transactions(facts(), NOW_MS + 9_000)["transactions"]
    assert (row["age_ms"], row["ends_in_ms"]) == (20_000, 40_000)


def test_ui_ages_in_partition_and_problem_rows_are_measured_at_the_observation() -> None:
    (row,) = documents.partition(facts(), KEY, NOW_MS + 9_000, 2)["partitions"]
    (holder,) = row["open_transactions"]
    assert (holder["age_ms"], holder["ends_in_ms"]) == (20_000, 40_000)
    assert "last record written 19 s ago" in str(row["why"])
    (found,) = documents.cluster(facts(), NOW_MS + 9_000)["troubles"]
    assert "open for 20 s" in found["found"]


def test_transaction_without_a_timeout_is_shown_without_a_timeout() -> None:
    known = {"app-1": transaction(timeout_ms=NO_TIMEOUT_MS)}
    (row,) = documents.transactions(facts(transactions=known), NOW_MS)["transactions"]
    assert (row["timeout_ms"], row["ends_in_ms"]) == (None, None)


def test_partition_document_has_both_lags_of_each_group() -> None:
    (row,) = documents.partition(facts(), KEY, NOW_MS, 2)["partitions"]
    (reader,) = row["groups"]
    assert (reader["lag"], reader["lag_to_last_stable"]) == (20, 0)
    assert row["held_back"] == 20
    assert "stop at offset 10. The high watermark is 30" in row["why"]["heading"]


def test_open_transaction_unknown_to_all_coordinators_is_shown_as_hanging() -> None:
    known = facts(holders={KEY: (PartitionTransaction(producer(), None),)})
    (row,) = documents.partition(known, KEY, NOW_MS, 2)["partitions"]
    assert [each["is_hanging"] for each in row["open_transactions"]] == [True]


def test_replica_rows_have_size_and_lag_where_brokers_report_them() -> None:
    entry = LogDirEntry(2, "/d", *KEY, 500, 3)
    (row,) = documents.partitions(facts(replicas={KEY: (entry,)}), NOW_MS)["partitions"]
    assert [(r["node"], r["size_bytes"], r["offset_lag"]) for r in row["replicas"]] == [
        (1, None, None),
        (2, 500, 3),
        (3, None, None),
    ]


def test_group_row_without_known_end_offsets_has_no_lag() -> None:
    (row,) = documents.groups(facts(offsets={}), NOW_MS)["groups"]
    assert (row["lag"], row["lag_to_last_stable"]) == (None, None)


def test_group_row_with_a_silent_coordinator_has_no_members() -> None:
    silent = group(described=None)
    (row,) = documents.groups(facts(groups={"readers": silent}), NOW_MS)["groups"]
    assert (row["members"], row["offsets"][0]["committed"]) == ([], 4)


def test_node_with_an_ended_process_is_shown_down_despite_metadata() -> None:
    nodes = {1: ObservedNode(node_id=1, state="down"), 4: ObservedNode(node_id=4, state="paused")}
    found = documents.cluster(facts(nodes=nodes), NOW_MS)["nodes"]
    assert {each["node"]: each["state"] for each in found} == {
        1: "down", 2: "serves", 3: "serves", 4: "paused",
    }  # fmt: skip


def test_record_rate_covers_ten_seconds_and_is_unknown_before_two_samples() -> None:
    samples = tuple(ClusterSample(at, at // 10, 0, 0) for at in (0, 5_000, 12_000, 15_000))
    assert documents.records_per_s(samples) == 100.0
    assert documents.records_per_s(samples[:1]) is None


def test_problems_are_listed_worst_first_with_owner_partitions_and_next_step() -> None:
    other = ("orders", 1)
    known = facts(
        partitions={KEY: partition(), other: partition(index=1, leader=-1, isr=(2,))},
        offsets={KEY: ObservedOffsets(10, 30)},
    )
    found = documents.cluster(known, NOW_MS)["troubles"]
    assert [(each["state"], each["about"]) for each in found] == [
        ("bad", "without leader"),
        ("note", "transaction app-1"),
    ]
    assert found[1]["advice"] == "oncelog txn explain app-1"
    assert "open for 20 s, holds orders/0; 20 offsets" in found[1]["found"]


def test_short_transactions_are_not_listed_as_problems() -> None:
    short = transaction(start_ms=NOW_MS - 500)
    known = facts(
        transactions={"app-1": short}, holders={KEY: (PartitionTransaction(producer(), short),)}
    )
    assert documents.cluster(known, NOW_MS)["troubles"] == []
