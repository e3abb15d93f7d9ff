"""How soon a start of the sink knows the last decision: it reads the topic twice in a row."""

import asyncio
import itertools
import time

from oncelog.client import ClusterView
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.pipeline.sink.checks import ready_topic
from oncelog.pipeline.sink.cluster import SinkCluster, read_topic
from oncelog.pipeline.sink.decision import Decision

READINGS, SOON_S = (
    6,
    0.3,
)  # a fetch at the end of a topic waits for 0.5 s where nothing else is said


def test_a_read_does_not_wait_behind_an_abandoned_fetch(cluster: Cluster) -> None:
    async def seconds() -> list[float]:
        view = ClusterView(cluster.bootstrap)
        sink = SinkCluster(view, "read-twice")
        try:
            await ready_topic(sink.admin)
            await sink.fence()
            await sink.write_decision(Decision(generation=1, query_id="q"))
            times = [time.monotonic()]
            for _ in range(READINGS):
                assert await read_topic(sink.admin)
                times.append(time.monotonic())
        finally:
            await sink.close()
            await view.close()
        return [later - earlier for earlier, later in itertools.pairwise(times)]

    found = asyncio.run(seconds())
    assert sorted(found[1:])[1] < SOON_S, found  # a busy machine may be late now and then
