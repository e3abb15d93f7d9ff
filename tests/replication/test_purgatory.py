"""Test the completion of waiting produces and fetches, by example and against a naive model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.replication.delayed_operations import BYTES_UNKNOWN, DelayedFetch, DelayedProduce
from oncelog.replication.purgatory import Purgatory
from oncelog.wire.errors import ErrorCode


@pytest.fixture
def purgatory() -> Purgatory:
    return Purgatory()


def test_produce_in_purgatory_completes_when_its_last_partition_is_committed(
    purgatory: Purgatory,
) -> None:
    produce = DelayedProduce({"a": 5, "b": 3}, deadline_ms=100)
    purgatory.watch_produce(produce)
    assert purgatory.advance("a", 4) == []
    assert purgatory.advance("a", 5) == []
    assert purgatory.advance("b", 9) == [produce]
    assert produce.outcomes == {"a": 0, "b": 0}
    assert purgatory.waiting_count == 0
    assert purgatory.next_deadline_ms is None


def test_produces_in_purgatory_complete_in_the_order_of_their_offsets(purgatory: Purgatory) -> None:
    produces = [DelayedProduce({"a": offset}, 100) for offset in (3, 5, 7)]
    for produce in produces:
        purgatory.watch_produce(produce)
    assert purgatory.advance("a", 6) == produces[:2]


def test_produce_in_purgatory_that_expires_fails_its_uncommitted_partitions_with_a_timeout(
    purgatory: Purgatory,
) -> None:
    produce = DelayedProduce({"a": 5, "b": 3}, deadline_ms=100)
    purgatory.watch_produce(produce)
    purgatory.advance("b", 3)
    assert purgatory.expire(99) == []
    assert purgatory.next_deadline_ms == 100
    assert purgatory.expire(100) == [produce]
    assert produce.outcomes == {"a": ErrorCode.REQUEST_TIMED_OUT, "b": ErrorCode.NONE}
    assert purgatory.advance("a", 9) == []


def test_produce_in_purgatory_does_not_wait_for_partitions_that_already_failed(
    purgatory: Purgatory,
) -> None:
    produce = DelayedProduce({"a": 5, "b": 3}, 100, outcomes={"b": 6})
    purgatory.watch_produce(produce)
    assert purgatory.advance("a", 5) == [produce]
    assert produce.outcomes == {"a": 0, "b": 6}


def test_produces_in_purgatory_fail_when_the_partition_loses_its_leader(
    purgatory: Purgatory,
) -> None:
    one, two = DelayedProduce({"a": 5}, 100), DelayedProduce({"a": 1 << 60, "b": 1}, 100)
    purgatory.watch_produce(one)
    purgatory.watch_produce(two)
    assert purgatory.fail_produces("a", ErrorCode.NOT_LEADER_OR_FOLLOWER) == [one]
    assert purgatory.advance("b", 1) == [two]
    assert two.outcomes["a"] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_fetch_in_purgatory_completes_with_min_bytes_in_all_its_partitions_together(
    purgatory: Purgatory,
) -> None:
    fetch = DelayedFetch({"a": 10, "b": 0}, missing_bytes=100, deadline_ms=50)
    purgatory.watch_fetch(fetch)
    assert purgatory.made_visible("a", 10, 1000) == []  # below the fetch's offset
    assert purgatory.made_visible("a", 11, 60) == []
    assert purgatory.made_visible("b", 4, 40) == [fetch]
    assert purgatory.made_visible("a", 12, 100) == []
    assert purgatory.expire(1000) == []


def test_fetch_in_purgatory_includes_transactional_bytes_when_the_transaction_ends(
    purgatory: Purgatory,
) -> None:
    reader = DelayedFetch({"a": 10}, 100, 50, hidden_bytes={})
    purgatory.watch_fetch(reader)
    assert purgatory.made_visible("a", 20, 90, lambda: 10) == []
    assert purgatory.made_visible("a", 30, 90, lambda: 10) == []
    assert purgatory.made_visible("a", 31, 1, lambda: 31) == [reader]


def test_bytes_hidden_before_the_wait_count_towards_min_bytes(purgatory: Purgatory) -> None:
    reader = DelayedFetch({"a": 10, "b": 5}, 100, 50, hidden_bytes={"a": BYTES_UNKNOWN})
    purgatory.watch_fetch(reader)
    assert purgatory.made_visible("b", 6, 10, lambda: 6) == []
    assert purgatory.made_visible("a", 31, 1, lambda: 12) == [reader]


@given(
    st.integers(1, 60),
    st.lists(
        st.tuples(st.integers(1, 9), st.integers(1, 20), st.integers(0, 30), st.booleans()),
        max_size=20,
    ),
)
def test_read_committed_fetch_completes_at_the_latest_with_enough_stable_bytes(
    missing_bytes: int, steps: list[tuple[int, int, int, bool]]
) -> None:
    """The last stable offset may reach the high watermark later, when a transaction ends."""
    purgatory = Purgatory()
    reader = DelayedFetch({"a": 0}, missing_bytes, 1000, hidden_bytes={})
    plain = DelayedFetch({"a": 0}, missing_bytes, 1000)
    purgatory.watch_fetch(reader)
    purgatory.watch_fetch(plain)
    high_watermark = stable = 0
    sizes: list[tuple[int, int]] = []  # (end offset, bytes)
    for count, size, lag, catches_up in steps:
        high_watermark += count
        sizes.append((high_watermark, size))
        stable = max(stable, high_watermark if catches_up else high_watermark - lag)
        purgatory.made_visible("a", high_watermark, size, lambda: stable)  # noqa: B023
        assert plain.is_done == (sum(size for _, size in sizes) >= missing_bytes)
        if sum(size for end, size in sizes if end <= stable) >= missing_bytes:
            assert reader.is_done
        if stable == 0:
            assert not reader.is_done


def test_fetch_in_purgatory_completes_at_a_leadership_change(purgatory: Purgatory) -> None:
    fetch = DelayedFetch({"a": 10, "b": 0}, 100, 50)
    purgatory.watch_fetch(fetch)
    assert purgatory.wake_fetches("b") == [fetch]
    assert purgatory.wake_fetches("a") == []


def test_operation_in_purgatory_that_is_cancelled_is_removed(purgatory: Purgatory) -> None:
    fetch, produce = DelayedFetch({"a": 1}, 1, 5), DelayedProduce({"a": 1}, 5)
    purgatory.watch_fetch(fetch)
    purgatory.watch_produce(produce)
    for operation in (fetch, produce, produce):
        purgatory.cancel(operation)
    assert purgatory.waiting_count == 0
    assert purgatory.expire(9) == purgatory.advance("a", 9) == purgatory.wake_fetches("a") == []


def test_purgatory_memory_is_bounded_by_its_waiting_operations(purgatory: Purgatory) -> None:
    """The heaps may keep complete and expired operations, but only a bounded number of them."""
    for i in range(10_000):
        purgatory.watch_produce(DelayedProduce({"quick": i}, 1_000_000))
        purgatory.advance("quick", i)
        purgatory.watch_produce(DelayedProduce({"stuck": 1 << 40}, i))
        purgatory.expire(i)
    assert purgatory.waiting_count == 0
    assert len(purgatory._deadlines._heap) < 200
    assert "stuck" not in purgatory._produces


KEYS = ("a", "b", "c")
OFFSETS = st.dictionaries(st.sampled_from(KEYS), st.integers(1, 20), min_size=1)
STEPS = st.one_of(
    st.tuples(st.just("produce"), OFFSETS, st.integers(0, 30)),
    st.tuples(st.just("fetch"), OFFSETS, st.integers(0, 30), st.integers(1, 5)),
    st.tuples(st.just("advance"), st.sampled_from(KEYS), st.integers(0, 25)),
    st.tuples(st.just("visible"), st.sampled_from(KEYS), st.integers(0, 25), st.integers(0, 4)),
    st.tuples(st.just("wake"), st.sampled_from(KEYS)),
    st.tuples(st.just("cancel"), st.integers(0, 50)),
    st.tuples(st.just("time"), st.integers(0, 40)),
)


class Model:
    """A purgatory that searches one list of all waiting operations at each event."""

    def __init__(self) -> None:
        self.produces: list[tuple[DelayedProduce, dict[str, int]]] = []
        self.fetches: list[list] = []

    def advance(self, key: str, offset: int) -> list[DelayedProduce]:
        for _, open_offsets in self.produces:
            if open_offsets.get(key, 1 << 62) <= offset:
                del open_offsets[key]
        freed = [produce for produce, open_offsets in self.produces if not open_offsets]
        self.produces = [entry for entry in self.produces if entry[1]]
        return freed

    def visible(self, key: str, offset: int, size: int) -> list[DelayedFetch]:
        freed = []
        for entry in list(self.fetches):
            if entry[0].offsets.get(key, 1 << 62) < offset:
                entry[1] -= size
                if entry[1] <= 0:
                    freed.append(entry[0])
                    self.fetches.remove(entry)
        return freed

    def drop(self, chosen) -> list:
        dropped = [entry[0] for entry in [*self.produces, *self.fetches] if chosen(entry[0])]
        self.produces = [entry for entry in self.produces if not chosen(entry[0])]
        self.fetches = [entry for entry in self.fetches if not chosen(entry[0])]
        return dropped


@given(st.lists(STEPS, max_size=60), st.booleans())
def test_purgatory_completes_the_same_operations_as_a_naive_model(
    steps: list[tuple], unlinks_at_once: bool
) -> None:
    purgatory, model, everything, freed = Purgatory(), Model(), [], []

    def unlink() -> None:
        while freed:
            purgatory.unlink(freed.pop())

    for step in steps:
        match step:
            case ("produce", offsets, deadline):
                produce = DelayedProduce(offsets, deadline)
                everything.append(produce)
                purgatory.watch_produce(produce)
                model.produces.append((produce, dict(offsets)))
            case ("fetch", offsets, deadline, size):
                fetch = DelayedFetch(offsets, size, deadline)
                everything.append(fetch)
                purgatory.watch_fetch(fetch)
                model.fetches.append([fetch, size])
            case ("advance", key, offset):
                assert set(purgatory.advance(key, offset)) == set(model.advance(key, offset))
            case ("visible", key, offset, size):
                seen = purgatory.made_visible(key, offset, size)
                assert set(seen) == set(model.visible(key, offset, size))
                freed += seen
            case ("wake", key):
                expected = model.drop(lambda o: isinstance(o, DelayedFetch) and key in o.offsets)
                woken = purgatory.wake_fetches(key)
                assert set(woken) == set(expected)
                freed += woken
            case ("cancel", index) if index < len(everything):
                purgatory.cancel(everything[index])
                model.drop(lambda o: o is everything[index])
            case ("time", now):
                expected = model.drop(lambda o: o.deadline_ms <= now)
                expired = purgatory.expire(now)
                assert set(expired) == set(expected)
                freed += [each for each in expired if isinstance(each, DelayedFetch)]
        if unlinks_at_once:
            unlink()
        waiting = [entry[0] for entry in [*model.produces, *model.fetches]]
        assert purgatory.waiting_count == len(waiting)
        first = min((operation.deadline_ms for operation in waiting), default=None)
        assert purgatory.next_deadline_ms == first
    unlink()
    watchers = [operation for watching in purgatory._fetches.values() for operation in watching]
    assert set(watchers) == {entry[0] for entry in model.fetches}
