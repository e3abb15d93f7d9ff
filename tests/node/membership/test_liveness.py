"""Test the registration and heartbeats of successive broker processes."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.coordinator.controller.controller import HeartbeatReply
from oncelog.coordinator.controller.messages import ControllerReply, ReplyStatus
from oncelog.coordinator.metadata.cluster_state import ClusterState
from oncelog.node.controller.client import ControllerClient
from oncelog.node.membership.liveness import Liveness, Replaced
from oncelog.wire.errors import RequestTimedOut

from ...awaiting import settle, turns_until, until
from ..controller.small_cluster import SmallCluster
from ..fake_broker import broker_config

TURNS = range(12)  # of the event loop; a heartbeat takes fewer


class _HereLeads:
    """The controller of this node, which answers a heartbeat immediately."""

    async def serve(self, kind: int, payload: bytes) -> ControllerReply:
        return ControllerReply(ReplyStatus.DONE)


class _Controller:
    """A client that answers heartbeats.

    `indexes` has the controller's metadata index for each heartbeat, or None without an answer.
    """

    def __init__(self, *indexes: int | None) -> None:
        self.indexes = list(indexes)

    async def heartbeat(self, heartbeat: object, timeout_ms: int) -> HeartbeatReply:
        index = self.indexes.pop(0) if self.indexes else 0
        if index is None:
            raise RequestTimedOut("The cluster has no controller.")
        client = cast(Any, SimpleNamespace(node_id=1, _service=_HereLeads(), _links=None))
        await ControllerClient._ask(client, 1, 0, b"", timeout_ms)
        return HeartbeatReply(is_fenced=False, metadata_index=index)


def _liveness(*indexes: int | None, group: Any = None) -> Liveness:
    config: Any = SimpleNamespace(
        node_id=1, broker_heartbeat_interval_ms=1000, broker_session_timeout_ms=9000
    )
    controller, state = cast(Any, _Controller(*indexes)), cast(Any, None)
    raft_group: Any = group or SimpleNamespace(applied_index=0)
    return Liveness(
        config, controller, raft_group, state, boot_id="", directory_id=b"", incarnation=b""
    )


@pytest.mark.parametrize("turns", TURNS)
async def test_broker_heartbeats_can_be_stopped_in_any_turn_of_a_heartbeat(turns: int) -> None:
    liveness = _liveness()
    liveness.start(lambda: None)
    await asyncio.sleep(0.01)  # the loop waits for its next heartbeat
    liveness._beat_now.set()
    await settle(turns)
    await asyncio.wait_for(liveness.stop(), 30)


@pytest.mark.parametrize(
    ("indexes", "applied", "beats"),
    [
        ([7], [7], [1]),
        ([7, 8, 9], [6, 6, 7], [3]),  # the first that was ahead is waited for, not the later ones
        ([7, None, 9, 9], [6, 6, 8, 9], [4]),  # decisions made while the broker was cut off count
        ([-1], [0], [1]),  # a controller of an earlier release sends no index
    ],
)
async def test_broker_heartbeat_answer_takes_effect_after_its_metadata_is_applied(
    indexes: list[int | None], applied: list[int], beats: list[int]
) -> None:
    """`applied` has the broker's index at each answer, and `beats` the answers that took effect."""
    group = SimpleNamespace(applied_index=0)
    liveness, counted = _liveness(*indexes, group=group), list[int]()
    for number, index in enumerate(applied, 1):
        group.applied_index = index
        liveness.start(lambda number=number: counted.append(number))
        await settle()
        await liveness.stop()
    assert counted == beats


@pytest.mark.parametrize(
    ("term", "delay_s", "pause_s", "expected_index"),
    [
        (2, 0.0, 0.0, 9),  # another controller
        (1, 0.6, 0.0, 9),  # a late answer
        (1, 0.0, 0.6, 9),  # a process that was suspended between two heartbeats
        (1, 0.05, 0.0, 7),  # a link that is slower than the interval of heartbeats
    ],
)
async def test_broker_waits_for_the_metadata_of_a_later_answer_after_a_gap_or_a_new_controller(
    term: int, delay_s: float, pause_s: float, expected_index: int
) -> None:
    """During the timeout the controller may have fenced the broker and elected other leaders."""
    group, counted, replies = SimpleNamespace(applied_index=6), list[int](), list[int]()
    liveness = _liveness(group=group)
    liveness._config = cast(
        Any,
        SimpleNamespace(node_id=1, broker_heartbeat_interval_ms=20, broker_session_timeout_ms=400),
    )

    async def heartbeat(heartbeat: object, timeout_ms: int) -> HeartbeatReply:
        is_first = not replies
        await asyncio.sleep(0 if is_first else delay_s)
        replies.append(1)
        if is_first:
            asyncio.get_running_loop().call_soon(time.sleep, pause_s)
        index = 7 if is_first else 9
        return HeartbeatReply(is_fenced=False, term=1 if is_first else term, metadata_index=index)

    liveness._controller = cast(Any, SimpleNamespace(heartbeat=heartbeat))
    liveness.start(lambda: counted.append(group.applied_index))
    await until(lambda: len(replies) == 2)
    group.applied_index = 7
    await until(lambda: len(replies) >= 5 or counted)
    group.applied_index = 9
    await until(lambda: counted)
    assert counted[0] == expected_index
    await liveness.stop()


def _process(cluster: SmallCluster, number: int, *, state: ClusterState | None = None) -> Liveness:
    """Return a process of node 2, which has this metadata at its start."""
    group: Any = cluster.groups[2]
    return Liveness(
        broker_config(2, broker_heartbeat_interval_ms="20"),
        cluster.clients[2],
        group,
        state or cluster.groups[2].state,
        boot_id="b",
        directory_id=b"",
        incarnation=bytes([number]) * 16,
    )


async def test_broker_registration_of_a_dead_process_that_arrives_late_does_not_fence_its_successor(
    cluster: SmallCluster,
) -> None:
    await _process(cluster, 1).register(9092)
    late = cluster.log[-1]
    successor = _process(cluster, 2)
    epoch = await successor.register(9092)
    await cluster.groups[1].submit(late)
    registered = cluster.groups[1].state.brokers[2]
    assert (registered.broker_epoch, registered.incarnation[0]) == (epoch, 2)
    successor.start(lambda: None)
    await successor.until_unfenced()
    assert not successor.replaced.done()
    await successor.stop()


async def test_broker_process_with_empty_metadata_learns_the_registration_to_replace(
    cluster: SmallCluster,
) -> None:
    await _process(cluster, 1).register(9092)
    length = len(cluster.log)
    epoch = await _process(cluster, 2, state=ClusterState()).register(9092)
    assert epoch == len(cluster.log) == length + 2, "refused once"
    assert cluster.groups[2].state.brokers[2].incarnation[0] == 2


async def test_broker_registration_overtaken_by_a_late_registration_is_repeated(
    cluster: SmallCluster,
) -> None:
    """A process that has died sent the late registration before the next process registered."""
    await _process(cluster, 1).register(9092)
    length = len(cluster.log)
    cluster.elect(None)
    successor = asyncio.ensure_future(_process(cluster, 3).register(9092))
    await asyncio.sleep(0)  # the process has read the old registration, and waits for a controller
    cluster.elect(1)
    await _process(cluster, 2).register(9092)
    epoch = await successor
    assert epoch == len(cluster.log) == length + 3, "refused once"
    registered = cluster.groups[1].state.brokers[2]
    assert (registered.broker_epoch, registered.incarnation[0]) == (epoch, 3)


async def test_broker_registration_answer_that_was_lost_is_repeated(cluster: SmallCluster) -> None:
    await turns_until(lambda: cluster.log)  # the controller has named the cluster
    cluster.lost_answers = 1
    assert await _process(cluster, 1).register(9092) == 2
    assert len(cluster.log) == 3, "proposed twice"


async def test_broker_process_replaced_by_another_stops_with_an_error_message(
    cluster: SmallCluster,
) -> None:
    earlier, later = _process(cluster, 1), _process(cluster, 2)
    for process in (earlier, later):
        await process.register(9092)
        process.start(lambda: None)
        await process.until_unfenced()
    with pytest.raises(Replaced, match="another process has registered as node 2"):
        await earlier.replaced
    assert not later.replaced.done()
    await asyncio.gather(earlier.stop(), later.stop())
