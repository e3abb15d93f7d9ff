"""Test that the proxy replaces brokers' addresses in answers by its own, in every version."""

from typing import Any

import pytest

from oncelog.deploy.faults.protocol_proxy.bodies import decode_answer_body
from oncelog.deploy.faults.protocol_proxy.events import Answer
from oncelog.deploy.faults.protocol_proxy.rewriting import rewritten_answer
from oncelog.wire.messages.apis import APIS
from oncelog.wire.messages.fetch_answer import FetchedPartition, FetchedTopic, FetchResponse
from oncelog.wire.messages.produce_answer import ProducedPartition, ProducedTopic, ProduceResponse

from .frames import KEYS, TOPIC_ID, answer_of, request_of
from .samples import fetch_request, produce_request

OURS = ("127.0.0.1", 7)


def versions(name: str, first: int = 0) -> list[int]:
    return list(range(max(first, APIS[KEYS[name]].oldest), APIS[KEYS[name]].newest + 1))


def rewritten(name: str, version: int, request: Any, values: Any) -> tuple[Any, Any, list[Any]]:
    """Return the answer's body before and after, and the brokers with a replaced address."""
    asked: list[Any] = []

    def proxied(node_id: int, host: str, port: int) -> tuple[str, int]:
        asked.append((node_id, host, port))
        return OURS[0], OURS[1] + node_id

    answer, frame = answer_of(request_of(name, version, request), values)
    result = rewritten_answer(answer, frame, proxied)
    if not asked and name != "ApiVersions":
        assert result is frame or bytes(result) == bytes(frame)
    after = decode_answer_body(KEYS[name], version, memoryview(result))
    assert answer.body == decode_answer_body(KEYS[name], version, frame), "events keep the broker's"
    return answer.body, after, asked


@pytest.mark.parametrize("version", versions("Metadata"))
def test_metadata_answer_has_the_addresses_of_the_proxy(version):
    brokers = [{"node_id": n, "host": f"b{n}", "port": 9000 + n, "rack": "r"} for n in (1, 2)]
    partition = {"partition_index": 0, "leader_id": 2, "replica_nodes": [2, 1], "isr_nodes": [2]}
    topics = [{"name": "t", "topic_id": TOPIC_ID, "partitions": [partition]}]
    values = {"brokers": brokers, "topics": topics, "cluster_id": "c", "controller_id": 1}
    before, after, asked = rewritten(
        "Metadata", version, {"topics": None if version else []}, values
    )
    assert asked == [(1, "b1", 9001), (2, "b2", 9002)]
    assert [(b.host, b.port) for b in after.brokers] == [("127.0.0.1", 8), ("127.0.0.1", 9)]
    assert after.topics == before.topics


@pytest.mark.parametrize("version", versions("DescribeCluster"))
def test_describe_cluster_answer_has_the_addresses_of_the_proxy(version):
    values = {
        "cluster_id": "c", "controller_id": 1, "endpoint_type": 1,
        "brokers": [{"broker_id": 3, "host": "b", "port": 9}],
    }  # fmt: skip
    _, after, asked = rewritten("DescribeCluster", version, {}, values)
    assert (after.brokers[0].host, after.brokers[0].port) == ("127.0.0.1", 10)
    assert asked == [(3, "b", 9)]


def test_describe_cluster_answer_about_controllers_is_unchanged():
    values = {"endpoint_type": 2, "brokers": [{"broker_id": 3, "host": "b", "port": 9}]}
    _, after, asked = rewritten("DescribeCluster", 1, {"endpoint_type": 2}, values)
    assert (after.brokers[0].host, asked) == ("b", [])


@pytest.mark.parametrize("version", versions("FindCoordinator"))
def test_find_coordinator_answer_has_the_address_of_the_proxy(version):
    found = {"node_id": 3, "host": "b", "port": 9, "key": "g"}
    nobody = {"node_id": -1, "host": "", "port": -1, "error_code": 15, "key": "h"}
    values = {**found, "coordinators": [found, nobody]}
    request = {"key": "g", "coordinator_keys": ["g", "h"]}
    _, after, asked = rewritten("FindCoordinator", version, request, values)
    rows = after.coordinators if version >= 4 else [after]
    assert (rows[0].host, rows[0].port) == ("127.0.0.1", 10)
    assert [row.host for row in rows[1:]] == [""] * (len(rows) - 1)
    assert asked == [(3, "b", 9)]


def test_find_coordinator_answer_without_a_coordinator_is_unchanged():
    values = {"node_id": -1, "host": "", "port": -1, "error_code": 15}
    _, after, asked = rewritten("FindCoordinator", 1, {"key": "g"}, values)
    assert (after.error_code, after.port, asked) == (15, -1, [])


@pytest.mark.parametrize("version", versions("Produce"))
@pytest.mark.parametrize("endpoints", [[], [(3, "b", 9, "rack"), (4, "c", 8, None)]])
def test_produce_answer_leader_hints_have_the_addresses_of_the_proxy(version, endpoints):
    name, topic_id = (None, TOPIC_ID) if version >= 13 else ("t", None)
    partition = ProducedPartition(0, 6, current_leader=(3, 1) if version >= 10 else None)
    values = ProduceResponse([ProducedTopic(name, topic_id, [partition])], 5, endpoints)
    before, after, asked = rewritten("Produce", version, produce_request(version), values)
    assert (after.topics, after.throttle_time_ms) == (before.topics, 5)
    if version >= 10 and endpoints:
        assert after.node_endpoints == [(3, "127.0.0.1", 10, "rack"), (4, "127.0.0.1", 11, None)]
    else:
        assert not asked


@pytest.mark.parametrize("version", versions("Fetch"))
@pytest.mark.parametrize("endpoints", [[], [(3, "b", 9, "rack")]])
def test_fetch_answer_leader_hints_have_the_addresses_of_the_proxy(version, endpoints):
    name, topic_id = (None, TOPIC_ID) if version >= 13 else ("t", None)
    partitions = [
        FetchedPartition(0, 0, 9, 8, records=b"records", aborted_transactions=[(4, 7)]),
        FetchedPartition(1, 6, current_leader=(3, 1) if version >= 12 else None),
    ]
    if version >= 12:
        partitions.append(FetchedPartition(2, diverging_epoch=(1, 2), preferred_read_replica=4))
    values = FetchResponse([FetchedTopic(name, topic_id, partitions)], 1, 0, 12, endpoints)
    before, after, asked = rewritten("Fetch", version, fetch_request(version), values)
    assert after.topics == before.topics
    if version >= 16 and endpoints:
        assert list(after.node_endpoints) == [(3, "127.0.0.1", 10, "rack")]
    else:
        assert not asked


@pytest.mark.parametrize("name", ["ShareFetch", "ShareAcknowledge"])
def test_share_group_answer_leader_hints_have_the_addresses_of_the_proxy(name):
    values = {"node_endpoints": [{"node_id": 3, "host": "b", "port": 9, "rack": None}]}
    _, after, _ = rewritten(name, 1, {"group_id": "g", "member_id": "m"}, values)
    assert (after.node_endpoints[0].host, after.node_endpoints[0].port) == ("127.0.0.1", 10)


@pytest.mark.parametrize("version", versions("ApiVersions"))
def test_api_versions_answer_offers_only_versions_known_to_the_proxy(version):
    rows = [(0, 0, 99), (3, 0, 5), (999, 0, 1), (26, 90, 95)]
    values = {
        "api_keys": [{"api_key": k, "min_version": a, "max_version": b} for k, a, b in rows],
        "finalized_features_epoch": 4,
        "finalized_features": [
            {"name": "transaction.version", "max_version_level": 2, "min_version_level": 2}
        ],
    }
    before, after, _ = rewritten("ApiVersions", version, {}, values)
    told = [(row.api_key, row.min_version, row.max_version) for row in after.api_keys]
    assert told == [(0, 0, 13), (3, 0, 5)]  # old librdkafka asks for Produce 0
    if version >= 3:
        assert after.finalized_features == before.finalized_features


def test_api_versions_answer_to_a_refused_version_is_read_in_version_0():
    request = request_of("ApiVersions", 4, {})
    row = {"api_key": 18, "min_version": 0, "max_version": 99}
    _, frame = answer_of(request_of("ApiVersions", 0, {}), {"error_code": 35, "api_keys": [row]})
    answer = Answer(request, frame, 0.0, True, "delivered")
    result = memoryview(rewritten_answer(answer, frame, lambda *_: OURS))
    (told,) = decode_answer_body(18, 4, result).api_keys
    assert (answer.body.error_code, told.max_version) == (35, 5)
