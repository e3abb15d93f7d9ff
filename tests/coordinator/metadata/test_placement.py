"""Test that new replicas are spread over brokers and racks, and placed deterministically."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.coordinator.metadata.placement import UsableBroker, place
from oncelog.wire.errors import InvalidReplicationFactor

brokers = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.booleans()), min_size=1, max_size=7
).map(lambda drawn: [UsableBroker(10 + i, rack, fenced) for i, (rack, fenced) in enumerate(drawn)])


@settings(deadline=None)
@given(brokers, st.integers(1, 40), st.integers(1, 8), st.integers(0, 10_000), st.booleans())
def test_replica_placement_of_any_brokers_is_valid_and_rack_aware(
    places: list[UsableBroker], count: int, factor: int, start: int, has_racks: bool
) -> None:
    if not has_racks:
        places = [place._replace(rack=None) for place in places]
    live = {place.node_id for place in places if not place.is_fenced}
    rack_of = {place.node_id: place.rack for place in places}
    if factor > len(places) or not live:
        with pytest.raises(InvalidReplicationFactor):
            place(places, partition_count=count, replication_factor=factor, start=start)
        return
    placed = place(places, partition_count=count, replication_factor=factor, start=start)
    assert len(placed) == count
    reversed_input = list(reversed(places))
    assert placed == place(
        reversed_input, partition_count=count, replication_factor=factor, start=start
    )
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] in live
        assert len(live & set(replicas)) == min(factor, len(live)), "fenced only without a choice"
        racks = {rack_of[node] for node in live}
        if has_racks and factor <= len(racks):
            assert len({rack_of[node] for node in replicas}) == factor
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.get(node, 0) for node in live) <= 1


def test_replica_placement_spreads_the_followers_of_a_leader_over_all_brokers() -> None:
    places = [UsableBroker(node, None, False) for node in (1, 2, 3, 4)]
    placed = place(places, partition_count=24, replication_factor=3, start=0)
    assert Counter(r[1] for r in placed if r[0] == 1) == {2: 2, 3: 2, 4: 2}
    assert Counter(node for replicas in placed for node in replicas) == dict.fromkeys(
        range(1, 5), 18
    )


def test_replica_placement_of_single_partition_topics_rotates_the_leaders() -> None:
    places = [UsableBroker(node, None, False) for node in (1, 2, 3)]
    leaders = [
        place(places, partition_count=1, replication_factor=2, start=start)[0][0]
        for start in range(6)
    ]
    assert leaders == [1, 2, 3, 1, 2, 3]


def test_replica_placement_of_too_many_replicas_is_refused_in_the_words_of_kafka() -> None:
    places = [UsableBroker(node, None, is_fenced=False) for node in (1, 2, 3)]
    with pytest.raises(InvalidReplicationFactor) as refused:
        place(places, partition_count=1, replication_factor=9, start=0)
    assert str(refused.value) == (
        "Unable to replicate the partition 9 time(s): The target replication factor of 9 cannot be "
        "reached because only 3 broker(s) are registered or some brokers have all their log "
        "directories cordoned."
    )
