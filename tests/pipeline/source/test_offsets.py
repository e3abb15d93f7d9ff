"""Test the offsets that a micro-batch reads, and the errors about lost offsets."""

import itertools
import json
from collections.abc import Mapping
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.pipeline.source.offsets import (
    DataLost,
    Known,
    LogBounds,
    OffsetRange,
    Position,
    check_identity,
    latest,
    losses,
    not_before,
    ranges_between,
    resolve,
    share_out,
    split,
)
from oncelog.pipeline.source.options import EARLIEST, LATEST, AtTime, OptionError, Place, Where

IDS = {"t": "aa", "u": "bb"}
KEYS = st.sampled_from([("t", 0), ("t", 1), ("t", 11), ("u", 0)])


def refuse(loss: str) -> NoReturn:
    raise DataLost(loss)


def known_of(bounds: Mapping[tuple[str, int], tuple[int, int]], ids: Mapping[str, str] = IDS):
    return Known({key: LogBounds(*each) for key, each in sorted(bounds.items())}, ids)


def position(offsets: Mapping[tuple[str, int], int], **more: object) -> Position:
    topics = {topic for topic, _ in offsets}
    return Position(dict(offsets), {t: IDS[t] for t in topics}, **more)  # type: ignore[arg-type]


# --- contents of the checkpoint


@given(st.dictionaries(KEYS, st.integers(0, 2**62)), st.booleans(), st.booleans())
def test_stream_position_is_parsed_back_from_its_text(
    offsets: dict[tuple[str, int], int], is_initial: bool, has_since: bool
) -> None:
    since = {key: offset // 2 for key, offset in offsets.items()} if has_since and offsets else None
    before = position(offsets, is_initial=is_initial, since=since)
    assert Position.from_json(json.loads(json.dumps(before.to_json()))) == before


def test_stream_position_text_has_topic_ids_and_is_the_same_in_any_partition_order() -> None:
    one = position({("t", 1): 5, ("t", 0): 3, ("t", 10): 2}).to_json()
    other = position({("t", 10): 2, ("t", 0): 3, ("t", 1): 5}).to_json()
    assert json.dumps(one) == json.dumps(other)
    assert one == {
        "version": 1,
        "topics": {"t": {"id": "aa", "offsets": {"0": 3, "1": 5, "10": 2}}},
    }


@pytest.mark.parametrize("value", [{}, {"t": {"0": 5}}, {"version": 2, "topics": {}}])
def test_stream_checkpoint_of_another_source_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="use another checkpointLocation"):
        Position.from_json(value)


# --- where to begin


def begin(place: Place, by_time: dict[tuple[str, int], int] | None = None, strict: bool = True):
    known = known_of({("t", 0): (10, 50), ("t", 1): (0, 7)})
    return resolve(
        place, known, by_time or {}, name="X", is_strict_about_times=strict, report=refuse
    ).offsets


def test_start_offsets_are_resolved_from_words_offsets_and_times() -> None:
    assert begin(Where.EARLIEST) == {("t", 0): 10, ("t", 1): 0}
    assert begin(Where.LATEST) == {("t", 0): 50, ("t", 1): 7}
    assert begin({("t", 0): 20, ("t", 1): EARLIEST}) == {("t", 0): 20, ("t", 1): 0}
    assert begin({("t", 0): LATEST, ("t", 1): 7}) == {("t", 0): 50, ("t", 1): 7}
    at = AtTime(1000)
    assert begin(at, {("t", 0): 30, ("t", 1): 3}) == {("t", 0): 30, ("t", 1): 3}
    assert begin(at, {("t", 0): 60}, strict=False) == {("t", 0): 50, ("t", 1): 7}


@pytest.mark.parametrize(
    ("place", "error", "said"),
    [
        ({("t", 0): 20}, OptionError, r"X says nothing about t/1; -2 there means earliest"),
        ({("t", 0): 20, ("t", 1): 1, ("u", 0): 1}, OptionError, r"speaks of u/0"),
        ({("t", 0): 51, ("t", 1): 1}, OptionError, r"no offset 51 yet, it ends at 50"),
        ({("t", 0): 9, ("t", 1): 1}, DataLost, r"t/0 begins at 10, not at 9"),
        (AtTime(5), OptionError, r"no record at or after that time"),
    ],
)
def test_start_offset_outside_the_log_is_refused(place: Place, error: type, said: str) -> None:
    with pytest.raises(error, match=said):
        begin(place, {("t", 0): 30})


def test_start_offset_removed_by_retention_is_reported_and_moved_to_the_log_start() -> None:
    losses: list[str] = []
    known = known_of({("t", 0): (10, 50)})
    found = resolve(
        {("t", 0): 3}, known, {}, name="X", is_strict_about_times=True, report=losses.append
    )
    assert (found.offsets, len(losses)) == ({("t", 0): 10}, 1)


# --- the end of a micro-batch


def test_stream_end_is_the_last_stable_offset_and_new_partitions_start_at_zero() -> None:
    start = position({("t", 0): 20})
    end = latest(start, known_of({("t", 0): (0, 50), ("t", 1): (0, 4)}))
    assert end.offsets == {("t", 0): 50, ("t", 1): 4}
    found = ranges_between(start, end, known_of({("t", 0): (0, 50), ("t", 1): (0, 4)}), refuse)
    assert found == [OffsetRange("t", 0, 20, 50, "aa"), OffsetRange("t", 1, 0, 4, "aa")]


def test_stream_end_without_new_records_is_the_start_itself() -> None:
    start = position({("t", 0): 20}, is_initial=True)
    assert latest(start, known_of({("t", 0): (0, 20)})) is start
    assert latest(start, known_of({("t", 0): (0, 15)})) is start, "a new leader may know less"


def test_stream_end_never_moves_back() -> None:
    start = position({("t", 0): 20, ("t", 1): 5})
    known = known_of({("t", 0): (0, 12), ("t", 1): (0, 9)})
    assert losses(start, known) == {
        ("t", 0): "t/0 ends at 12, and offsets up to 19 were read before: its log was cut"
    }
    assert latest(start, known).offsets == {("t", 0): 20, ("t", 1): 9}


def test_available_now_run_ends_at_the_first_log_end_without_new_partitions() -> None:
    start = position({("t", 0): 20})
    until = position({("t", 0): 30})
    known = known_of({("t", 0): (0, 50), ("t", 1): (0, 4)})
    assert latest(start, known, until=until).offsets == {("t", 0): 30}
    done = position({("t", 0): 30})
    assert latest(done, known, until=until) is done
    beyond = position({("t", 0): 40})  # a batch that was planned before the restart
    assert latest(beyond, known, until=until) is beyond


def test_available_now_run_with_outdated_ends_reaches_the_offsets_already_read() -> None:
    """A broker with old metadata, or a new leader, reported end offsets that were too low at the
    start.
    """
    begin = position({("t", 0): 20, ("t", 1): 5})
    known = known_of({("t", 0): (0, 40), ("t", 1): (0, 9)})
    late = not_before(position({("t", 0): 10}), begin, known)
    assert latest(begin, known, until=late).offsets == {("t", 0): 40, ("t", 1): 9}
    until = position({("t", 0): 30, ("t", 1): 5})
    assert not_before(until, begin, known) is until


def test_first_stream_batch_records_its_start_offset() -> None:
    initial = position({("t", 0): 20}, is_initial=True)
    end = latest(initial, known_of({("t", 0): (0, 50), ("t", 1): (0, 4)}))
    assert end.since == {("t", 0): 20, ("t", 1): 0}
    # After a restart Spark asks again where a query begins: latest has moved.
    again = position({("t", 0): 50, ("t", 1): 4}, is_initial=True)
    stored = Position.from_json(json.loads(json.dumps(end.to_json())))
    assert again.before(stored).offsets == {("t", 0): 20, ("t", 1): 0}
    later = latest(stored, known_of({("t", 0): (0, 60), ("t", 1): (0, 4)}))
    assert later.since is None
    assert stored.before(later) is stored


BACKLOGS = st.dictionaries(KEYS, st.integers(0, 10**9), min_size=1)


@given(BACKLOGS, st.integers(1, 10**9))
def test_stream_limit_is_divided_over_the_partitions_to_the_last_offset(
    backlog: dict[tuple[str, int], int], count_max: int
) -> None:
    shares = share_out(backlog, count_max)
    waiting = sum(count > 0 for count in backlog.values())
    total = sum(backlog.values())
    assert sum(shares.values()) == min(max(count_max, waiting), total)
    assert all(min(1, count) <= shares[key] <= count for key, count in backlog.items())
    if count_max >= total or count_max <= waiting:
        return
    part = (count_max - waiting) / (total - waiting)
    assert all(
        abs(shares[key] - 1 - (count - 1) * part) <= 1 for key, count in backlog.items() if count
    )


def test_stream_limit_leaves_offsets_to_a_quiet_partition_beside_a_busy_one() -> None:
    """The watermark of the query waits for the quiet partition."""
    at, busy_end = position({("t", 0): 0, ("t", 1): 0}), 10_000_000
    for _ in range(3):
        known = known_of({("t", 0): (0, busy_end), ("t", 1): (0, 1)})
        end = latest(at, known, offsets_max=1_000)
        assert sum(end.offsets.values()) - sum(at.offsets.values()) == 1_000
        at, busy_end = end, busy_end + 1_000
    assert at.offsets[("t", 1)] == 1
    quiet = {("t", number): (0, 5) for number in range(1, 9)}
    known = known_of({("t", 0): (0, busy_end), **quiet})
    end = latest(at, known, offsets_max=2)
    assert all(end.offsets[key] >= 1 for key in quiet), "also if more than the limit have one"


@pytest.mark.parametrize("begin", [{("t", 0): 100}, {}], ids=["overtaken", "a new partition"])
def test_stream_limit_query_passes_a_range_removed_by_retention(
    begin: dict[tuple[str, int], int],
) -> None:
    """The log keeps 100 offsets. 20 arrive between two triggers, and each trigger may read 30."""
    at, log_start, read, losses = position(begin), 10_000_000, 0, list[str]()
    for _ in range(4):
        known = known_of({("t", 0): (log_start, log_start + 100), ("t", 1): (0, 0)})
        end = latest(at, known, offsets_max=30)
        read += sum(each.size for each in ranges_between(at, end, known, losses.append))
        at, log_start = end, log_start + 20
    assert read == 4 * 30
    assert len(losses) == 1, "the query has caught up"


def test_available_now_run_may_end_inside_a_range_removed_by_retention() -> None:
    start, until = position({("t", 0): 10}), position({("t", 0): 40})
    known = known_of({("t", 0): (60, 90)})
    end = latest(start, known, offsets_max=5, until=until)
    assert end.offsets == {("t", 0): 40}
    assert latest(end, known, offsets_max=5, until=until) is end


@given(BACKLOGS, st.integers(1, 50))
def test_stream_limit_batches_read_every_offset_once_to_the_end(
    ends: dict[tuple[str, int], int], batches: int
) -> None:
    known = known_of({key: (0, end) for key, end in ends.items()})
    limit = max(1, sum(ends.values()) // batches)
    at = Position({}, {}, is_initial=True)
    seen: dict[tuple[str, int], int] = {}
    for _ in range(batches * 2 + 2):
        end = latest(at, known, offsets_max=limit)
        if end is at or end.offsets == at.offsets:
            break
        found = ranges_between(at.before(end), end, known, refuse)
        assert sum(each.size for each in found) <= max(limit, len(found))
        for each in found:
            assert seen.get((each.topic, each.partition), 0) == each.start
            seen[(each.topic, each.partition)] = each.end
        at = end
    assert seen == {key: end for key, end in ends.items() if end}


# --- errors that must be noticed


def test_recreated_topic_stops_the_query_even_with_fail_on_data_loss_off() -> None:
    start = position({("t", 0): 20})
    with pytest.raises(DataLost, match=r"topic t was deleted and made anew \(its id was aa, now"):
        check_identity(start, known_of({("t", 0): (0, 50)}, {"t": "cc"}))


def test_cluster_without_topic_ids_is_read_without_the_identity_check() -> None:
    check_identity(position({("t", 0): 20}), known_of({("t", 0): (0, 50)}, {"t": ""}))
    check_identity(Position({("t", 0): 20}, {"t": ""}), known_of({("t", 0): (0, 50)}))


def test_deleted_partition_is_reported_and_keeps_its_offset() -> None:
    start = position({("t", 0): 2, ("u", 0): 7})
    stale = known_of({("t", 0): (0, 5)}, {"t": "aa"})
    assert losses(start, stale) == {("u", 0): "u/0 was being read and is no longer there"}
    end = latest(start, stale)
    assert end == position({("t", 0): 5, ("u", 0): 7})
    assert ranges_between(start, end, stale, refuse) == [OffsetRange("t", 0, 2, 5, "aa")]
    assert latest(end, known_of({}, {})) is end
    both = known_of({("t", 0): (0, 5), ("u", 0): (0, 9)})
    found = ranges_between(end, latest(end, both, offsets_max=100), both, refuse)
    assert found == [OffsetRange("u", 0, 7, 9, "bb")]
    with pytest.raises(DataLost, match="topic u was deleted and made anew"):
        check_identity(end, known_of({("u", 0): (0, 9)}, {"u": "cc"}))


def test_range_removed_by_retention_is_reported_and_the_rest_may_be_read() -> None:
    start, end = position({("t", 0): 5}), position({("t", 0): 30})
    known = known_of({("t", 0): (12, 40)})
    with pytest.raises(DataLost, match=r"t/0: offsets 5 to 11 are gone, the log begins at 12;"):
        ranges_between(start, end, known, refuse)
    losses: list[str] = []
    assert ranges_between(start, end, known, losses.append) == [OffsetRange("t", 0, 12, 30, "aa")]
    assert ranges_between(start, end, known_of({("t", 0): (35, 40)}), losses.append) == []
    assert ranges_between(start, end, known_of({}), losses.append) == []
    assert [loss[:24] for loss in losses] == [
        "t/0: offsets 5 to 11 are",
        "t/0: offsets 5 to 29 are",
        "t/0 is no longer there; ",
    ]


# --- tasks


@given(
    st.lists(st.integers(1, 10**6), min_size=1, max_size=6),
    st.one_of(st.none(), st.integers(1, 40)),
    st.one_of(st.none(), st.integers(1, 10**5)),
)
def test_offset_ranges_split_into_tasks_cover_the_same_offsets(
    sizes: list[int], partitions_min: int | None, records_max: int | None
) -> None:
    if records_max is not None:
        sizes = [size % (records_max * 20) + 1 for size in sizes]
    whole = [OffsetRange("t", i, i, i + size, "aa") for i, size in enumerate(sizes)]
    cut = split(whole, partitions_min=partitions_min, records_max=records_max)
    for each in whole:
        pieces = [p for p in cut if p.partition == each.partition]
        assert pieces[0].start == each.start and pieces[-1].end == each.end
        assert all(a.end == b.start for a, b in itertools.pairwise(pieces))
    assert all(piece.size >= 1 for piece in cut)
    if partitions_min is not None:
        assert len(cut) >= min(partitions_min, sum(sizes), len(whole) * min(sizes))
    if records_max is not None:
        assert all(piece.size <= records_max for piece in cut)
