"""Test the comparison of encoded fetch requests, which ignores the order of partitions."""

import pytest

from oncelog.runtime.steps import run_to_end
from oncelog.wire.messages import fetch
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.fetch_rows import FetchRows, fetch_rows


def rows(version: int, *topics: tuple[str, list[FetchPartition]], wait_ms: int = 500) -> FetchRows:
    named = [
        FetchTopic(None if version >= 13 else name, name.encode() * 16, partitions)
        for name, partitions in topics
    ]
    body = b"".join(fetch.encode_request(FetchRequest(wait_ms, 1, named), version))
    found = run_to_end(fetch_rows(memoryview(body), version))
    assert found is not None
    return found


def at(*indexes: int, offset: int = 5) -> list[FetchPartition]:
    return [FetchPartition(index, offset, 100) for index in indexes]


@pytest.mark.parametrize("version", range(fetch.OLDEST, fetch.NEWEST + 1))
def test_fetch_rows_of_requests_that_differ_only_in_order_are_equal(version: int) -> None:
    known = rows(version, ("a", at(0, 1, 2)), ("b", at(0)))
    assert known == rows(version, ("a", at(2)), ("b", at(0)), ("a", at(0, 1)))
    others = (
        rows(version, ("a", at(0, 1, 2)), ("b", at(1))),
        rows(version, ("a", at(0, 1, 2)), ("c", at(0))),
        rows(version, ("a", at(0, 1, 2)), ("b", at(0, offset=6))),
        rows(version, ("a", at(0, 1, 2))),
        rows(version, ("a", at(0, 1, 2)), ("b", at(0)), wait_ms=501),
    )
    assert all(known != other for other in others)


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_fetch_rows_are_none_if_the_request_is_truncated_repeats_a_partition_or_has_a_session(
    version: int,
) -> None:
    topic = FetchTopic(None if version >= 13 else "a", bytes(range(16)), at(0, 1, 0))
    body = b"".join(fetch.encode_request(FetchRequest(1, 1, [topic]), version))
    assert run_to_end(fetch_rows(memoryview(body), version)) is None, "twice"
    for length in range(len(body) // 2):
        assert run_to_end(fetch_rows(memoryview(body[:length]), version)) is None
    if version >= 7:
        topic.partitions = at(0, 1)
        request = FetchRequest(1, 1, [topic], session_id=5, session_epoch=3)
        body = b"".join(fetch.encode_request(request, version))
        assert run_to_end(fetch_rows(memoryview(body), version)) is None, "in a session"
