"""Test the table of committed offsets of a coordinator, case by case."""

from functools import partial
from typing import Any

import pytest

from oncelog.coordinator.groups.offset_table import ENTRIES_A_STEP, OffsetTable
from oncelog.coordinator.groups.records import (
    GroupValue,
    OffsetValue,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from oncelog.coordinator.metadata.clock_advances import ClockAdvances
from oncelog.wire.record_batch import decode_header
from oncelog.wire.records import Record, decode_batch, encode_batch, encode_empty_batch

from ...log_batches import marker

MINUTE_MS = 60_000


class Log:
    """A log of __consumer_offsets. Each of its batches is applied to an OffsetTable."""

    def __init__(self) -> None:
        self.table = OffsetTable()
        self.end = 0

    def take(self, batch: bytes) -> None:
        header = decode_header(batch)
        self.table.replay(header, decode_batch(batch))
        self.end = header.next_offset

    def write(self, *pairs: tuple[bytes | None, bytes | None], producer: int | None = None) -> int:
        base = self.end
        records = [Record(base + i, 0, *pair) for i, pair in enumerate(pairs)]
        fields = {"producer_id": producer, "producer_epoch": 0, "transactional": True}
        self.take(encode_batch(records, **fields if producer is not None else {}))
        return base

    def commit(
        self, offset: int, *, group: str = "g", partition: int = 0, producer: int | None = None,
        **fields: object,
    ) -> int:  # fmt: skip
        value = OffsetValue(offset, -1, "", 0)._replace(**fields)
        key = encode_offset_key(group, "t", partition)
        return self.write((key, encode_offset_value(value)), producer=producer)

    def delete(self, group: str = "g", partition: int = 0) -> None:
        self.write((encode_offset_key(group, "t", partition), None))

    def end_transaction(self, producer: int, *, commits: bool = True) -> None:
        self.take(self.marker(producer, commits=commits))

    def marker(self, producer: int, *, commits: bool = True) -> bytes:
        return marker(producer, commits, base_offset=self.end)

    def offset(self, group: str = "g", partition: int = 0) -> int | None:
        value = self.table.fetch(group, "t", partition)
        return None if value is None else value.offset


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.mark.parametrize("commits", [True, False])
def test_transaction_with_many_pending_offsets_ends_in_steps(log: Log, commits: bool) -> None:
    """A marker that applied 100,000 offsets in one step blocked the loop for 160 ms."""
    count = 2 * ENTRIES_A_STEP
    for group in ("g", "h"):
        value = encode_offset_value(OffsetValue(5, -1, "", 0))
        pairs = [(encode_offset_key(group, "t", i), value) for i in range(count)]
        log.write(*pairs, producer=7)
        log.commit(1, group=group, partition=count - 1, producer=8)
    marker = log.marker(7, commits=commits)
    table = log.table
    unstable = []
    for _ in table.replaying(decode_header(marker), decode_batch(marker)):
        pending = [table.is_unstable(group, "t", i) for group in "gh" for i in range(count - 1)]
        there = [log.offset(group, i) == 5 for group in "gh" for i in range(count - 1)]
        assert not any(a and b for a, b in zip(pending, there, strict=True))
        unstable.append(sum(pending))
    assert unstable == [767, 511, 256, 0]  # the last of each group is not checked
    assert table.is_unstable("g", "t", count - 1)  # by producer 8
    assert table.size == 2 + (2 * count if commits else 0)
    assert log.offset("h", count - 1) == (5 if commits else None)


def test_offset_fetch_of_an_unknown_group_finds_no_offset(log: Log) -> None:
    assert log.table.fetch("g", "t", 0) is None
    assert log.table.committed("g") == []
    assert log.table.group_ids() == set()
    assert not log.table.has_offsets("g")
    assert log.table.partitions("g") == []


def test_offset_commit_that_is_later_overrides_the_earlier(log: Log) -> None:
    log.commit(5)
    log.commit(3, leader_epoch=2, metadata="back")
    assert log.table.fetch("g", "t", 0) == OffsetValue(3, 2, "back", 0)
    assert log.table.size == 1


def test_committed_offsets_of_a_group_exclude_other_groups(log: Log) -> None:
    log.commit(1, partition=1)
    log.commit(2, partition=0)
    log.commit(9, group="other")
    assert log.table.committed("g") == [("t", 1), ("t", 0)]
    assert (log.offset(partition=1), log.offset(partition=0)) == (1, 2)
    assert log.table.group_ids() == {"g", "other"}


def test_transactional_offsets_wait_for_their_marker(log: Log) -> None:
    log.commit(1)
    log.commit(2, producer=7)
    assert log.offset() == 1
    assert log.table.is_unstable("g", "t", 0) and not log.table.is_unstable("g", "t", 1)
    assert log.table.has_pending("g")
    log.end_transaction(7)
    assert log.offset() == 2
    assert not log.table.has_pending("g")
    assert log.table.size == 1


def test_abort_drops_pending_transactional_offsets(log: Log) -> None:
    log.commit(1)
    log.commit(2, producer=7)
    log.commit(2, producer=7, group="new")
    log.end_transaction(7, commits=False)
    assert log.offset() == 1
    assert log.table.group_ids() == {"g"} and log.table.size == 1


def test_transaction_marker_ends_only_the_offsets_of_its_producer(log: Log) -> None:
    log.commit(1, producer=7)
    log.commit(2, producer=8)
    log.end_transaction(7)
    assert log.offset() == 1
    assert log.table.is_unstable("g", "t", 0)
    log.end_transaction(8)
    assert log.offset() == 2


def test_transaction_marker_keeps_offsets_that_are_newer_in_the_log(log: Log) -> None:
    """The table must equal the compacted log, where the last record of a key counts."""
    log.commit(1, producer=7)
    log.commit(2)
    log.end_transaction(7)
    assert log.offset() == 2
    log.commit(3, producer=7)
    log.commit(4, producer=8)
    log.end_transaction(8)
    log.end_transaction(7)
    assert log.offset() == 4


def test_offset_tombstone_removes_committed_and_pending_offsets(log: Log) -> None:
    log.commit(1)
    log.commit(2, producer=7)
    log.commit(3, producer=8)
    log.commit(4, producer=8, partition=1)
    log.delete()
    assert log.offset() is None and not log.table.is_unstable("g", "t", 0)
    log.end_transaction(7)
    log.end_transaction(8)
    assert log.offset() is None and log.offset(partition=1) == 4
    assert log.table.size == 1


def test_offset_tombstone_or_marker_without_a_match_changes_no_offset(
    log: Log,
) -> None:
    log.commit(1)
    log.delete("h")
    log.end_transaction(7)
    assert log.offset() == 1 and log.table.size == 1


def test_offset_commit_after_the_deletion_of_its_group_is_stored(log: Log) -> None:
    log.commit(1)
    for where in log.table.partitions("g"):
        log.write((encode_offset_key("g", *where), None))
    assert log.table.group_ids() == set() and log.table.size == 0
    log.commit(2)
    assert log.offset() == 2


def test_group_partitions_with_committed_and_pending_offsets_are_listed_once(log: Log) -> None:
    log.commit(1)
    log.commit(2, producer=7)
    log.commit(3, producer=7, partition=1)
    log.commit(4, producer=8, partition=1)
    assert sorted(log.table.partitions("g")) == [("t", 0), ("t", 1)]


def test_offset_table_skips_records_of_other_types_and_counts_malformed_records(log: Log) -> None:
    log.commit(1)
    group = GroupValue("consumer", 1, None, None, 0, ())
    log.write((encode_group_key("g"), encode_group_value(group)), (encode_group_key("h"), None))
    log.write((b"\0\3\0\1g", b"a kind of the newer protocol"))
    assert log.table.broken_records == 0
    log.write((None, b"?"), (b"\0", b"?"), (b"\0\1\0\5g", b"?"))
    log.write((encode_offset_key("g", "t", 0), b"\0\x63"))
    assert log.table.broken_records == 4
    assert log.offset() == 1


def test_control_batch_without_a_valid_marker_ends_no_transaction(log: Log) -> None:
    log.commit(1, producer=7)
    log.take(encode_empty_batch(decode_header(log.marker(7))))
    broken = encode_batch(
        [Record(log.end, 0, b"\0\0\0\x09", b"\0" * 6)],
        transactional=True, control=True, producer_id=7, producer_epoch=0,
    )  # fmt: skip
    log.take(broken)
    assert log.table.broken_records == 1
    assert log.table.is_unstable("g", "t", 0)


# -- expiry


def expired(log: Log, now_ms: int, base_ms: int | None = None, **more: Any) -> list[int]:
    settings = {"retention_ms": 10 * MINUTE_MS, "advanced_since_ms": lambda _: 0, **more}
    found = log.table.expired("g", base_ms=base_ms, now_ms=now_ms, **settings)
    return [int.from_bytes(key[-4:], "big") for key in found]


def test_offsets_of_a_simple_group_expire_by_their_commit_time(log: Log) -> None:
    log.commit(1, commit_timestamp_ms=0)
    log.commit(1, partition=1, commit_timestamp_ms=MINUTE_MS)
    assert expired(log, 10 * MINUTE_MS - 1) == []
    assert expired(log, 10 * MINUTE_MS) == [0]
    assert expired(log, 11 * MINUTE_MS) == [0, 1]


def test_clock_advance_makes_only_earlier_offset_commits_older(log: Log) -> None:
    advances = ClockAdvances().advanced(MINUTE_MS, 9 * MINUTE_MS)
    log.commit(1, commit_timestamp_ms=MINUTE_MS)
    log.commit(1, partition=1, commit_timestamp_ms=MINUTE_MS + 1)
    log.commit(1, partition=2, commit_timestamp_ms=0, expire_timestamp_ms=11 * MINUTE_MS)
    aged = partial(expired, log, advanced_since_ms=advances.since_ms)
    assert aged(2 * MINUTE_MS - 1) == []
    assert aged(2 * MINUTE_MS) == [0, 2]
    assert aged(11 * MINUTE_MS + 1) == [0, 1, 2]
    assert aged(2 * MINUTE_MS, base_ms=MINUTE_MS + 1) == [2]  # empty since after the advance
    assert aged(2 * MINUTE_MS, base_ms=MINUTE_MS) == [0, 1, 2]


def test_offsets_of_an_empty_group_expire_together(log: Log) -> None:
    log.commit(1, commit_timestamp_ms=0)
    log.commit(1, partition=1, commit_timestamp_ms=MINUTE_MS)
    assert expired(log, 14 * MINUTE_MS, base_ms=5 * MINUTE_MS) == []
    assert expired(log, 15 * MINUTE_MS, base_ms=5 * MINUTE_MS) == [0, 1]


def test_offset_with_its_own_expiry_time_expires_at_that_time(log: Log) -> None:
    log.commit(1, commit_timestamp_ms=0, expire_timestamp_ms=20 * MINUTE_MS)
    assert expired(log, 20 * MINUTE_MS - 1, base_ms=0) == []
    assert expired(log, 20 * MINUTE_MS, base_ms=19 * MINUTE_MS) == [0]


def test_offsets_of_subscribed_topics_and_pending_partitions_do_not_expire(log: Log) -> None:
    log.commit(1)
    log.commit(1, partition=1)
    log.commit(2, partition=1, producer=7)
    assert expired(log, 60 * MINUTE_MS) == [0]
    assert expired(log, 60 * MINUTE_MS, subscribed=frozenset({"t"})) == []
    assert log.table.has_pending("g"), "the group must not go either"
    assert expired(Log(), 0) == []


def test_offsets_of_a_deleted_topic_are_found_by_its_topic_id_or_if_stored_without_an_id(
    log: Log,
) -> None:
    old, new = bytes([1]) * 16, bytes([2]) * 16
    log.commit(1, topic_id=old)
    log.commit(1, partition=1, topic_id=new)
    log.commit(1, group="nobody knew the id")
    log.commit(2, group="pending", topic_id=old, producer=7)

    def found(group: str, topics: dict[str, bytes]) -> list[bytes]:
        return log.table.of_deleted_topics(group, topics, among=log.table.partitions(group))

    assert found("g", {"t": old}) == [encode_offset_key("g", "t", 0)]
    for group in ("nobody knew the id", "pending"):
        assert found(group, {"t": old, "v": new}) == [encode_offset_key(group, "t", 0)]
    assert found("g", {"u": old}) == []
