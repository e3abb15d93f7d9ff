"""Test that a broker that sends but receives nothing loses its leaderships, and rejoins later."""

from pathlib import Path
from typing import Any

import pytest

from oncelog.deploy.cluster.blocking_admin import blocking_admin
from oncelog.deploy.cluster.local_cluster import Cluster

from ..waiting import until

pytestmark = pytest.mark.cluster
DEADLINE_S = 30


@pytest.mark.in_turn
def test_node_that_receives_no_bytes_leaves_the_isr_and_rejoins_it_after_the_heal(
    tmp_path: Path,
) -> None:
    with Cluster(nodes=3, data=tmp_path / "cluster") as cluster:
        cluster.ask(lambda a: a.create_topic("t", partitions=6, replication_factor=3))
        cluster.wait_for_isr("t", 3)
        controller = cluster.controller()
        deaf = next(i for i in cluster.node_ids if i != controller)
        others = [i for i in cluster.node_ids if i != deaf]

        # The isolated node still answers, with old metadata: another is asked.
        address = cluster.node(controller).status().address
        with blocking_admin(address) as admin:

            def partitions() -> list[Any]:
                return admin.run(lambda a: a.describe_topics(["t"]))

            assert deaf in {p.leader for p in partitions()}
            cluster.partition(others, [deaf], one_way=True)
            until(lambda: all(deaf not in p.isr and p.leader != deaf for p in partitions()))
            cluster.heal()
            until(lambda: all(deaf in p.isr for p in partitions()))
