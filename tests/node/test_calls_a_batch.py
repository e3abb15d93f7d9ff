"""Test that the path of a batch over three brokers needs no more function calls than recorded.

A batch has one record, with acks=all and two followers. The calls include the leader's dispatch,
its answers to both followers, their next fetches and the two appends. Heartbeats and Raft are not
counted. The bounds are a little above the present counts. A change that needs more calls for each
batch needs a reason.
"""

import asyncio
import sys
from pathlib import Path

import pytest
import uvloop

from .counted_calls import Calls
from .three_brokers import producer_at, three_brokers

BATCHES = 200
DISPATCH = ("Connection.buffer_updated", "Connection.get_buffer")
SERVE_FOLLOWERS = ("ReplicaManager._serve_followers",)
STREAM_MESSAGES = (
    "PeerStream.buffer_updated",
    "FrameReceiver.get_buffer",
    "PeerStream.get_buffer",
    "ReplicaFetcher._pump",
)


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="counts differ between versions")
def test_produce_batch_costs_no_more_function_calls_than_recorded(tmp_path: Path) -> None:
    calls = Calls()

    async def produce() -> None:
        async with three_brokers(tmp_path) as cluster:
            leader = await cluster.create_topic()
            async with producer_at(leader) as producer:
                await producer.produce(50)
                with calls.counted():
                    await asyncio.sleep(0)
                    await producer.produce(BATCHES)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(produce())
    found = {
        roots: tuple(round(count / BATCHES) for count in calls.counts(*roots))
        for roots in (DISPATCH, SERVE_FOLLOWERS, STREAM_MESSAGES)
    }
    print(found)
    bounds = {DISPATCH: (72, 80), SERVE_FOLLOWERS: (32, 60), STREAM_MESSAGES: (170, 172)}
    for roots, (python, c) in bounds.items():
        assert found[roots][0] <= python and found[roots][1] <= c, (roots, found[roots])
