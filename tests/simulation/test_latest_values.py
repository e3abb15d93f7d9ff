"""The check of the compacted topic says which values are gone, and nothing else."""

import random
from unittest import mock

from . import latest_values, simulation
from .latest_values import LatestValues, make_topic, write_latest
from .outcome import Shape
from .run import run_seed
from .virtual_cluster import VirtualCluster


def test_a_value_that_is_not_there_is_reported() -> None:
    from oncelog.client.admin import Admin

    values, rounds = LatestValues(), iter([False] * 12)

    async def prepare(bootstrap: str) -> None:
        async with Admin(bootstrap) as admin:
            await make_topic(admin, 1)

    with VirtualCluster.made(1, Shape(nodes=1)) as cluster:
        cluster.start()
        cluster.finish(prepare(cluster.bootstrap))
        stop = lambda: next(rounds, True)  # noqa: E731
        rng = random.Random(1)
        cluster.finish(write_latest(cluster.bootstrap, values, stop, rng, 1.0))
        assert values.acknowledged
        assert cluster.finish(values.compare(cluster.bootstrap)) == []
        place = min(values.acknowledged)
        values.acknowledged[place] += 1_000
        (words,) = cluster.finish(values.compare(cluster.bootstrap))
        assert words.startswith(f"partition {place[0]}, key {place[1]}: ")


def test_what_compare_says_is_a_finding_of_the_run() -> None:
    async def compare(_self: LatestValues, _bootstrap: str) -> list[str]:
        return ["partition 0, key 1: gone"]

    assert simulation.latest_values is latest_values
    outcome = run_seed(
        1,
        shape=Shape(seconds=1.0, faults=0),
        install=lambda: mock.patch.object(LatestValues, "compare", compare),
    )
    assert outcome.names == {"value lost"}
