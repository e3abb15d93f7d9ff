"""Test the eviction of fetch sessions by the rule of Kafka, and by the total of partitions."""

from itertools import count

from oncelog.replication.fetch_session import FetchSession
from oncelog.replication.fetch_session_cache import EVICTION_MS, FetchSessionCache
from oncelog.runtime.steps import run_to_end
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

from ..node.counted_lines import Lines

from oncelog.replication.standing_fetches import StandingFetches  # isort: skip


def open_session(
    cache: FetchSessionCache, size: int, now_ms: int = 0
) -> tuple[FetchSession | None, list[FetchSession]]:
    numbers = count(1)
    return cache.open(size, now_ms, lambda: next(numbers), uses_topic_ids=False)


def opened(cache: FetchSessionCache, size: int, now_ms: int = 0) -> FetchSession:
    session, evicted = open_session(cache, size, now_ms)
    assert session is not None and not evicted
    return session


def grow(session: FetchSession, size: int) -> None:
    wanted = [FetchPartition(index, 0, 1) for index in range(size)]
    request = FetchRequest(0, 1, [FetchTopic("t", None, wanted)], session_epoch=session.epoch)
    run_to_end(session.update(request, StandingFetches()))


def test_fetch_session_id_already_in_use_is_drawn_again() -> None:
    cache = FetchSessionCache(4)
    assert [opened(cache, 1).session_id for _ in range(3)] == [1, 2, 3]
    numbers = iter([2, 3, 9])
    session, _ = cache.open(1, 0, lambda: next(numbers), uses_topic_ids=True)
    assert session is not None and session.session_id == 9


def test_fetch_session_cache_without_slots_opens_no_session() -> None:
    assert open_session(FetchSessionCache(0), 1) == (None, [])


def test_young_fetch_session_is_not_evicted_by_a_larger_session() -> None:
    cache = FetchSessionCache(1)
    small = opened(cache, 1)
    cache.touch(small, EVICTION_MS)
    assert open_session(cache, 100, EVICTION_MS) == (None, [])


def test_fetch_session_in_use_for_long_is_evicted_only_for_a_larger_session() -> None:
    cache = FetchSessionCache(2)
    small, large = opened(cache, 5), opened(cache, 9)
    for session, size in ((small, 5), (large, 9)):
        grow(session, size)
        cache.touch(session, EVICTION_MS + 1)
    assert open_session(cache, 5, EVICTION_MS + 1) == (None, [])
    session, evicted = open_session(cache, 6, EVICTION_MS + 1)
    assert session is not None and evicted == [small] and small.is_closed
    assert len(cache) == 2 and cache.partition_count == 6 + 9


def test_fetch_session_unused_for_long_is_evicted_first_whatever_its_size() -> None:
    cache = FetchSessionCache(2)
    silent, used = opened(cache, 50), opened(cache, 1)
    grow(used, 1)
    cache.touch(used, EVICTION_MS)
    session, evicted = open_session(cache, 1, EVICTION_MS + 1)
    assert session is not None and evicted == [silent]
    assert cache.get(used.session_id) is used


def test_fetch_session_evictions_for_a_large_session_take_one_pass() -> None:
    """One search for each evicted session would block the loop for 80 ms."""
    cache, lines = FetchSessionCache(400, partitions_max=400), Lines()
    for _ in range(400):
        grow(session := opened(cache, 1), 1)
        cache.touch(session, EVICTION_MS + 1)
    with lines.counted():
        session, evicted = open_session(cache, 300, EVICTION_MS + 1)
    assert session is not None and len(evicted) == 300
    assert lines.count < 30 * 400


def test_fetch_session_partitions_of_all_sessions_are_bounded() -> None:
    cache = FetchSessionCache(10, partitions_max=100)
    first = opened(cache, 60)
    assert open_session(cache, 41) == (None, [])
    assert open_session(cache, 101, EVICTION_MS + 1) == (None, []), "no session is evicted in vain"
    second = opened(cache, 40)
    grow(first, 61)
    assert not cache.touch(first, 1)
    cache.close(first)
    cache.close(first)
    assert cache.partition_count == 40 and cache.touch(second, 2)
    assert cache.partition_count == 0, "the second session has none"
