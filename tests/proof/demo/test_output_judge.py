"""Test that the demo's judge finds each kind of planted violation, and nothing else."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.proof.demo.enrichment import (
    Flight,
    RunningSums,
    added,
    enrich,
    read_sum_record,
    sum_record,
    take_apart,
)
from oncelog.proof.demo.output_judge import judge_outputs

AIRLINES = {"UA": "United Air Lines Inc.", "AA": "American Airlines Inc."}
ROWS = 6


def flight(row: int, carrier: str = "UA", month: int = 1) -> bytes:
    fields = [
        *("2013", str(month), "1", "517", "515", "2", "830", "819", str(row), carrier, "1545"),
        *("N14228", "EWR", "IAH", "227", "1400", "5", "15", "2013-01-01T10:00:00Z"),
    ]
    return f"{row},{','.join(fields)}".encode()


@dataclass
class Reported:
    records: int
    state: str


class Run:
    """A clean run of one partition with two transactions of three inputs each."""

    def __init__(self) -> None:
        self.inputs = {0: {row: flight(row, "UA" if row % 2 else "AA") for row in range(ROWS)}}
        self.reported = {"w.1.1": Reported(3, "committed"), "w.1.2": Reported(3, "committed")}
        self.enriched = [self.made(row, f"w.1.{row // 3 + 1}") for row in range(ROWS)]
        self.sums: list[tuple[bytes, bytes]] = []
        running = RunningSums()
        for row, value in self.inputs[0].items():
            group, sums = running.add(Flight.of(value))
            self.sums.append(sum_record(group, row + 1, sums))

    def made(self, row: int, transaction: str) -> bytes:
        value = self.inputs[0][row]
        return enrich(0, row, transaction, value, added(Flight.of(value), AIRLINES))

    def judge(self):
        enriched = [(0, place, value) for place, value in enumerate(self.enriched)]
        sums = [(0, place, key, value) for place, (key, value) in enumerate(self.sums)]
        return judge_outputs(self.inputs, enriched, sums, self.reported, AIRLINES)

    @property
    def kinds(self) -> dict[str, int]:
        return {finding.name: finding.count for finding in self.judge().violations}


def test_demo_judge_of_a_clean_run_has_no_violation_and_correct_totals():
    verdict = Run().judge()
    assert not verdict.violations
    assert (verdict.read, verdict.distinct) == (6, 6)
    assert verdict.totals == {("AA", 1): (3, 4200, 6), ("UA", 1): (3, 4200, 9)}


@pytest.fixture
def run():
    return Run()


def test_demo_judge_reports_an_input_without_output_as_missing_and_torn(run):
    del run.enriched[4]
    assert run.kinds == {"missing": 1, "torn": 1}


def test_demo_judge_reports_a_committed_transaction_missing_as_a_whole(run):
    del run.enriched[3:]
    del run.sums[3:]
    assert run.kinds == {"missing": 3, "torn": 1, "wrong sums": 2}


def test_demo_judge_reports_an_input_in_two_transactions_as_doubled(run):
    run.reported["z.1.1"] = Reported(2, "committed")
    run.enriched += [run.made(4, "z.1.1"), run.made(5, "z.1.1")]
    assert run.kinds == {"doubled": 2}


def test_demo_judge_reports_outputs_in_another_order_than_their_inputs(run):
    run.enriched[1], run.enriched[2] = run.enriched[2], run.enriched[1]
    assert run.kinds == {"out of order": 1}


@pytest.mark.parametrize(
    "value",
    [
        b"nothing of ours",
        enrich(0, 77, "w.1.1", flight(77), b"United Air Lines Inc.\t370"),  # no such input
        enrich(1, 1, "w.1.1", flight(1), b"United Air Lines Inc.\t370"),  # of another partition
        enrich(0, 1, "w.1.1", flight(2), b"United Air Lines Inc.\t370"),  # another flight's value
        enrich(0, 1, "w.1.1", flight(1), b"United Air Lines Inc.\t371"),  # another speed
    ],
)
def test_demo_judge_reports_an_output_that_does_not_match_its_input(run, value):
    run.enriched.append(value)
    assert run.kinds == {"altered": 1}


@pytest.mark.parametrize("state", ["aborted", "began", "sending"])
def test_demo_judge_reports_a_visible_output_of_an_uncommitted_transaction(run, state):
    run.reported["w.1.2"] = Reported(3, state)
    assert run.kinds == {"uncommitted": 3}


def test_demo_judge_reports_a_visible_transaction_that_was_never_announced(run):
    del run.reported["w.1.2"]
    assert run.kinds == {"uncommitted": 3}


@pytest.mark.parametrize(("left", "kinds"), [(3, {}), (0, {"missing": 3}), (1, None)])
def test_demo_judge_reports_a_transaction_of_unknown_outcome_as_torn_only_if_partly_visible(
    run, left, kinds
):
    run.reported["w.1.2"] = Reported(3, "committing")
    del run.enriched[3 + left :]
    found = {kind: count for kind, count in run.kinds.items() if kind != "wrong sums"}
    assert found == ({"missing": 2, "torn": 1} if kinds is None else kinds)


def test_demo_judge_reports_a_running_sum_that_differs_or_decreases(run):
    key, value = run.sums[2]
    run.sums[2] = (key, value[:-1] + b"9")
    assert run.kinds == {"wrong sums": 1}
    run = Run()
    run.sums.insert(4, run.sums[1])  # a zombie's: of earlier inputs, after later ones
    assert run.kinds == {"wrong sums": 1}
    run = Run()
    run.sums.append((b"UA/1", b"junk"))
    assert run.kinds == {"wrong sums": 1}


def test_demo_judge_reports_a_missing_last_sum(run):
    del run.sums[-1]
    assert run.kinds == {"wrong sums": 1}


def test_demo_judge_examples_name_partition_and_offset(run):
    run.reported["w.1.2"] = Reported(3, "aborted")
    (finding,) = run.judge().violations
    assert finding.cases[0].sentence == "0@3: of w.1.2, which was aborted"


# -- the transformation


def test_enriched_flight_is_parsed_back():
    value = flight(3)
    made = take_apart(enrich(2, 7, "w.1.1", value, added(Flight.of(value), AIRLINES)))
    assert made == (2, 7, "w.1.1", value, b"United Air Lines Inc.\t370")
    with pytest.raises(ValueError):
        take_apart(b"x")


def test_flight_delay_that_is_unknown_counts_as_zero():
    late = flight(3).replace(b",3,UA", b",NA,UA").replace(b",227,", b",NA,")
    assert Flight.of(late) == ("UA", 1, 1400, 0, "NA")
    with pytest.raises(ValueError):
        Flight.of(b"3,a,b")


@given(
    st.lists(st.tuples(st.sampled_from(("UA", "AA")), st.integers(1, 12)), max_size=40),
    st.integers(0, 40),
)
def test_flight_sums_continue_from_the_committed_metadata(flights, cut):
    flights = sorted(flights, key=lambda f: f[1])
    values = [flight(row, *each) for row, each in enumerate(flights)]
    whole, parts = RunningSums(), RunningSums()
    for row, value in enumerate(values):
        if row == cut:
            parts = RunningSums.from_text(parts.to_text())
        assert whole.add(Flight.of(value)) == parts.add(Flight.of(value))
    assert RunningSums.from_text(None) == RunningSums.from_text("") == RunningSums()


def test_flight_sum_record_is_parsed_back():
    key, value = sum_record(("UA", 10), 5, (1, 2, -3))
    assert read_sum_record(key, value) == (("UA", 10), 5, (1, 2, -3))
