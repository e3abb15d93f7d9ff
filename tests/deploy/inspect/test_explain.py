"""Test the explanations of a stuck reader and of a transaction, case by case."""

from dataclasses import replace

import pytest

from oncelog.client.cluster_view import PartitionInfo
from oncelog.client.dual_write.names import session_id
from oncelog.client.groups.descriptions import GroupDescription, MemberDescription
from oncelog.client.transaction_admin import DescribedTransaction, PartitionProducer
from oncelog.deploy.inspect.explain import (
    NO_TIMEOUT_MS,
    GroupFacts,
    PartitionFacts,
    PartitionTransaction,
    explain,
    why,
)

NOW_MS = 1_000_000
KEY = ("orders", 0)
PRODUCER = PartitionProducer(
    producer_id=4,
    producer_epoch=2,
    last_sequence=9,
    last_timestamp_ms=NOW_MS - 71_000,
    coordinator_epoch=1,
    first_offset=200,
)
ONGOING = DescribedTransaction(
    transactional_id="app-1",
    coordinator=3,
    state="Ongoing",
    producer_id=4,
    producer_epoch=2,
    timeout_ms=95_000,
    start_ms=NOW_MS - 83_000,
    partitions=(KEY, ("orders", 1)),
)
PARTITION = PartitionInfo(
    topic="orders", partition=0, leader=1, leader_epoch=5, replicas=(1, 2, 3), isr=(1, 2, 3)
)
CLEAN = PartitionFacts(
    partition=PARTITION,
    min_insync=2,
    log_start=0,
    last_stable=1663,
    high_watermark=1663,
    now_ms=NOW_MS,
)


def held(*holders: PartitionTransaction) -> PartitionFacts:
    return replace(CLEAN, last_stable=200, holders=holders)


def lines_of(explanation) -> dict[str, str]:
    return {about: text for about, text in reversed(explanation.lines)}


def test_why_of_a_partition_without_an_open_transaction_names_the_high_watermark():
    explanation = why(CLEAN)
    assert explanation.heading == (
        "orders/0: nothing is open; every offset below 1663 can be read."
    )
    assert not explanation.lines


def test_why_of_a_partition_with_an_open_transaction_names_its_age_and_timeout():
    explanation = why(held(PartitionTransaction(PRODUCER, ONGOING)))
    assert explanation.heading == (
        "orders/0: readers of committed data stop at offset 200. The high watermark is 1663."
    )
    assert explanation.lines == (
        (
            "held by",
            "app-1 (producer 4, epoch 2), open here since offset 200; last record written 71 s ago",
        ),
        ("coordinator", "node 3: Ongoing"),
        (
            "will end",
            "in 12 s at the earliest: the coordinator aborts it after its timeout of 95 s, at its "
            "next check (Kafka: every 10 s), and fences its producer by epoch 3",
        ),
        ("to end it", "oncelog txn abort app-1"),
    )


OF_A_DUAL_WRITE = session_id("billing", "0123abcd", bytes(range(8)))


def with_state(**changes) -> PartitionFacts:
    return held(PartitionTransaction(PRODUCER, replace(ONGOING, **changes)))


@pytest.mark.parametrize(
    ("facts", "about", "words"),
    [
        (with_state(timeout_ms=80_000), "will end", "passed 3.0 s ago"),
        (with_state(timeout_ms=NO_TIMEOUT_MS), "will end", "prepared, without a timeout"),
        (with_state(timeout_ms=NO_TIMEOUT_MS), "to end it", "txn abort app-1"),
        (with_state(transactional_id=OF_A_DUAL_WRITE), "will end", "writer billing"),
        (with_state(transactional_id=OF_A_DUAL_WRITE), "to end it", "txn check-back --resolver"),
        (with_state(state="PrepareCommit"), "missing", "the commit marker in orders/0, orders/1"),
        (with_state(state="PrepareAbort"), "missing", "the abort marker in"),
        (with_state(state="PrepareCommit", producer_epoch=3), "missing", "commit marker"),  # V2
        (with_state(state="PrepareCommit"), "will end", "the decision is final"),
        # the coordinator has another transaction than the open one here, or none
        (with_state(state="CompleteCommit"), "coordinator", "it hangs"),
        (with_state(state="Empty", producer_epoch=5), "coordinator", "epoch 5"),
        (with_state(producer_epoch=3), "coordinator", "it hangs"),
        (with_state(state="PrepareAbort", partitions=()), "coordinator", "it hangs"),
        (with_state(producer_id=5), "coordinator", "it hangs"),
        (held(PartitionTransaction(PRODUCER, None)), "coordinator", "no coordinator knows"),
        (
            held(PartitionTransaction(PRODUCER, None)),
            "to end it",
            "oncelog txn abort --partition orders/0 --producer-id 4",
        ),
        (held(), "held by", "has just ended"),
        (
            held(PartitionTransaction(PRODUCER, ONGOING), PartitionTransaction(PRODUCER, None)),
            "behind it",
            "1 more open transactions: producer 4",
        ),
    ],
)
def test_why_of_a_blocked_partition_names_its_transaction_and_how_that_transaction_ends(
    facts, about, words
):
    assert words in lines_of(why(facts))[about]


def test_why_of_a_partition_without_a_leader_names_the_replicas_that_were_last_in_sync():
    gone = replace(PARTITION, leader=-1, isr=(2,))
    explanation = why(PartitionFacts(partition=gone, min_insync=2, now_ms=NOW_MS))
    assert "has no leader" in explanation.heading
    assert lines_of(explanation) == {
        "replicas": "1, 2, 3; last in sync: 2",
        "to do": "start one that was in sync: oncelog start 2",
    }


def test_why_of_a_partition_below_min_insync_replicas_names_the_nodes_to_start():
    facts = replace(CLEAN, partition=replace(PARTITION, isr=(1,)))
    lines = lines_of(why(facts))
    assert "1 in sync (1), and min.insync.replicas requires 2" in lines["replicas"]
    assert lines["to do"] == "start or repair node 2, 3"


# -- a group


MEMBER = MemberDescription("m-1", None, "client", "/127.0.0.1", (KEY,))
GROUP = GroupDescription("g", "Stable", "consumer", "range", 2, (MEMBER,))


def of_group(facts: PartitionFacts, **fields) -> dict[str, str]:
    group = GroupFacts(**{"name": "g", "described": GROUP, "committed": 1000} | fields)
    return lines_of(why(replace(facts, group=group)))


@pytest.mark.parametrize(
    ("fields", "about", "words"),
    [
        ({}, "group", "g has committed offset 1000: 663 offsets behind what can be read"),
        ({"committed": 1663}, "group", "all that is committed has been read"),
        ({"committed": None}, "group", "has committed nothing here"),
        ({"described": None}, "group", "there is no group g"),
        ({}, "members", "1; this partition is read by m-1 at /127.0.0.1"),
        ({"described": replace(GROUP, members=(replace(MEMBER, partitions=()),))},
         "members", "none of them"),
        ({"described": replace(GROUP, members=(), state="Empty")}, "members", "none: the group is"),
        ({"described": replace(GROUP, state="PreparingRebalance")}, "members",
         "1; the group is PreparingRebalance"),
        ({"is_unstable": True}, "offset", "UNSTABLE_OFFSET_COMMIT"),
    ],
)  # fmt: skip
def test_why_of_a_group_names_its_lag_and_the_reason(fields, about, words):
    assert words in of_group(CLEAN, **fields)[about]


GIVES = MemberDescription("m-1", None, "client", "/h", (KEY,), 3, (), "consumer")
TAKES = MemberDescription("m-2", None, "client", "/h", (), 4, (KEY,), "consumer")
SHARED = GroupDescription(
    "g", "Reconciling", "consumer", "uniform", 2, (GIVES, TAKES), "consumer", 4, 4
)


@pytest.mark.parametrize(
    ("group", "about", "words"),
    [
        (SHARED, "members", "2; the group is Reconciling; this partition is read by m-1 at /h"),
        (SHARED, "gives it up", "m-1 (epoch 3 of 4), when its application polls next"),
        (SHARED, "takes it", "m-2 (epoch 4 of 4), when nobody has it"),
        (replace(SHARED, members=(), state="Empty"), "members", "none: the group is"),
        (replace(SHARED, members=(), state="Stable", type="share"), "members",
         "it is a share group, Stable: its members are not requested"),
    ],
)  # fmt: skip
def test_why_of_a_group_names_the_member_that_reads_and_the_member_that_waits(group, about, words):
    assert words in of_group(CLEAN, described=group)[about]


def test_why_of_a_group_at_the_last_stable_offset_reports_all_committed_records_as_read():
    lines = of_group(held(PartitionTransaction(PRODUCER, ONGOING)), committed=200)
    assert "all that is committed has been read" in lines["group"]
    assert "app-1" in lines["held by"]


def test_why_of_a_group_below_the_log_start_reports_that_offsets_are_reset():
    assert "starts again" in of_group(replace(CLEAN, log_start=1200))["group"]


def test_why_of_a_group_with_unstable_offsets_tells_the_end_of_the_transaction_once():
    offsets = ("__consumer_offsets", 3)
    transaction = replace(ONGOING, partitions=(KEY, offsets))
    holder = PartitionTransaction(PRODUCER, transaction)
    group = GroupFacts(
        name="g", described=GROUP, committed=1000, is_unstable=True, holders=((offsets, holder),)
    )
    alone = why(replace(CLEAN, group=group)).lines
    assert [about for about, _ in alone].count("will end") == 1
    both = why(replace(held(holder), group=group)).lines
    assert [about for about, _ in both].count("will end") == 1
    assert [about for about, _ in both].count("held by") == 2


# -- a transactional id


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "has had a transaction open for 83 s (producer 4, epoch 2)"),
        ({"state": "PrepareCommit"}, "the decision to commit"),
        ({"state": "PrepareAbort"}, "the decision to abort"),
        ({"state": "CompleteCommit"}, "the last one was committed everywhere"),
        ({"state": "CompleteAbort"}, "the last one was aborted everywhere"),
        ({"state": "Empty"}, "no earlier one in its session"),
        ({"state": "PrepareEpochFence"}, "app-1 is PrepareEpochFence"),
    ],
)
def test_transaction_in_each_state_is_explained_with_a_sentence(changes, words):
    explanation = explain(replace(ONGOING, **changes), now_ms=NOW_MS)
    assert words in explanation.heading
    assert lines_of(explanation)["coordinator"] == "node 3"
    assert "epoch below 2" in lines_of(explanation)["fenced"]


def test_transaction_that_is_open_is_explained_with_its_partitions_and_last_write():
    partitions = tuple(("orders", index) for index in range(9))
    explanation = explain(
        replace(ONGOING, partitions=partitions), now_ms=NOW_MS, last_write_ms=NOW_MS - 500
    )
    assert lines_of(explanation)["last write"] == "0.5 s ago"
    assert lines_of(explanation)["partitions"].endswith("orders/5 and 3 more")
    assert lines_of(explain(replace(ONGOING, partitions=()), now_ms=NOW_MS))["partitions"] == (
        "no partition yet"
    )


def test_transaction_with_markers_for_a_leaderless_partition_is_explained():
    explanation = explain(replace(ONGOING, state="PrepareCommit"), now_ms=0, leaderless=[KEY])
    assert lines_of(explanation)["waits for"].startswith("a leader of orders/0")


def test_explanation_of_a_transaction_of_producer_epoch_zero_mentions_no_fencing():
    assert "fenced" not in lines_of(explain(replace(ONGOING, producer_epoch=0), now_ms=NOW_MS))
