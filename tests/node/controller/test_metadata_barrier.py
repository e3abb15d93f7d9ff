"""Test the wait until all live brokers have applied a decision of the controller."""

import asyncio
from typing import cast

import pytest

from oncelog.coordinator.metadata.commands import FenceBroker, encode_command
from oncelog.node.controller.metadata_barrier import MetadataBarrier
from oncelog.replication.peer.transport import PeerTransport
from oncelog.wire.errors import RequestTimedOut

from ...awaiting import settle
from .small_cluster import SmallCluster
from .test_service import bring_up


async def barriers() -> tuple[SmallCluster, MetadataBarrier]:
    """Return three live brokers, and the barrier of broker 1. Broker 3 lags behind."""
    cluster = SmallCluster()
    made = [
        MetadataBarrier(cluster.clients[node], cast(PeerTransport, cluster.links[node]))
        for node in cluster.clients
    ]
    await bring_up(cluster, 1, 2, 3)
    cluster.groups[3].is_lagging = True
    cluster.log.append(cluster.log[0])
    for group in cluster.groups.values():
        group.catch_up()
    return cluster, made[0]


async def test_metadata_barrier_wait_ends_when_the_last_broker_has_applied_the_change() -> None:
    cluster, barrier = await barriers()
    waiting = asyncio.create_task(barrier.wait(len(cluster.log), timeout_ms=10_000))
    await settle()
    assert not waiting.done()
    cluster.groups[3].is_lagging = False
    cluster.groups[3].catch_up()
    await waiting


async def test_metadata_barrier_does_not_wait_for_a_fenced_broker() -> None:
    cluster, barrier = await barriers()
    cluster.down.add(3)
    waiting = asyncio.create_task(barrier.wait(len(cluster.log), timeout_ms=10_000))
    await settle()
    assert not waiting.done()
    epoch = cluster.groups[1].state.brokers[3].broker_epoch
    await cluster.services[1].stop()  # this controller has heard broker 3, and would unfence it
    await cluster.groups[1].submit(encode_command(FenceBroker(3, epoch)))
    await waiting


async def test_metadata_barrier_with_a_lagging_broker_times_out() -> None:
    cluster, barrier = await barriers()
    with pytest.raises(RequestTimedOut, match="Broker 3"):
        await barrier.wait(len(cluster.log), timeout_ms=50)
