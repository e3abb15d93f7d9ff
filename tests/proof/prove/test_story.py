"""Test the story of one record, the shortest list of events that explains its anomaly."""

from oncelog.proof.prove.facts import (
    Committed,
    Fetched,
    InputAborted,
    Struck,
    TransactionEnded,
    Wrote,
)
from oncelog.proof.prove.judgement import Judgement
from oncelog.proof.prove.relation import LogRecord, matcher
from oncelog.proof.prove.story import candidates, shortest, words

INPUTS = [("a", LogRecord("in", 0, 5, b"a")), ("b", LogRecord("in", 0, 6, b"b"))]
FACTS = (
    Fetched(1.0, "one", "in", 0, 0, 10),
    Wrote(1.2, "one", "", "out", 0, 100, 110, 7, 0, -1),
    Fetched(2.0, "two", "in", 0, 5, 9),
    Wrote(2.2, "two", "t2", "out", 0, 200, 210, 8, 3, -1),
    Committed(2.3, "two", "g", "t2", "in", 0, 9),
    TransactionEnded(2.4, "two", "t2", 8, 3, True, is_lost=True),
)
STRUCK = (
    Struck(0.1, "one", "cut", "too early"),
    Struck(1.5, "one", "kill@before-commit", "kill -9 of one", 1),
    Struck(1.6, "three", "kill", "of somebody else", 1),
    Struck(1.7, "one", "kill", "never happened", is_made=False),
    Struck(2.6, "two", "kill", "first behind it", 1),
    Struck(2.7, "two", "kill", "second behind it", 1),
)


def test_story_of_a_duplicated_record_has_exactly_the_requests_involved() -> None:
    outputs = [LogRecord("out", 0, 105, b"a"), LogRecord("out", 0, 205, b"a")]
    of, story = shortest(
        Judgement(doubled={"a": 1}), INPUTS, outputs, matcher("key"), FACTS, STRUCK,
        [(1.8, "one", 3), (1.9, "three", 3)],
    )  # fmt: skip
    assert of == "a, doubled"
    assert [line.strip() for line in words(story, 1.0)] == [
        "input a stands at in/0@5",
        "0.000 s  one          fetched it (in/0@5)",
        "0.200 s  one          wrote its output out/0@105 with an idempotent producer",
        "0.500 s  one          FAULT kill -9 of one",
        "0.800 s  one          ended by itself with code 3, and was started again",
        "1.000 s  two          fetched it (in/0@5)",
        "1.200 s  two          wrote its output out/0@205 in transaction t2 (producer 8, epoch 3)",
        "1.300 s  two          committed offset 9 of in/0 for group g in transaction t2",
        "1.400 s  two          committed that transaction; the answer was lost",
    ]


def test_story_includes_the_broker_paused_at_the_request_of_another_instance() -> None:
    outputs = [LogRecord("out", 0, 105, b"a"), LogRecord("out", 0, 205, b"a")]
    stalled = Struck(0.5, "", "stall@leader", "broker 2 (leader) stands still", 1, until_s=13.0)
    early = Struck(0.2, "", "broker@group", "kill -9 of broker 1", 1, until_s=0.9)
    _, story = shortest(
        Judgement(doubled={"a": 1}), INPUTS, outputs, matcher("key"), FACTS, [stalled, early]
    )
    faults = [line for line in story if line[2].startswith("FAULT")]
    assert faults == [(0.5, "", "FAULT broker 2 (leader) stands still")]


def test_story_of_a_run_with_losses_is_about_a_lost_record() -> None:
    outputs = [LogRecord("out", 0, 105, b"a"), LogRecord("out", 0, 205, b"a")]
    judgement = Judgement(doubled={"a": 1}, lost={"b": 1})
    of, _ = shortest(judgement, INPUTS, outputs, matcher("key"), FACTS, STRUCK)
    assert of == "b, lost"  # at least once allows the doubled one


def test_story_of_a_lost_record_ends_with_the_next_fault() -> None:
    _, story = shortest(Judgement(lost={"a": 1}), INPUTS, [], matcher("key"), FACTS, STRUCK)
    told = [what for _, _, what in story]
    assert "no output of a was committed" in told and told[-1] == "FAULT first behind it"


def test_story_of_an_aborted_input_names_its_writer_and_reader() -> None:
    facts = [*FACTS[:2], InputAborted(0.9, "x", "in", 0, 7, "feeder")]
    of, story = shortest(
        Judgement(doubled={"a": 1}, aborted={"x": 1}), INPUTS, [LogRecord("out", 0, 105, b"x")],
        matcher("key"), facts, STRUCK,
    )  # fmt: skip
    assert of == "x, whose transaction was aborted"
    assert [line.strip() for line in words(story, 0.9)] == [
        "0.000 s  the feeder   aborted transaction feeder, in which x stands (in/0@7)",
        "0.100 s  one          fetched it (in/0@7)",
        "0.300 s  one          wrote its output out/0@105 with an idempotent producer",
    ]


def test_story_is_about_the_record_with_the_fewest_copies() -> None:
    assert candidates(Judgement(doubled={"a": 2, "b": 1})) == [("b", "doubled")]
    assert candidates(Judgement(lost={"c": 1})) == [("c", "lost")]
    assert shortest(Judgement(), INPUTS, [], matcher("key"), FACTS, STRUCK) == ("", [])
