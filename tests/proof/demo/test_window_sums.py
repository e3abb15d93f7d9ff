"""Test that the judge of the Spark job's window sums finds each planted error, and no other."""

import json

import pytest

from oncelog.proof.demo.output_judge import WRONG_SUMS, judge_outputs
from oncelog.proof.demo.window_sums import judge_window_sums, read_sum, sums_of_csv
from oncelog.proof.judge.analysis.findings import Findings


def flight(row: int, origin: str = "EWR", delay: str = "7") -> bytes:
    fields = [
        *("2013", "1", "1", "517", "515", "2", "830", "819", delay, "UA", "1545"),
        *("N14228", origin, "IAH", "227", "1400", "5", "15", "2013-01-01T10:00:00Z"),
    ]
    return f"{row},{','.join(fields)}".encode()


INPUTS = {0: {0: flight(0), 1: flight(1, "JFK")}, 1: {0: flight(2), 1: flight(3, delay="NA")}}


def record(partition, offset, flights, minutes, origin="EWR", arrivals=None, day="2013-01-01"):
    value = {"flights": flights, "arrivals": flights if arrivals is None else arrivals,
             "minutes": minutes, "miles": 1400 * flights}  # fmt: skip
    return (partition, offset, f"{origin}/UA/{day}".encode(), json.dumps(value).encode())


RIGHT = [record(0, 0, 1, 7), record(0, 2, 3, 14, arrivals=2), record(1, 0, 1, 7, "JFK")]


def wrong(records):
    found = Findings()
    count, last = judge_window_sums(INPUTS, records, found)
    assert count == len(records)
    return [case.sentence for f in found.of([WRONG_SUMS]) for case in f.cases], last


def test_window_sums_that_are_right_have_no_finding():
    examples, last = wrong(RIGHT)
    assert examples == []
    assert last == {("EWR", "UA", 1): (3, 2, 14, 4200), ("JFK", "UA", 1): (1, 1, 7, 1400)}


@pytest.mark.parametrize(
    ("records", "what"),
    [
        (RIGHT[:2], "JFK/UA/1 ends with None"),
        ([RIGHT[0], RIGHT[2]], "EWR/UA/1 ends with (1, 1, 7, 1400)"),
        ([*RIGHT, RIGHT[1]], "0@2: EWR/UA/1 (3, 2, 14, 4200) after (3, 2, 14, 4200)"),
        ([RIGHT[0], record(1, 5, 3, 14, arrivals=2), RIGHT[2]], "1@5: EWR/UA/1 is also in 0"),
        ([*RIGHT, record(0, 9, 1, 1, "LGA")], "LGA/UA/1 is there, and no flight of it"),
        ([*RIGHT, (0, 9, b"EWR/UA/2013-01-01", b"[]")], "0@9: b'[]'"),
        ([*RIGHT, (0, 9, b"junk", b"{}")], "0@9: b'{}'"),
        ([*RIGHT, record(0, 9, 1, 1, day="2013-01-02")], "0@9: "),
    ],
)
def test_window_sum_with_each_kind_of_error_is_reported(records, what):
    examples, _ = wrong(records)
    assert len(examples) == 1
    assert examples[0].startswith(what)


def test_window_outputs_without_reported_transactions_are_checked_against_the_inputs():
    verdict = judge_outputs(INPUTS, [], RIGHT, None, {}, judge_sums=judge_window_sums)
    assert {f.name: f.count for f in verdict.violations} == {"missing": 4}


def test_window_sums_of_the_csv_file_add_up_to_all_flights():
    sums = sums_of_csv()
    assert len(sums) == 399
    assert sum(group[0] for group in sums.values()) == 336_776
    assert sum(group[1] for group in sums.values()) == 336_776 - 9_430
    assert read_sum(b"EWR/UA/2013-10-01", RIGHT[0][3])[0] == ("EWR", "UA", 10)
