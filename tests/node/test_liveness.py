"""A broker's heartbeats end when they are told to, at whatever moment of a beat that is."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.coordinator.controller import HeartbeatReply
from oncelog.coordinator.controller_client import ControllerClient
from oncelog.coordinator.controller_messages import ControllerReply, ReplyStatus
from oncelog.node.liveness import Liveness
from oncelog.wire.errors import ErrorCode

TURNS = range(12)  # of the event loop; a beat takes fewer


class _HereLeads:
    """The part of a controller that answers a heartbeat of its own node, at once."""

    async def serve(self, kind: int, payload: bytes) -> ControllerReply:
        return ControllerReply(ReplyStatus.DONE)


class _Controller:
    """Answers heartbeats as the client of a controller on this node does."""

    async def heartbeat(self, heartbeat: object, timeout_ms: int) -> HeartbeatReply:
        client = cast(Any, SimpleNamespace(node_id=1, _service=_HereLeads(), _links=None))
        await ControllerClient._ask(client, 1, 0, b"", timeout_ms)
        return HeartbeatReply(ErrorCode.NONE, is_fenced=False, may_stop=False)


def _liveness() -> Liveness:
    config: Any = SimpleNamespace(node_id=1, broker_heartbeat_interval_ms=1000)
    group: Any = SimpleNamespace(applied_index=0)
    controller, state = cast(Any, _Controller()), cast(Any, None)
    return Liveness(config, controller, group, state, boot_id="", incarnation=b"")


@pytest.mark.parametrize("turns", TURNS)
def test_an_end_is_not_lost_in_a_beat(turns: int) -> None:
    async def scenario() -> None:
        liveness = _liveness()
        liveness.start()
        await asyncio.sleep(0.01)  # it waits for its next beat
        liveness._beat_now.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.wait_for(liveness.stop(), 2)

    asyncio.run(scenario())
