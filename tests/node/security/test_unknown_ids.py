"""Topic ids that a broker learns of only while a request waits."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock
from uuid import uuid4

import pytest

from oncelog.coordinator.metadata.commands import CreateTopics, NewTopic
from oncelog.coordinator.security.principal import Principal
from oncelog.node.config.authorizer_keys import STANDARD_AUTHORIZER
from oncelog.node.handlers.metadata.topics import delete_topics
from oncelog.node.handlers.produce.operation import ProduceOperation
from oncelog.node.handlers.produce.record_checks import check_in_slices
from oncelog.node.listener.dispatch import RequestContext
from oncelog.wire.errors import ErrorCode
from oncelog.wire.framing import RequestHeader
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from oncelog.wire.records import Record, encode_batch

from ..own_broker import running

SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}


@pytest.mark.parametrize(
    ("user", "error"),
    [("alice", ErrorCode.TOPIC_AUTHORIZATION_FAILED), ("admin", ErrorCode.NONE)],
)
async def test_produce_to_an_id_that_becomes_known_is_judged_then(
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


async def test_deletion_by_an_unknown_id_does_not_reach_the_controller(tmp_path: Path) -> None:
    async with running(tmp_path, settings=SETTINGS) as broker:
        context = RequestContext(broker.services, 1, "127.0.0.1", Principal("User", "alice"))
        topic_id, controller = uuid4().bytes, broker.services.controller
        create = CreateTopics((NewTopic("orders", topic_id, 1, 1),))
        await controller.submit(create, timeout_ms=20_000)
        state = broker.services.state
        topic = SimpleNamespace(name=None, topic_id=topic_id)
        request: Any = SimpleNamespace(topics=[topic], timeout=20_000)
        with mock.patch.object(type(state), "topic_by_id", lambda self, topic_id: None):  # lagging
            answer: Any = await delete_topics(context, RequestHeader(20, 6, 1, "it", 0), request)
        (refused,) = answer["responses"]
        assert refused["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID
        assert state.topic_by_id(topic_id) is not None
