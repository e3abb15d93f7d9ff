"""Test the answers to ConsumerGroupHeartbeat that a fast encoder writes without the schema."""

import pytest

from oncelog.coordinator.groups.consumer.heartbeat_messages import ConsumerHeartbeatAnswer
from oncelog.node.handlers.groups.consumer_members import _heartbeat_answer, _short_answer


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("member_id", ["m", "\u00e9" * 100, "x" * 32_767])
def test_consumer_heartbeat_short_answer_equals_the_schema_bytes(
    version: int, member_id: str
) -> None:
    answer = ConsumerHeartbeatAnswer(
        member_id=member_id, member_epoch=2**31 - 1, heartbeat_interval_ms=5_000
    )
    assert _short_answer(answer) == b"".join([_heartbeat_answer(answer, version)])
