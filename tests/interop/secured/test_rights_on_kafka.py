"""Test on Apache Kafka's StandardAuthorizer that our matrix of APIs and rights is Kafka's.

Our brokers are tested with the same table by `tests/node/security/test_matrix.py`.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.coordinator.quotas.rate import QuotaRate
from oncelog.proof.conformance.asking import AskedBroker
from oncelog.wire.acls import AclOperation, AclPermission, PatternType, ResourceType
from oncelog.wire.messages import api_keys
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from oncelog.wire.records import Record, encode_batch

from ...node.security.rights_by_api import BY_API, MISSING, TOPIC, Asked, body_values
from ...node.security.test_matrix import CASES, REFUSALS, TABLE, acl_of, alternatives, error_codes
from .secured_kafka import SecuredKafka

pytestmark = [pytest.mark.kafka, pytest.mark.cluster]
LOGIN = {"SaslHandshake", "SaslAuthenticate"}  # over before the first request here
PREPARES = {
    "unstable.api.versions.enable": "true",
    "transaction.two.phase.commit.enable": "true",
}
ANY = {
    "resource_type_filter": ResourceType.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": AclOperation.ANY,
    "permission_type": AclPermission.ANY,
}
PATIENCE_S = 20
THROTTLED = "throttled"  # a topic


class Rights:
    """The connections of an administrator and of alice. Alice has the rights under test."""

    def __init__(self, kafka: SecuredKafka) -> None:
        host, port = kafka.bootstrap.split(":")
        self._admin = AskedBroker({"bootstrap.servers": kafka.bootstrap}, host, int(port))
        login = kafka.login("SASL_PLAINTEXT", "PLAIN")
        host, port = kafka.address("SASL_PLAINTEXT").split(":")
        self._alice = AskedBroker(login, host, int(port))
        plain = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        topics = [{"name": name, **plain} for name in (TOPIC, THROTTLED)]
        self._ask(api_keys.CREATE_TOPICS, {"topics": topics, "timeout": 10_000})
        finding = {"key_type": 0, "coordinator_keys": ["g"]}
        deadline_s = time.monotonic() + PATIENCE_S
        while self._ask(api_keys.FIND_COORDINATOR, finding).coordinators[0].error_code:
            assert time.monotonic() < deadline_s, "there is no group coordinator"
            time.sleep(0.2)

    def close(self) -> None:
        self._admin.close()
        self._alice.close()

    def are_refused(self, name: str, asked: Asked, rights: list[str]) -> bool:
        """Return whether Kafka refuses alice's request if she has only these rights."""
        self.allow(rights)
        api = TABLE[name]
        version = api.max_version if asked.version is None else asked.version
        outcome, answer = self._alice.ask(api.key, version, body_values(api.key, asked))
        assert answer is not None, f"{name} version {version}: {outcome}"
        if name == "Metadata":
            request = {"topics": [{"name": MISSING, "topic_id": bytes(16)}], "timeout": 10_000}
            self._ask(api_keys.DELETE_TOPICS, request)
        return not REFUSALS.isdisjoint(error_codes(answer))

    def allow(self, rights: list[str]) -> None:
        """Give alice exactly these rights, and wait until the authorizer applies them."""
        acls = [acl_of(right) for right in rights]
        self._ask(api_keys.DELETE_ACLS, {"filters": [ANY]})
        creations = [
            {
                "resource_type": acl.resource_type,
                "resource_name": acl.name,
                "resource_pattern_type": acl.pattern_type,
                "principal": acl.principal,
                "host": acl.host,
                "operation": acl.operation,
                "permission_type": acl.permission,
            }
            for acl in acls
        ]
        self._ask(api_keys.CREATE_ACLS, {"creations": creations})
        deadline_s = time.monotonic() + PATIENCE_S
        while len(self._known()) != len(acls):  # the authorizer follows the controller
            assert time.monotonic() < deadline_s, "Kafka's authorizer does not follow"
            time.sleep(0.01)

    def _known(self) -> list[Any]:
        answer = self._ask(api_keys.DESCRIBE_ACLS, ANY)
        return [acl for resource in answer.resources for acl in resource.acls]

    def _ask(self, key: Any, values: dict[str, Any]) -> Any:
        version = {api_keys.FIND_COORDINATOR: 4, api_keys.ALTER_CLIENT_QUOTAS: 1}.get(key, 3)
        if key in (api_keys.CREATE_TOPICS, api_keys.DELETE_TOPICS):
            version = 6
        outcome, answer = self._admin.ask(int(key), version, values)
        assert answer is not None, outcome
        return answer

    def quota(self, key: str, value: float) -> None:
        """Set a quota for alice, or remove it if the value is 0."""
        user = {"entity_type": "user", "entity_name": "alice"}
        operation = {"key": key, "value": value, "remove": not value}
        entry = {"entity": [user], "ops": [operation]}
        values = {"entries": [entry], "validate_only": False}
        assert self._ask(api_keys.ALTER_CLIENT_QUOTAS, values).entries[0].error_code == 0
        time.sleep(1)  # the quota manager follows the controller, at no visible moment

    def throttle_ms(self, key: int, version: int, values: Any) -> int:
        """Return the throttle time in the answer to alice's request, in ms."""
        outcome, answer = self._alice.ask(key, version, values)
        assert answer is not None, outcome
        return answer.throttle_time_ms


@pytest.fixture(scope="module")
def rights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rights]:
    with SecuredKafka(tmp_path_factory.mktemp("rights"), PREPARES) as kafka:
        asking = Rights(kafka)
        yield asking
        asking.close()


@pytest.mark.parametrize(("name", "number"), [case for case in CASES if case[0] not in LOGIN])
def test_apache_kafka_refuses_each_request_without_a_right_of_our_matrix(
    name: str, number: int, rights: Rights
):
    asked = BY_API[name][number]
    every = [alternatives(right) for right in asked.rights]
    expected = {"all": any(not right.endswith("?") for right in asked.rights)}
    found = {"all": rights.are_refused(name, asked, [])}
    for place, right in enumerate(asked.rights):
        others = [each[0] for each in every[:place] + every[place + 1 :]]
        expected["|".join(every[place])] = not right.endswith("?")
        found["|".join(every[place])] = rights.are_refused(name, asked, others)
        for one in every[place]:
            expected[f"nothing, by {one}"] = False
            found[f"nothing, by {one}"] = rights.are_refused(name, asked, [*others, one])
    assert found == expected


def test_apache_kafka_throttles_for_the_time_that_our_formula_computes(rights: Rights):
    rights.allow(["Write Topic", "Read Topic"])
    batch = encode_batch([Record(0, 0, None, bytes(13_000))])
    topics = [ProduceTopic(THROTTLED, None, [ProducePartition(0, batch)])]
    producing = ProduceRequest(None, 1, 10_000, topics)
    partitions = [FetchPartition(0, 0, 1_000_000)]
    fetching = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(THROTTLED, None, partitions)]
    )
    assert rights.throttle_ms(0, 12, producing) == 0
    for key, quota, values in (
        (0, "producer_byte_rate", producing),
        (1, "consumer_byte_rate", fetching),
    ):
        rights.quota(quota, 1_000)
        expected_ms = QuotaRate(samples=11, window_ms=1_000).record(len(batch) + 60, 1_000, 0)
        found_ms = rights.throttle_ms(key, 12, values)
        assert found_ms == pytest.approx(expected_ms, rel=0.1), quota
        rights.quota(quota, 0)


def test_apache_kafka_throttles_request_time_for_at_most_one_window(rights: Rights):
    batch = encode_batch([Record(0, 0, None, bytes(100))])
    topics = [ProduceTopic(THROTTLED, None, [ProducePartition(0, batch)])]
    producing = ProduceRequest(None, 1, 10_000, topics)
    rights.allow(["Write Topic"])
    rights.quota("request_percentage", 0.000_001)
    assert rights.throttle_ms(0, 12, producing) == 1_000
    rights.quota("request_percentage", 0)
