"""Test requests of a client without rights, which get errors or fewer items."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.coordinator.security.principal import Principal
from oncelog.node.config.authorizer_keys import STANDARD_AUTHORIZER
from oncelog.node.handlers.api_table import served_apis
from oncelog.node.listener.dispatch import Dispatcher, RequestContext
from oncelog.proof.conformance.harmless import HARMLESS
from oncelog.wire.acls import CLUSTER_NAME, AclOperation, AclPermission, PatternType, ResourceType
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages import api_keys

from ..fake_broker import request
from ..own_broker import OwnBroker, running

LOG = logging.getLogger("oncelog.test")
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
METADATA = {"allow_auto_topic_creation": False}


class Client:
    """A client of a broker, with its own connection and principal."""

    def __init__(self, broker: OwnBroker, name: str, number: int) -> None:
        self._dispatcher = Dispatcher(served_apis(LOG), LOG)
        self.context = RequestContext(
            broker.services,
            connection_id=number,
            peer_host="127.0.0.1",
            principal=Principal("User", name),
        )

    async def ask(self, key: int, version: int, **values: Any) -> Any:
        return await request(self._dispatcher, self.context, key, version, values).value()

    async def allow(
        self,
        operation: AclOperation,
        name: str,
        permission: int = AclPermission.ALLOW,
        resource_type: ResourceType = ResourceType.TOPIC,
    ) -> int:
        """Create an ACL for alice on a resource, and return the error code."""
        acl = {
            "resource_type": ResourceType.CLUSTER if name == CLUSTER_NAME else resource_type,
            "resource_name": name,
            "resource_pattern_type": PatternType.LITERAL,
            "principal": "User:alice",
            "host": "*",
            "operation": operation,
            "permission_type": permission,
        }
        answer = await self.ask(api_keys.CREATE_ACLS, 3, creations=[acl])
        return answer.results[0].error_code

    async def topics(self, *names: str) -> dict[str, int]:
        """Return the error code of each topic in Metadata, of all visible topics without names."""
        asked = [{"name": name} for name in names] or None
        answer = await self.ask(api_keys.METADATA, 9, topics=asked, **METADATA)
        return {topic.name: topic.error_code for topic in answer.topics}


@asynccontextmanager
async def secured(root: Path, **settings: str) -> AsyncIterator[tuple[Client, Client]]:
    """Yield the clients admin and alice of a broker with an authorizer and topics a, b and c."""
    keys = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin;User:other"}
    async with running(root, settings=keys | settings) as broker:
        for name in "abc":
            await broker.create(name, 1)
        yield Client(broker, "admin", 1), Client(broker, "alice", 2)


def test_topics_without_describe_permission_are_hidden_from_lists_only(tmp_path: Path):
    async def scenario() -> None:
        async with secured(tmp_path) as (admin, alice):
            assert await alice.topics() == {}
            assert await admin.allow(AclOperation.READ, "b") == 0
            assert await alice.topics() == {"b": 0}
            assert await alice.topics("a", "b") == {"a": REFUSED, "b": 0}
            assert set(await admin.topics()) >= {"a", "b", "c"}

    asyncio.run(scenario())


def test_cached_answer_of_one_principal_is_never_sent_to_another(tmp_path: Path):
    async def scenario() -> None:
        async with secured(tmp_path) as (admin, alice):
            for _ in range(2):
                assert await admin.topics("a") == {"a": 0}
                assert await alice.topics("a") == {"a": REFUSED}

    asyncio.run(scenario())


def test_request_with_some_refused_items_answers_the_permitted_items(tmp_path: Path):
    async def scenario() -> None:
        async with secured(tmp_path) as (admin, alice):
            await admin.allow(AclOperation.DESCRIBE, "b")
            partition = {"partition_index": 0, "timestamp": -1}
            topics = [{"name": name, "partitions": [partition]} for name in "abc"]
            answer = await alice.ask(api_keys.LIST_OFFSETS, 7, replica_id=-1, topics=topics)
            errors = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
            assert errors == {"a": REFUSED, "b": 0, "c": REFUSED}

    asyncio.run(scenario())


def test_offset_fetch_of_a_group_named_twice_shows_no_hidden_topic(tmp_path: Path):
    async def scenario() -> None:
        async with secured(tmp_path) as (admin, alice):
            partition = {"partition_index": 0, "committed_offset": 1}
            values = {**HARMLESS[api_keys.OFFSET_COMMIT], "group_id": "g"}
            values |= {"topics": [{"name": "a", "partitions": [partition]}]}
            found, error = {"key_type": 0, "coordinator_keys": ["g"]}, -1
            async with asyncio.timeout(30):
                while error != 0:
                    await admin.ask(api_keys.FIND_COORDINATOR, 4, **found)
                    answer = await admin.ask(api_keys.OFFSET_COMMIT, 8, **values)
                    error = answer.topics[0].partitions[0].error_code
            creation = {
                "resource_type": ResourceType.GROUP,
                "resource_name": "g",
                "resource_pattern_type": PatternType.LITERAL,
                "principal": "User:alice",
                "host": "*",
                "operation": AclOperation.DESCRIBE,
                "permission_type": AclPermission.ALLOW,
            }
            await admin.ask(api_keys.CREATE_ACLS, 3, creations=[creation])
            groups = [{"group_id": "g", "topics": None}, {"group_id": "g", "topics": []}]
            answer = await alice.ask(api_keys.OFFSET_FETCH, 8, groups=groups, require_stable=False)
            assert [group.topics for group in answer.groups] == [[], []]

    asyncio.run(scenario())


def test_add_partitions_with_one_refused_topic_adds_no_partition(tmp_path: Path):
    async def scenario() -> None:
        async with secured(tmp_path) as (admin, alice):
            await admin.allow(AclOperation.WRITE, "b")
            creation = {
                "resource_type": ResourceType.TRANSACTIONAL_ID,
                "resource_name": "x",
                "resource_pattern_type": PatternType.PREFIXED,
                "principal": "User:alice",
                "host": "127.0.0.1",
                "operation": AclOperation.WRITE,
                "permission_type": AclPermission.ALLOW,
            }
            await admin.ask(api_keys.CREATE_ACLS, 3, creations=[creation])
            answer = await alice.ask(
                api_keys.ADD_PARTITIONS_TO_TXN,
                3,
                v3_and_below_transactional_id="x1",
                v3_and_below_producer_id=1,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=[{"name": name, "partitions": [0]} for name in "ab"],
            )
            errors = {
                topic.name: topic.results_by_partition[0].partition_error_code
                for topic in answer.results_by_topic_v3_and_below
            }
            assert errors == {"a": REFUSED, "b": ErrorCode.OPERATION_NOT_ATTEMPTED}

    asyncio.run(scenario())


def test_acl_deny_applies_from_its_answer_on_until_its_deletion(tmp_path: Path):
    async def scenario() -> None:
        async with secured(tmp_path) as (admin, alice):
            await admin.allow(AclOperation.DESCRIBE, "*")
            assert await alice.topics("a") == {"a": 0}
            await admin.allow(AclOperation.DESCRIBE, "a", AclPermission.DENY)
            assert await alice.topics("a") == {"a": REFUSED}
            wanted = {
                "resource_type_filter": ResourceType.ANY,
                "resource_name_filter": "a",
                "pattern_type_filter": PatternType.ANY,
                "principal_filter": None,
                "host_filter": None,
                "operation": AclOperation.ANY,
                "permission_type": AclPermission.DENY,
            }
            answer = await admin.ask(api_keys.DELETE_ACLS, 3, filters=[wanted])
            (gone,) = answer.filter_results[0].matching_acls
            assert (gone.resource_name, gone.principal) == ("a", "User:alice")
            assert await alice.topics("a") == {"a": 0}

    asyncio.run(scenario())


def test_describe_acls_filters_by_resource(tmp_path: Path):
    async def scenario() -> None:
        async with secured(tmp_path) as (admin, alice):
            for operation in (AclOperation.READ, AclOperation.WRITE):
                await admin.allow(operation, "a")
            await admin.allow(AclOperation.DESCRIBE, CLUSTER_NAME)
            everything = {
                "resource_type_filter": ResourceType.TOPIC,
                "resource_name_filter": None,
                "pattern_type_filter": PatternType.ANY,
                "principal_filter": None,
                "host_filter": None,
                "operation": AclOperation.ANY,
                "permission_type": AclPermission.ANY,
            }
            answer = await alice.ask(api_keys.DESCRIBE_ACLS, 3, **everything)
            (resource,) = answer.resources
            assert resource.resource_name == "a"
            assert [acl.operation for acl in resource.acls] == [3, 4]
            wrong = {**everything, "operation": 99}
            answer = await alice.ask(api_keys.DESCRIBE_ACLS, 3, **wrong)
            assert answer.error_code == ErrorCode.INVALID_REQUEST

    asyncio.run(scenario())


def test_authorized_operations_are_answered_as_bits(tmp_path: Path):
    async def scenario() -> None:
        async with secured(tmp_path) as (admin, alice):
            await admin.allow(AclOperation.READ, "a")
            values = {"topics": [{"name": "a"}], **METADATA}
            values |= {"include_topic_authorized_operations": True}
            answer = await alice.ask(api_keys.METADATA, 9, **values)
            assert answer.topics[0].topic_authorized_operations == 1 << 3 | 1 << 8
            answer = await alice.ask(
                api_keys.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=True
            )
            assert answer.cluster_authorized_operations == 0

    asyncio.run(scenario())


def test_refused_request_is_logged_with_the_acl_that_would_allow_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async def scenario() -> None:
        async with secured(tmp_path) as (_, alice):
            with caplog.at_level(logging.INFO, "oncelog.authorizer"):
                partition = {"partition_index": 0, "offset": 0}
                topics = [{"name": "a", "partitions": [partition]}]
                await alice.ask(api_keys.DELETE_RECORDS, 2, topics=topics, timeout=1_000)

    asyncio.run(scenario())
    (line,) = [record.getMessage() for record in caplog.records if record.name.endswith("izer")]
    assert line == (
        "refused User:alice from 127.0.0.1: Delete on Topic a "
        "(oncelog acl add --allow User:alice --operation Delete --topic a)"
    )


def test_resource_without_acls_is_open_to_all_if_configured(tmp_path: Path):
    async def scenario() -> None:
        settings = {"allow.everyone.if.no.acl.found": "true"}
        async with secured(tmp_path, **settings) as (admin, alice):
            await admin.allow(AclOperation.WRITE, "b", AclPermission.DENY)
            assert await alice.topics("a", "b") == {"a": 0, "b": REFUSED}

    asyncio.run(scenario())


def test_acl_requests_without_an_authorizer_are_refused_as_disabled(tmp_path: Path):
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            client = Client(broker, "alice", 1)
            assert await client.allow(AclOperation.READ, "a") == ErrorCode.SECURITY_DISABLED

    asyncio.run(scenario())
