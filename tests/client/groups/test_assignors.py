"""Test assignors by Kafka's own examples and by properties of sticky assignments."""

from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.groups.assignors import COOPERATIVE, assign
from oncelog.wire.consumer_protocol import Subscription, encode_sticky


def members(**topics: str) -> dict[str, Subscription]:
    return {name: Subscription(tuple(text.split())) for name, text in topics.items()}


def test_range_assignor_gives_each_member_a_range_of_each_topic():
    given_ = assign("range", members(a="t u", b="t u"), {"t": 3, "u": 3})
    assert given_ == {
        "a": [("t", 0), ("t", 1), ("u", 0), ("u", 1)],
        "b": [("t", 2), ("u", 2)],
    }


def test_range_assignor_orders_static_members_by_instance_id_before_dynamic_members():
    both = {
        "a": Subscription(("t",)),
        "b": Subscription(("t",), instance_id="2"),
        "c": Subscription(("t",), instance_id="1"),
    }
    assert assign("range", both, {"t": 3}) == {"c": [("t", 0)], "b": [("t", 1)], "a": [("t", 2)]}


def test_roundrobin_assignor_cycles_over_the_partitions_of_all_topics():
    given_ = assign("roundrobin", members(a="t u", b="t u"), {"t": 3, "u": 3})
    assert given_ == {
        "a": [("t", 0), ("t", 2), ("u", 1)],
        "b": [("t", 1), ("u", 0), ("u", 2)],
    }


def test_roundrobin_assignor_skips_members_without_the_subscription():
    given_ = assign("roundrobin", members(a="t", b="t u", c="t u v"), {"t": 1, "u": 2, "v": 3})
    assert given_ == {
        "a": [("t", 0)],
        "b": [("u", 0)],
        "c": [("u", 1), ("v", 0), ("v", 1), ("v", 2)],
    }


def test_assignor_assigns_no_partition_of_a_missing_topic():
    for name in ("range", "roundrobin", "sticky", COOPERATIVE):
        assert assign(name, members(a="t", b="gone"), {"t": 2}) == {
            "a": [("t", 0), ("t", 1)],
            "b": [],
        }


TOPICS = ("t", "u", "v")
some_counts = st.fixed_dictionaries({topic: st.integers(0, 6) for topic in TOPICS})
some_members = st.dictionaries(
    st.sampled_from("abcdef"), st.sets(st.sampled_from(TOPICS), min_size=1), min_size=1
)


@given(some_members, some_counts, st.sampled_from(["range", "roundrobin", "sticky", COOPERATIVE]))
def test_assignor_gives_each_subscribed_partition_exactly_one_subscribed_owner(wants, counts, name):
    group = {m: Subscription(tuple(sorted(topics))) for m, topics in wants.items()}
    given_ = assign(name, group, counts)
    assert set(given_) == set(group)
    owned = [p for partitions in given_.values() for p in partitions]
    assert len(owned) == len(set(owned))
    wanted = {t for topics in wants.values() for t in topics}
    assert set(owned) == {(t, p) for t in wanted for p in range(counts[t])}
    for member_id, partitions in given_.items():
        assert {t for t, _ in partitions} <= wants[member_id]


def carried(name: str, topics, owned, generation: int) -> Subscription:
    """Return a member's subscription, with the owned partitions in the form that the assignor
    reads.
    """
    if name == COOPERATIVE:
        return Subscription(topics, tuple(owned), generation)
    return Subscription(topics, user_data=encode_sticky(owned, generation))


@given(
    st.sets(st.sampled_from("abcdef"), min_size=1),
    st.sets(st.sampled_from("abcdef"), min_size=1),
    st.integers(1, 20),
    st.sampled_from(["sticky", COOPERATIVE]),
)
def test_sticky_assignor_with_equal_subscriptions_balances_with_the_fewest_moves(
    before, after, count, name
):
    counts = {"t": count}
    first = assign("sticky", {m: Subscription(("t",)) for m in before}, counts)
    assert _spread(first) <= 1
    group = {m: carried(name, ("t",), first.get(m, ()), 1 if m in first else -1) for m in after}
    second = assign("sticky", group, counts)
    assert _spread(second) <= 1
    stayed = before & after
    quota = -(-count // len(after))
    for member_id in stayed:
        kept = set(first[member_id]) & set(second[member_id])
        assert len(kept) >= min(len(first[member_id]), len(second[member_id]), quota)
    if before == after:
        assert second == first


def _spread(given_) -> int:
    sizes = [len(partitions) for partitions in given_.values()]
    return max(sizes) - min(sizes)


@given(
    st.sets(st.sampled_from("abcdef"), min_size=1),
    st.lists(st.sets(st.sampled_from("abcdef"), min_size=1), max_size=4),
    st.integers(1, 12),
)
def test_cooperative_assignor_assigns_no_partition_twice_and_converges(start, changes, count):
    counts = {"t": count}
    owned: dict[str, set] = {m: set() for m in start}
    generation, revoked = 0, False
    for present in [start, *changes]:
        owned = {m: owned.get(m, set()) for m in present}
        for _ in range(4):
            generation += 1
            group = {m: Subscription(("t",), tuple(o), generation - 1) for m, o in owned.items()}
            given_ = assign(COOPERATIVE, group, counts)
            for m, partitions in given_.items():
                others = set().union(*(o for n, o in owned.items() if n != m))
                assert not set(partitions) & others, "the old owner has not let it go"
            revoked = any(owned[m] - set(given_[m]) for m in owned)
            owned = {m: set(partitions) for m, partitions in given_.items()}
            if not revoked:
                break
        assert not revoked
        assert sum(len(o) for o in owned.values()) == count
        assert _spread(owned) <= 1


def test_partition_claimed_by_two_members_goes_to_the_newer_generation():
    group = {
        "a": Subscription(("t",), (("t", 0), ("t", 1)), 1),
        "b": Subscription(("t",), (("t", 0),), 2),
    }
    assert assign(COOPERATIVE, group, {"t": 2}) == {"a": [("t", 1)], "b": [("t", 0)]}


def test_partition_claimed_by_two_members_of_one_generation_goes_to_exactly_one():
    group = {m: Subscription(("t",), (("t", 0),), 1) for m in "ab"}
    given_ = assign("sticky", group, {"t": 1})
    assert sorted(map(len, given_.values())) == [0, 1]
