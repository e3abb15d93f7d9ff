"""Test that oncelog and Apache Kafka answer the same requests with equal fields.

A difference is either fixed, or listed with its reason in `meant_differences`. Every API that both
support is compared. By default most APIs are compared in every third version, and with -m kafka in
all versions. An API without a scenario fails a test of this file.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from oncelog.wire.messages.apis import API_NAMES, APIS

from .cases import (
    admin,
    consumer_group_offsets,
    consumer_groups,
    fixed_facts,
    group_admin,
    groups,
    log,
    lying,
    migration,
    other_configs,
    transaction_admin,
    transactions,
)
from .cases import (
    cluster as cases_cluster,
)
from .comparison import Comparison
from .meant_differences import MEANT
from .raw_peer import API_VERSIONS, RawPeer

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.cluster,
    pytest.mark.xdist_group("same answers"),  # the last one judges the comparisons of all
]
FRAMES = -1  # no API: bytes that are no request
SCENARIOS = {
    0: (
        log.produce,
        log.produce_batches,
        lying.produce_lying_batches,
        log.produce_in_sequence,
        log.produce_to_configured,
        log.produce_in_no_transaction,
        transaction_admin.internal_topics,
    ),
    1: (log.fetch, log.fetch_sessions, log.fetch_as_replica),
    2: (log.list_offsets,),
    3: (cases_cluster.metadata, cases_cluster.auto_creation),
    8: (group_admin.offset_commit, consumer_group_offsets.consumer_commits),
    9: (group_admin.offset_fetch, consumer_group_offsets.consumer_fetches),
    10: (transaction_admin.find_coordinator,),
    11: (groups.join_group, groups.join_with_instances),
    12: (groups.heartbeat,),
    13: (groups.leave_group, consumer_group_offsets.expelled),
    14: (groups.sync_group,),
    15: (group_admin.describe_groups,),
    16: (group_admin.list_groups,),
    18: (cases_cluster.api_versions,),
    19: (admin.create_topics,),
    20: (admin.delete_topics,),
    21: (log.delete_records,),
    22: (cases_cluster.init_producer_id, transactions.init_producer_id),
    23: (log.offset_for_leader_epoch,),
    24: (transactions.add_partitions_to_txn,),
    25: (transactions.add_offsets_to_txn,),
    26: (transactions.end_txn,),
    27: (transaction_admin.write_txn_markers,),
    28: (transactions.txn_offset_commit, consumer_group_offsets.consumer_transactions),
    29: (cases_cluster.acls,),
    32: (admin.describe_configs,),
    33: (admin.alter_configs,),
    34: (fixed_facts.alter_replica_log_dirs,),
    35: (admin.describe_log_dirs,),
    37: (admin.create_partitions,),
    38: (fixed_facts.delegation_tokens,),
    42: (group_admin.delete_groups,),
    43: (admin.elect_leaders,),
    44: (
        admin.incremental_alter_configs,
        other_configs.one_broker,
        other_configs.loggers,
        other_configs.client_metrics,
    ),
    45: (admin.reassignments,),
    47: (group_admin.offset_delete,),
    55: (admin.describe_quorum,),
    57: (fixed_facts.update_features,),
    60: (cases_cluster.describe_cluster,),
    61: (transaction_admin.describe_producers,),
    64: (fixed_facts.unregister_broker,),
    65: (transaction_admin.describe_transactions,),
    66: (transaction_admin.list_transactions,),
    68: (
        consumer_groups.consumer_heartbeat,
        consumer_groups.consumer_rebalance,
        consumer_groups.consumer_assigning,
        consumer_groups.consumer_kinds,
        consumer_groups.consumer_instances,
        consumer_groups.consumer_patterns,
        migration.refused_upgrades,
        migration.mixed_groups,
        migration.downgraded_groups,
        migration.mixed_instances,
        migration.later_targets,
    ),
    69: (consumer_groups.consumer_describe, consumer_group_offsets.classic_requests),
    74: (cases_cluster.list_config_resources,),
    75: (cases_cluster.describe_topic_partitions,),
    80: (fixed_facts.raft_voters,),
    94: (fixed_facts.unregister_controller,),
}
ASKED_ELSEWHERE = {
    30: 29,
    31: 29,
    39: 38,
    40: 38,
    41: 38,
    46: 45,
    81: 80,
}  # in the scenario of another API
# These are about logins, quotas and ACLs: a plain listener without users shows little of them.
# Rights and throttle times are compared with Kafka's in tests/node/security and tests/interop.
OF_SECURED_CLUSTERS = {17, 36, 48, 49, 50, 51}
_GROUPS = {8, 9, 10, 11, 12, 13, 14, 15}
_TRANSACTIONS = {9, 10, 22, 24, 25, 26, 28, 61, 65}
NEEDS = {  # requests of a file's scenarios beside its own APIs
    groups: _GROUPS,
    group_admin: _GROUPS,
    consumer_groups: _GROUPS | {16, 44, 68, 69},
    migration: _GROUPS | {16, 44, 68, 69},
    consumer_group_offsets: _GROUPS | _TRANSACTIONS | {42, 47, 68, 69},
    transactions: _TRANSACTIONS,
    transaction_admin: _TRANSACTIONS,
}
comparison = Comparison(MEANT)
runs: set[tuple[int, bool]] = set()  # API, whether the other versions
left_out: dict[object, set[int]] = {}


def _judge(api: str, version: int, kafka_cases, our_cases) -> list[str]:
    found = []
    for (case, theirs), (same_case, mine) in zip(kafka_cases, our_cases, strict=True):
        assert case == same_case
        found += [str(d) for d in comparison.compare(api, version, case, theirs, mine)]
    return found


def _versions(peer: RawPeer) -> dict[int, tuple[int, int]]:
    answer = peer.ask_raw(API_VERSIONS, 0, {})
    return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}


@pytest.fixture(scope="module")
def served(kafka, ours) -> dict[int, range]:
    """Return the versions of each API that both brokers support."""
    theirs, mine = _versions(kafka), _versions(ours)
    return {
        key: range(
            max(theirs[key][0], mine[key][0], APIS[key].oldest),
            min(theirs[key][1], mine[key][1]) + 1,
        )
        for key in theirs.keys() & mine.keys()
    }


def test_every_served_api_is_compared_with_apache_kafka(served):
    assert served.keys() == SCENARIOS.keys() | ASKED_ELSEWHERE.keys() | OF_SECURED_CLUSTERS


def _asked_by_default(versions: range) -> set[int]:
    """Return the oldest, the newest and every third version, which run without -m kafka."""
    return {versions[0], *versions[::-3]}


@pytest.mark.parametrize("key", sorted(SCENARIOS), ids=API_NAMES.get)
@pytest.mark.parametrize(
    "others", [False, pytest.param(True, marks=pytest.mark.chaos)], ids=["every third", "others"]
)
def test_our_answers_in_each_api_version_equal_the_answers_of_apache_kafka(
    key, others, kafka, ours, served
):
    if key not in served:
        pytest.skip(f"{API_NAMES[key]} is not served by both")
    found = []
    for scenario in SCENARIOS[key]:
        missing = _needs(scenario) - served.keys()
        if missing:
            left_out[scenario] = missing
            continue
        for version in served[key]:
            if (version in _asked_by_default(served[key])) != others:
                answers = _answers(scenario, version, kafka, ours)
                found += _judge(API_NAMES[key], version, *answers)
    runs.add((key, others))
    assert not found, f"{len(found)} differences\n" + "\n".join(found)


def _answers(
    scenario: Callable[[RawPeer, int], Iterator[tuple[str, Any]]], version: int, *peers: RawPeer
) -> list[list[tuple[str, Any]]]:
    """Run the scenario on each broker concurrently, and return the answers of each broker."""
    with ThreadPoolExecutor(len(peers)) as pool:
        return list(pool.map(lambda peer: list(scenario(peer, version)), peers))


def _needs(scenario) -> set[int]:
    return next(
        (apis for file, apis in NEEDS.items() if file.__name__ == scenario.__module__), set()
    )


def test_our_answers_to_malformed_frames_equal_the_answers_of_apache_kafka(kafka, ours):
    found = _judge("frames", 0, *_answers(cases_cluster.frames, 0, kafka, ours))
    runs.update({(FRAMES, False), (FRAMES, True)})
    assert not found, f"{len(found)} differences\n" + "\n".join(found)


def test_listed_difference_from_apache_kafka_still_exists():
    """The test runs last. It checks nothing if only some comparisons ran in this process."""
    if left_out or runs != {
        (key, other) for key in (FRAMES, *SCENARIOS) for other in (False, True)
    }:
        pytest.skip("not all comparisons ran here")
    stale = [meant for meant in MEANT if meant not in comparison.used]
    assert not stale, "\n".join(map(str, stale))
