"""Test requests by a topic id that becomes known to the broker while they wait."""

import asyncio
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import pytest

from oncelog.coordinator.metadata.commands import CreateTopics, NewTopic
from oncelog.coordinator.security.principal import Principal
from oncelog.node.config.authorizer_keys import STANDARD_AUTHORIZER
from oncelog.node.handlers.groups.committed_offsets import OFFSETS_A_STEP
from oncelog.node.handlers.produce.operation import ProduceOperation
from oncelog.node.handlers.produce.record_checks import check_in_slices
from oncelog.node.listener.dispatch import RequestContext
from oncelog.proof.conformance.harmless import HARMLESS
from oncelog.wire.acls import AclOperation, ResourceType
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages import api_keys
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from oncelog.wire.records import Record, encode_batch

from ..own_broker import running
from .test_refusals import secured

SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}


@pytest.mark.parametrize(
    ("user", "error"),
    [("alice", ErrorCode.TOPIC_AUTHORIZATION_FAILED), ("admin", ErrorCode.NONE)],
)
async def test_produce_by_topic_id_has_its_rights_checked_when_the_id_becomes_known(
    tmp_path: Path, user: str, error: int
) -> None:
    async with running(tmp_path, settings=SETTINGS) as broker:
        context = RequestContext(broker.services, 1, "127.0.0.1", Principal("User", user))
        topic_id = uuid4().bytes
        batch = memoryview(bytearray(encode_batch([Record(0, 0, None, b"v")])))
        topic = ProduceTopic(None, topic_id, [ProducePartition(0, batch)])
        operation = ProduceOperation(context, ProduceRequest(None, 1, 1_000, [topic]), 13)
        operation.queue()
        assert operation.appends[0].partition is None

        command = CreateTopics((NewTopic("orders", topic_id, 1, 1),))
        await broker.services.controller.submit(command, timeout_ms=20_000)
        await operation.until_led()
        operation.look_up()
        await check_in_slices(context, operation.appends, lambda: operation.is_abandoned)
        operation.append()

        assert operation.response.topics[0].partitions[0].error_code == error


DELETION = api_keys.DELETE_TOPICS, 6, {"timeout": 20_000}, {"name": None}
COMMIT = (
    api_keys.OFFSET_COMMIT,
    10,
    {**HARMLESS[api_keys.OFFSET_COMMIT], "group_id": "g"},
    {"partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]},
)


def _error(answer: Any) -> int:
    """Return the error code of the only topic in an answer."""
    (topic,) = getattr(answer, "responses", None) or answer.topics
    return topic.partitions[0].error_code if hasattr(topic, "partitions") else topic.error_code


@pytest.mark.parametrize(
    ("looks", "key", "version", "values", "topic"), [(2, *DELETION), (1, *COMMIT)]
)
async def test_request_by_a_topic_id_that_becomes_known_after_its_authorization_is_refused(
    tmp_path: Path, looks: int, key: int, version: int, values: Any, topic: Any
) -> None:
    async with secured(tmp_path) as (admin, alice):
        await admin.allow(AclOperation.READ, "g", resource_type=ResourceType.GROUP)
        state = alice.context.broker.state
        topic_id, known = state.topics["a"].topic_id, type(state).topic_by_id
        lags = iter((True,) * looks)

        def lagging(self: Any, asked: bytes) -> Any:
            return None if next(lags, False) else known(self, asked)

        with mock.patch.object(type(state), "topic_by_id", lagging):
            asked = {**values, "topics": [{**topic, "topic_id": topic_id}]}
            answer = await alice.ask(key, version, **asked)
        assert next(lags, None) is None
        assert _error(answer) == ErrorCode.UNKNOWN_TOPIC_ID
        assert "a" in state.topics


@pytest.mark.parametrize(
    ("user", "error"),
    [("alice", ErrorCode.TOPIC_AUTHORIZATION_FAILED), ("admin", ErrorCode.NONE)],
)
async def test_topic_deletion_by_an_id_unknown_here_waits_until_the_metadata_has_the_id(
    tmp_path: Path, user: str, error: int
) -> None:
    async with secured(tmp_path) as (admin, alice):
        client = admin if user == "admin" else alice
        state = client.context.broker.state
        topic_id, known = state.topics["a"].topic_id, type(state).topic_by_id
        key, version, values, topic = DELETION
        lags = iter((True,))

        def lagging(self: Any, asked: bytes) -> Any:
            return None if next(lags, False) else known(self, asked)

        with mock.patch.object(type(state), "topic_by_id", lagging):
            answer = await client.ask(
                key, version, **values, topics=[topic | {"topic_id": topic_id}]
            )
        assert _error(answer) == error
        assert ("a" in state.topics) == bool(error)


async def test_offset_fetch_by_topic_id_that_becomes_known_midway_shows_no_offsets(
    tmp_path: Path,
) -> None:
    async with secured(tmp_path) as (admin, alice):
        await admin.allow(AclOperation.DESCRIBE, "g", resource_type=ResourceType.GROUP)
        state = alice.context.broker.state
        topic_id, known = state.topics["a"].topic_id, type(state).topic_by_id
        looks = iter((None,))

        def lagging(self: Any, asked: bytes) -> Any:
            return next(looks, known(self, asked))

        indexes = list(range(2 * OFFSETS_A_STEP))
        group = {
            "group_id": "g",
            "topics": [{"topic_id": topic_id, "partition_indexes": indexes}],
        }
        # The first request for the group's coordinator creates its topic.
        found = {"key_type": 0, "coordinator_keys": ["g"]}
        async with asyncio.timeout(30):
            while (await alice.ask(10, 4, **found)).coordinators[0].error_code:
                await asyncio.sleep(0.05)
            while True:
                with mock.patch.object(type(state), "topic_by_id", lagging):
                    answer = await alice.ask(api_keys.OFFSET_FETCH, 10, groups=[group])
                if not answer.groups[0].error_code:
                    break
                looks = iter((None,))
                await asyncio.sleep(0.05)
        (topic,) = answer.groups[0].topics
        errors = {partition.error_code for partition in topic.partitions}
        assert errors == {ErrorCode.UNKNOWN_TOPIC_ID} and len(topic.partitions) == len(indexes)
