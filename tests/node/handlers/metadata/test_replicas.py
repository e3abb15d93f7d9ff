"""Test elections, reassignments, log directories, the quorum and other small APIs."""

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.coordinator.metadata.commands import ElectLeaders
from oncelog.wire.errors import ErrorCode, RequestTimedOut

from ...fake_broker import CLUSTER_ID, FakeBroker

ELECT, REASSIGN, LIST_MOVES, LOG_DIRS, QUORUM = 43, 45, 46, 35, 55
API_VERSIONS, DESCRIBE_CLUSTER, INIT_PRODUCER_ID, LIST_CONFIGS = 18, 60, 22, 74


def results_of(answer: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.topic, partition.partition_id): partition.error_code
        for topic in answer.replica_election_results
        for partition in topic.partition_result
    }


def bounce(broker: FakeBroker, node: int) -> None:
    """Fence and unfence a node, so that it leads no partition afterwards."""
    broker.fence(node)
    broker.unfence(node)


def created(broker: FakeBroker, name: str, *replicas: int) -> None:
    assignment = [{"partition_index": 0, "broker_ids": list(replicas)}]
    topic = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": assignment,
    }
    assert broker.ask(19, 7, {"topics": [topic]}).topics[0].error_code == 0


@pytest.mark.parametrize("version", range(3))
def test_elect_leaders_reports_each_partition(broker: FakeBroker, version: int) -> None:
    broker.create("a", partitions=1)
    question = {"topic_partitions": [{"topic": "a", "partitions": [0, 7]}], "election_type": 0}
    assert results_of(broker.ask(ELECT, version, question)) == {
        ("a", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("a", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_elect_leaders_for_all_partitions_omits_partitions_that_need_no_election(
    broker: FakeBroker,
) -> None:
    broker.create("a", partitions=3)
    assert results_of(broker.ask(ELECT, 2, {"topic_partitions": None})) == {}


def test_elect_leaders_of_an_unknown_type_is_refused() -> None:
    question = {"topic_partitions": [{"topic": "a", "partitions": [0]}], "election_type": 7}
    answer = FakeBroker().ask(ELECT, 2, question)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert results_of(answer) == {("a", 0): ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize("version", range(2))
def test_reassignment_request_moves_a_partition_and_can_be_cancelled(
    broker: FakeBroker, version: int
) -> None:
    created(broker, "a", 1)
    created(broker, "b", 1)

    def ask(*partitions: tuple[str, int, list[int] | None]) -> list[tuple[str, int, int]]:
        topics = [
            {"name": name, "partitions": [{"partition_index": index, "replicas": replicas}]}
            for name, index, replicas in partitions
        ]
        answer = broker.ask(REASSIGN, version, {"topics": topics})
        assert answer.error_code == 0
        return [
            (t.name, p.partition_index, p.error_code)
            for t in answer.responses
            for p in t.partitions
        ]

    assert ask(("a", 0, [2]), ("a", 9, [2]), ("b", 0, [5]), ("b", 0, None)) == [
        ("a", 0, 0),
        ("a", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("b", 0, ErrorCode.INVALID_REQUEST),
        ("b", 0, ErrorCode.INVALID_REQUEST),
    ]
    listed = broker.ask(LIST_MOVES, 0, {"topics": None})
    ((topic),) = listed.topics
    (partition,) = topic.partitions
    assert (topic.name, partition.partition_index) == ("a", 0)
    assert sorted(partition.replicas) == [1, 2]
    assert (partition.adding_replicas, partition.removing_replicas) == ([2], [1])
    other = broker.ask(LIST_MOVES, 0, {"topics": [{"name": "a", "partition_indexes": [1]}]})
    assert other.topics == []
    assert ask(("a", 0, None), ("b", 0, None)) == [
        ("a", 0, 0),
        ("b", 0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ]
    assert broker.ask(LIST_MOVES, 0, {"topics": None}).topics == []


def test_reassignment_request_that_changes_a_protected_replication_factor_is_refused(
    broker: FakeBroker,
) -> None:
    created(broker, "a", 1)
    topics = [{"name": "a", "partitions": [{"partition_index": 0, "replicas": [1, 2]}]}]
    answer = broker.ask(REASSIGN, 1, {"topics": topics, "allow_replication_factor_change": False})
    (response,) = answer.responses[0].partitions
    assert response.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert answer.allow_replication_factor_change is False


def test_reassignment_request_with_a_silent_controller_fails_as_a_whole(broker: FakeBroker) -> None:
    broker.controller.failure = RequestTimedOut()
    topics = [{"name": "a", "partitions": [{"partition_index": 0, "replicas": [2]}]}]
    assert broker.ask(REASSIGN, 1, {"topics": topics}).error_code == 7
    assert broker.ask(ELECT, 2, {"topic_partitions": None}).error_code == 7


@pytest.mark.parametrize("version", range(1, 6))
def test_describe_log_dirs_lists_hosted_partitions(broker: FakeBroker, version: int) -> None:
    log = SimpleNamespace(
        segments=SimpleNamespace(size_bytes=123), high_watermark=5, log_end_offset=9
    )
    broker.hosted += [SimpleNamespace(topic="a", index=i, log=log) for i in (0, 1)]

    def ask(topics: Any) -> list[tuple[str, int, int, int]]:
        answer = broker.ask(LOG_DIRS, version, {"topics": topics})
        (directory,) = answer.results
        assert (directory.error_code, directory.log_dir) == (0, "/tmp")
        if version >= 4:
            assert directory.total_bytes > directory.usable_bytes > 0
        return [
            (t.name, p.partition_index, p.partition_size, p.offset_lag)
            for t in directory.topics
            for p in t.partitions
        ]

    assert ask(None) == [("a", 0, 123, 0), ("a", 1, 123, 0)]
    assert ask([{"topic": "a", "partitions": [1, 7]}]) == [("a", 1, 123, 0)]
    assert ask([]) == []


@pytest.mark.parametrize("version", range(3))
def test_describe_quorum_shows_leader_and_voters(version: int) -> None:
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    answer = FakeBroker().ask(QUORUM, version, {"topics": topics})
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 7)
    assert partition.high_watermark == 41
    assert [(v.replica_id, v.log_end_offset) for v in partition.current_voters] == [
        (1, 41),
        (2, 41),
        (3, 41),
    ]
    if version >= 1:
        assert all(v.last_fetch_timestamp > 1_600_000_000_000 for v in partition.current_voters)
    if version >= 2:
        assert [(n.node_id, n.listeners[0].port) for n in answer.nodes] == [
            (1, 9091),
            (2, 9092),
            (3, 9093),
        ]


def test_describe_quorum_of_another_topic_is_refused() -> None:
    topics = [{"topic_name": "a", "partitions": [{"partition_index": 0}]}]
    answer = FakeBroker().ask(QUORUM, 2, {"topics": topics})
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(6))
def test_api_versions_answer_equals_the_dispatch_table(broker: FakeBroker, version: int) -> None:
    software = {"client_software_name": "librdkafka", "client_software_version": "2.16.0"}
    answer = broker.ask(API_VERSIONS, version, software)
    assert answer.error_code == 0
    found = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert found == {
        key: (api.min_version, api.max_version) for key, api in broker.dispatcher.table.items()
    }
    assert found[API_VERSIONS] == (0, 5)
    if version >= 3:
        assert broker.context.client_software == ("librdkafka", "2.16.0")


@pytest.mark.parametrize("name", ["", "-x", "a b", "x" * 10 + "!"])
def test_api_versions_with_an_invalid_client_software_name_is_refused(name: str) -> None:
    software = {"client_software_name": name, "client_software_version": "1"}
    answer = FakeBroker().ask(API_VERSIONS, 3, software)
    assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST, [])


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "error"),
    [
        (None, -1, ErrorCode.NONE),
        (CLUSTER_ID, 1, ErrorCode.NONE),
        (CLUSTER_ID, 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("another", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        (CLUSTER_ID, -2, ErrorCode.REBOOTSTRAP_REQUIRED),
        (CLUSTER_ID, -1, ErrorCode.INVALID_REQUEST),
        (None, 1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_api_versions_for_another_cluster_or_broker_answers_rebootstrap_required(
    broker: FakeBroker, cluster_id: str | None, node_id: int, error: ErrorCode
) -> None:
    """The client's address of the broker may now belong to another cluster (KIP-1242)."""
    software = {"client_software_name": "a", "client_software_version": "1"}
    meant = {"cluster_id": cluster_id, "node_id": node_id}
    answer = broker.ask(API_VERSIONS, 5, software | meant)
    assert (answer.error_code, bool(answer.api_keys)) == (error, not error)


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_shows_the_brokers(broker: FakeBroker, version: int) -> None:
    broker.fence(3)
    question = {"include_cluster_authorized_operations": True}
    answer = broker.ask(DESCRIBE_CLUSTER, version, question)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, CLUSTER_ID, 1)
    assert [(b.broker_id, b.port) for b in answer.brokers] == [(1, 9091), (2, 9092)]
    assert answer.cluster_authorized_operations == 8096
    if version >= 2:
        fenced = broker.ask(DESCRIBE_CLUSTER, 2, {"include_fenced_brokers": True})
        assert [(b.broker_id, b.is_fenced) for b in fenced.brokers][2] == (3, True)


@pytest.mark.parametrize(("endpoint_type", "code"), [(2, 114), (9, 115)])
def test_describe_cluster_of_another_endpoint_type_is_refused(
    endpoint_type: int, code: int
) -> None:
    answer = FakeBroker().ask(DESCRIBE_CLUSTER, 1, {"endpoint_type": endpoint_type})
    assert answer.error_code == code


def test_list_config_resources_without_types_lists_topics_brokers_and_loggers(
    broker: FakeBroker,
) -> None:
    broker.create("a")
    every = broker.ask(LIST_CONFIGS, 1, {"resource_types": []}).config_resources
    brokers_and_loggers = {(kind, name) for kind in (4, 8) for name in "123"}
    assert {(r.resource_type, r.resource_name) for r in every} == {(2, "a"), *brokers_and_loggers}
    topics = broker.ask(LIST_CONFIGS, 1, {"resource_types": [2]}).config_resources
    assert [(r.resource_type, r.resource_name) for r in topics] == [(2, "a")]
    assert broker.ask(LIST_CONFIGS, 1, {"resource_types": [99]}).error_code == 35
    assert broker.ask(LIST_CONFIGS, 0).config_resources == []


@pytest.mark.parametrize("version", range(1, 4))
def test_acl_requests_without_an_authorizer_get_security_disabled(
    broker: FakeBroker, version: int
) -> None:
    creation = {"resource_name": "a", "principal": "User:a", "host": "*"}
    assert broker.ask(29, version).error_code == ErrorCode.SECURITY_DISABLED
    created_acls = broker.ask(30, version, {"creations": [creation, creation]})
    assert [r.error_code for r in created_acls.results] == [54, 54]
    assert [r.error_code for r in broker.ask(31, version, {"filters": [{}]}).filter_results] == [54]


@pytest.mark.parametrize("version", range(6))
def test_init_producer_id_without_a_transactional_id_returns_a_new_id(
    broker: FakeBroker, version: int
) -> None:
    answers = [broker.ask(INIT_PRODUCER_ID, version, {"transactional_id": None}) for _ in "ab"]
    assert [(a.error_code, a.producer_epoch) for a in answers] == [(0, 0), (0, 0)]
    assert answers[0].producer_id != answers[1].producer_id


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"transactional_id": None, "producer_id": 5, "producer_epoch": 3}, 0),
        ({"transactional_id": None, "producer_id": 5, "producer_epoch": -1}, 42),
        ({"transactional_id": None, "producer_id": -1, "producer_epoch": 3}, 42),
    ],
)
def test_init_producer_id_with_only_one_of_producer_id_and_epoch_is_refused(
    values: dict[str, Any], code: int
) -> None:
    answer = FakeBroker().ask(INIT_PRODUCER_ID, 5, values)
    assert answer.error_code == code
    if code:
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


def test_init_producer_id_without_an_id_block_gets_a_retriable_error(broker: FakeBroker) -> None:
    broker.controller.failure = RequestTimedOut()
    answer = broker.ask(INIT_PRODUCER_ID, 5, {"transactional_id": None})
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_elect_leaders_of_a_preferred_leader_that_is_not_in_sync_is_refused(
    broker: FakeBroker,
) -> None:
    created(broker, "a", 1, 2, 3)
    bounce(broker, 1)
    assert broker.state.topics["a"].partitions[0].leader == 2
    question = {"topic_partitions": [{"topic": "a", "partitions": [0]}], "election_type": 0}
    (code,) = results_of(broker.ask(ELECT, 2, question)).values()
    assert code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE  # that leader is not in sync yet
    assert results_of(broker.ask(ELECT, 2, {"topic_partitions": None})) == {("a", 0): code}
    # The command names its partitions, so that a long command can be split.
    assert broker.controller.commands[-1] == ElectLeaders(0, (("a", 0),))
