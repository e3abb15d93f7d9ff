"""Test the comparison of a topic with its expected records, for each kind of violation."""

from hypothesis import given
from hypothesis import strategies as st

from oncelog.proof.judge.contents import (
    NO_OFFSET,
    Acknowledgement,
    EndOfPartition,
    compare_sums,
    judge_end,
    judge_stream,
)

SENT = [b"%d,row" % row for row in range(6)]


def row_of(value: bytes) -> int:
    number = value.split(b",")[0]
    return int(number) if number.isdigit() else -1


def written(*rows: int, partition: int = 0, start: int = 0):
    return [(partition, start + i, SENT[row]) for i, row in enumerate(rows)]


def promised(read) -> dict[int, Acknowledgement]:
    return {row_of(value): Acknowledgement(p, o) for p, o, value in reversed(read)}


def kinds(verdict) -> dict[str, int]:
    return {finding.name: finding.count for finding in verdict.violations}


def test_contents_check_of_a_clean_run_has_no_violation():
    read = [*written(0, 2, 4), *written(1, 3, 5, partition=1)]
    verdict = judge_stream(SENT, promised(read), read, row_of)
    assert not verdict.violations
    assert (verdict.read, verdict.distinct) == (6, 6)


def test_contents_check_reports_an_acknowledged_missing_record_as_lost():
    read = written(0, 1, 2, 3, 4, 5)
    verdict = judge_stream(SENT, promised(read), read[:-1], row_of)
    assert kinds(verdict) == {"lost": 1}
    assert "row 5" in verdict.violations[0].cases[0].sentence


def test_contents_check_reports_an_unacknowledged_missing_record_as_undelivered():
    read = written(0, 1, 2, 3, 4, 5)
    acknowledged = promised(read)
    del acknowledged[5]
    assert not judge_stream(SENT, acknowledged, read, row_of).violations
    assert kinds(judge_stream(SENT, acknowledged, read[:-1], row_of)) == {"undelivered": 1}


def test_contents_check_counts_every_copy_beyond_the_first():
    read = [*written(0, 1, 2, 3, 4, 5), *written(3, 3, start=6)]
    assert kinds(judge_stream(SENT, promised(written(0, 1, 2, 3, 4, 5)), read, row_of)) == {
        "doubled": 2
    }


def test_contents_check_counts_a_copy_in_another_partition():
    read = [*written(0, 1, 2, 3, 4, 5), *written(2, partition=1)]
    acknowledged = promised(written(0, 1, 2, 3, 4, 5))
    assert kinds(judge_stream(SENT, acknowledged, read, row_of)) == {"doubled": 1}


def test_contents_check_judges_order_within_a_partition():
    read = [*written(0, 2, 1), *written(5, 3, 4, partition=1)]
    assert kinds(judge_stream(SENT, promised(read), read, row_of)) == {"out of order": 3}


def test_contents_check_reports_a_record_at_another_offset_than_acknowledged():
    read = written(0, 1, 2, 3, 4, 5)
    acknowledged = promised(read)
    acknowledged[4] = Acknowledgement(0, 77)
    assert kinds(judge_stream(SENT, acknowledged, read, row_of)) == {"displaced": 1}


def test_contents_check_without_acknowledged_offsets_reports_no_displacement():
    read = written(0, 1, 2, 3, 4, 5)
    acknowledged = {row: Acknowledgement(0, NO_OFFSET) for row in range(6)}
    assert not judge_stream(SENT, acknowledged, read, row_of).violations


def test_contents_check_reports_a_copy_at_the_acknowledged_offset_only_as_doubled():
    read = [*written(0, 1, 2, 3, 4, 5), *written(2, start=6)]
    acknowledged = promised(written(0, 1, 2, 3, 4, 5))
    acknowledged[2] = Acknowledgement(0, 6)
    assert kinds(judge_stream(SENT, acknowledged, read, row_of)) == {"doubled": 1}


def test_contents_check_reports_a_record_never_sent_as_altered():
    read = [*written(0, 1, 2, 3, 4, 5), (0, 6, b"3,other"), (0, 7, b"junk"), (0, 8, b"99,row")]
    acknowledged = promised(read[:6])
    assert kinds(judge_stream(SENT, acknowledged, read, row_of)) == {"altered": 3}


def test_contents_check_names_sums_that_differ():
    (finding,) = compare_sums({("UA", 1): (2, 5)}, {("UA", 1): (3, 5), ("AA", 2): (1, 1)})
    assert finding.count == 2
    assert finding.cases[0].sentence == "AA/2: None became (1, 1)"
    assert compare_sums({("UA", 1): (2, 5)}, {("UA", 1): (2, 5)}) == ()


def test_contents_check_at_the_end_requires_decided_and_readable_records():
    clean = EndOfPartition(name="t/0", last_stable_offset=5, high_watermark=5)
    stuck = EndOfPartition(name="t/1", last_stable_offset=5, high_watermark=9)
    assert judge_end([clean], {}, {0: 5}, {0: 5}) == ()
    assert judge_end([clean], {}, {}, {0: 0}) == ()  # an empty partition has nothing to commit
    found = judge_end([clean, stuck], {"w": "PrepareCommit"}, {0: 4}, {0: 5, 1: 3})
    assert {f.name: f.count for f in found} == {"stuck": 1, "left open": 1, "offsets astray": 2}


@given(st.lists(st.integers(0, 2), min_size=6, max_size=6), st.data())
def test_contents_check_counts_equal_the_counts_of_a_naive_loop(copies, data):
    rows = [row for row, times in enumerate(copies) for _ in range(times)]
    order = data.draw(st.permutations(rows))
    acknowledged = {row: Acknowledgement(0, NO_OFFSET) for row in range(6)}
    verdict = judge_stream(SENT, acknowledged, written(*order), row_of)
    assert kinds(verdict).get("lost", 0) == copies.count(0)
    assert kinds(verdict).get("doubled", 0) == copies.count(2)
    assert verdict.distinct == 6 - copies.count(0)
