"""Test that the checks of topics with retention or compaction report only missing records."""

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from oncelog.client.admin import Admin

from ..outcome import Shape
from ..run import run_seed
from ..virtual_cluster import VirtualCluster
from .latest_values import LatestValues
from .own_topic import NUMBER, OwnTopic, write
from .passing_values import PassingValues


def higher(topic: LatestValues) -> str:
    place = min(topic.latest)
    topic.latest[place] = 1_000, False
    return f"partition {place[0]}, key {place[1].decode()}: 1000 was acknowledged"


def removed(topic: LatestValues) -> str:
    place = min(place for place, (_, is_removal) in topic.latest.items() if not is_removal)
    topic.latest[place] = 1_000, True
    return f"partition {place[0]}, key {place[1].decode()}: removed by 1000"


def another(topic: PassingValues) -> str:
    place = max(topic.places)
    topic.places[place] = 1_000
    return f"partition {place[0]}, offset {place[1]}: 1000 was acknowledged"


@pytest.mark.parametrize(
    ("kind", "falsify"), [(LatestValues, higher), (LatestValues, removed), (PassingValues, another)]
)
def test_own_topic_with_a_removed_or_changed_record_is_reported(
    kind: type[OwnTopic], falsify: Callable[[Any], str]
) -> None:
    topic, rounds = kind(3), iter([False] * 40)  # with this seed not all has passed at the end

    async def prepare(cluster: VirtualCluster) -> None:
        async with Admin(cluster.bootstrap) as admin:
            await topic.make(cluster, admin)

    with VirtualCluster.made(1, Shape(nodes=1)) as cluster:
        cluster.start()
        cluster.finish(prepare(cluster))
        stop = lambda: next(rounds, True)  # noqa: E731
        cluster.finish(write(cluster, [topic], stop, random.Random(1), 1.0))
        assert cluster.finish(topic.compare(cluster)) == []
        expected = falsify(topic)
        (words,) = cluster.finish(topic.compare(cluster))
        assert words.startswith(expected)


@pytest.mark.parametrize(
    ("removal", "gap_s", "is_lost"),
    [(None, 0.0, True), (None, 60.0, True), (51, 0.0, True), (51, 60.0, False)],
)
def test_old_value_after_an_unanswered_removal_counts_as_lost_unless_a_replica_was_long_absent(
    removal: int | None, gap_s: float, is_lost: bool
) -> None:
    """A replica that was down for long may have an old value whose tombstone is gone elsewhere."""
    topic, place = LatestValues(1), (0, b"key")
    topic.latest[place], topic.gap_s = (48, False), gap_s
    if removal is not None:
        topic._removals[place] = removal
    former = SimpleNamespace(partition=0, key=b"key", value=b"31", headers=[(NUMBER, b"31")])
    assert bool(topic.missing([cast(Any, former)], {0: 0})) == is_lost


def test_absence_of_a_replica_is_measured_from_the_first_look_on() -> None:
    """A machine that is damaged at the beginning may not start before all faults end."""
    topic, timeline = LatestValues(1), SimpleNamespace(now=1.0)
    nodes = {1: SimpleNamespace(node_id=1, is_serving=False, broker=None)}
    cluster = SimpleNamespace(timeline=timeline, nodes=nodes, ids=[1])
    for timeline.now in (1.0, 16.0):
        topic._note_level(cast(Any, cluster), 0)
    assert topic.gap_s == 15.0


def test_own_topic_that_is_recreated_requires_only_later_records() -> None:
    topic = PassingValues(1)

    async def live_twice(cluster: VirtualCluster) -> list[str]:
        async with Admin(cluster.bootstrap) as admin:
            await topic.make(cluster, admin)
            await write(cluster, [topic], iter([False] * 9 + [True] * 9).__next__, rng, 1.0)
            before = dict(topic.places)
            await topic.make_anew(cluster, admin)
            assert before
            assert topic.places == {}
            await write(cluster, [topic], iter([False] * 9 + [True] * 9).__next__, rng, 1.0)
            assert topic.places
        return await topic.compare(cluster)

    rng = random.Random(2)
    with VirtualCluster.made(1, Shape(nodes=1)) as cluster:
        cluster.start()
        assert cluster.finish(live_twice(cluster)) == []


def test_own_topic_with_a_difference_found_by_its_comparison_fails_the_run() -> None:
    async def compare(_self: OwnTopic, _cluster: VirtualCluster) -> list[str]:
        return ["partition 0, key 1: gone"]

    outcome = run_seed(
        1,
        shape=Shape(seconds=1.0, faults=0),
        install=lambda: mock.patch.object(LatestValues, "compare", compare),
    )
    assert outcome.names == {"value lost"}
