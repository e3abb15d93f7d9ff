"""Test how a run's outputs are judged against its inputs."""

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.deploy.cluster.failure import Failure
from oncelog.proof.prove.judgement import (
    Judgement,
    WrongFinal,
    judge_finals,
    judge_ids,
    verdict_of,
)
from oncelog.proof.prove.relation import LogRecord, matcher

KEY = matcher("key")


def inputs(*ids: str) -> list[tuple[str, LogRecord]]:
    return [(each, LogRecord("in", 0, n, each.encode())) for n, each in enumerate(ids)]


def outputs(*ids: str, topic: str = "out") -> list[LogRecord]:
    return [LogRecord(topic, 0, n, each.encode()) for n, each in enumerate(ids)]


@given(st.lists(st.integers(0, 3), max_size=12), st.integers(0, 3))
def test_judgement_counts_each_id_against_the_fanout(copies: list[int], fanout: int) -> None:
    ids = [f"id-{n}" for n in range(len(copies))]
    made = [each for each, count in zip(ids, copies, strict=True) for _ in range(count)]
    judged = judge_ids(inputs(*ids), outputs(*made), KEY, fanout=fanout)
    counts = Counter(made)
    assert judged.doubled == {i: counts[i] - fanout for i in ids if counts[i] > fanout}
    assert judged.lost == {i: fanout - counts[i] for i in ids if counts[i] < fanout}
    assert not judged.stray and not judged.pending


def test_judgement_of_an_input_beyond_the_committed_offset_is_pending_and_not_lost() -> None:
    judged = judge_ids(
        inputs("a", "b", "c"), outputs("a"), KEY, is_passed=lambda record: record.offset < 2
    )
    assert judged.lost == {"b": 1} and judged.pending == ["c"]


def test_judgement_of_an_output_without_an_input_is_stray() -> None:
    judged = judge_ids(inputs("a"), [*outputs("a", "x"), LogRecord("out", 1, 0, None)], KEY)
    assert [record.key for record in judged.stray] == [b"x", None] and judged.is_violated


def test_judgement_of_an_output_of_an_aborted_input_is_a_violation() -> None:
    judged = judge_ids(inputs("a"), outputs("a", "x", "never", "never"), KEY, aborted={"never"})
    assert judged.aborted == {"never": 2} and judged.is_violated
    assert [record.key for record in judged.stray] == [b"x"]


def test_outputs_are_judged_by_the_ids_and_topics_that_the_expect_function_returns() -> None:
    def expect(records: list[LogRecord]) -> list[str | tuple[str, str]]:
        assert [record.key for record in records] == [b"a", b"b"]
        return [("good", "a"), ("bad", "b"), "a+b"]

    def judged(*made: LogRecord) -> Judgement:
        return judge_ids(inputs("a", "b"), made, KEY, expect=expect)

    right = [*outputs("a", topic="good"), *outputs("b", topic="bad"), *outputs("a+b", topic="sum")]
    assert not judged(*right).is_violated
    assert judged(*right[1:]).lost == {"a": 1}
    wrong_topic = judged(*outputs("a", topic="bad"), *right[1:])
    assert wrong_topic.lost == {"a": 1} and wrong_topic.doubled == {"a": 1}


def test_missing_expected_output_is_pending_until_the_offsets_of_all_inputs_are_committed() -> None:
    def judged(passed: int) -> Judgement:
        return judge_ids(
            inputs("a", "b"), [], KEY, expect=lambda _: ["a+b"],
            is_passed=lambda record: record.offset < passed,
        )  # fmt: skip

    assert judged(1).pending == ["a+b"] and not judged(1).is_violated
    assert judged(2).lost == {"a+b": 1}


def test_judgement_of_final_values_uses_the_last_value_of_each_key() -> None:
    made = [
        LogRecord("sums", 0, 0, b"x", b"1"), LogRecord("sums", 0, 1, b"x", b'{"sum":  3}'),
        LogRecord("sums", 0, 2, b"y", b"5"), LogRecord("sums", 0, 3, b"z", None),
    ]  # fmt: skip

    def judged(final: dict[str, object]) -> Judgement:
        return judge_finals(inputs("a"), made, lambda records: final)

    assert not judged({"x": {"sum": 3}, "y": 5}).is_violated
    assert judged({"x": {"sum": 4}, "y": b"5"}).wrong == [
        WrongFinal("x", '{"sum": 4}', '{"sum":  3}')
    ]
    assert judged({"x": '{"sum": 3}'}).wrong == [WrongFinal("y", None, "5")]
    not_through = judge_finals(inputs("a"), made, lambda _: {}, lambda _: False)
    assert not not_through.is_violated and not_through.pending == ["a"]


@pytest.mark.parametrize(
    ("judgement", "met", "line", "code"),
    [
        (Judgement(inputs=3, outputs=3), 2,
         "EXACTLY ONCE: 3 inputs, 3 outputs; 2 faults met work in flight", 0),
        (Judgement(doubled={"a": 1, "b": 2}), 2, "AT LEAST ONCE: 2 doubled", 1),
        (Judgement(lost={"a": 1}), 2, "AT MOST ONCE: 1 lost", 1),
        (Judgement(lost={"a": 1}, doubled={"b": 1}), 2, "NEITHER: 1 lost, 1 doubled", 1),
        (Judgement(stray=outputs("x")), 2, "NEITHER: 1 of no input", 1),
        (Judgement(aborted={"x": 2}), 2, "NEITHER: 1 of aborted inputs", 1),
        (Judgement(wrong=[WrongFinal("x", "1", "2")]), 2, "NEITHER: 1 wrong at the end", 1),
        (Judgement(inputs=3), 0, "PROVES NOTHING: no fault met work in flight", 3),
        (Judgement(pending=["a"]), 2,
         "PROVES NOTHING: the application stalled, 1 input is not through: it sleeps", 3),
        (Judgement(pending=["a"], doubled={"b": 1}), 0,
         "AT LEAST ONCE: 1 doubled; the application stalled, 1 input is not through", 1),
    ],
)  # fmt: skip
def test_judgement_prints_its_verdict_in_one_line(
    judgement: Judgement, met: int, line: str, code: int
) -> None:
    verdict = verdict_of(judgement, met, stands_still="it sleeps")
    assert (verdict.line, verdict.exit_code) == (line, code)


@pytest.mark.parametrize(
    ("judgement", "line", "code"),
    [
        (Judgement(inputs=3, outputs=3), "PROVES NOTHING: app-2 never came to rest", 3),
        (Judgement(pending=["a"]), "PROVES NOTHING: app-2 never came to rest", 3),
        (Judgement(doubled={"a": 1}), "AT LEAST ONCE: 1 doubled; app-2 never came to rest", 1),
        (Judgement(lost={"a": 1}), "AT MOST ONCE: 1 lost; app-2 never came to rest", 1),
        (Judgement(aborted={"a": 1}), "NEITHER: 1 of aborted inputs; app-2 never came to rest", 1),
    ],
)
@pytest.mark.parametrize("met", [0, 3])
def test_verdict_of_a_run_with_a_never_idle_instance_is_a_violation_or_proves_nothing(
    judgement: Judgement, line: str, code: int, met: int
) -> None:
    verdict = verdict_of(judgement, met, restless="app-2 never came to rest")
    assert (verdict.line, verdict.exit_code) == (line, code)


def test_judgement_of_binary_final_values_distinguishes_the_values() -> None:
    """Keys and values are as Java's LongSerializer writes them."""

    def judged(*last: int) -> Judgement:
        made = [
            LogRecord("out", 0, n, key.to_bytes(8), last[n].to_bytes(8))
            for n, key in enumerate((128, 129))
        ]
        final = {key.to_bytes(8): value.to_bytes(8) for key, value in ((128, 200), (129, 201))}
        return judge_finals(inputs("a"), made, lambda records: final)

    assert not judged(200, 201).wrong
    assert len(judged(201, 200).wrong) == 2 and len(judged(200, 202).wrong) == 1


def test_judgement_of_binary_ids_distinguishes_the_ids() -> None:
    ids = [b"\xff", b"\xfe"]
    fed = [(f"i{n}", LogRecord("in", 0, n, each)) for n, each in enumerate(ids)]

    def judged(*keys: bytes) -> Judgement:
        made = [LogRecord("out", 0, n, key) for n, key in enumerate(keys)]
        return judge_ids(fed, made, KEY, expect=lambda records: [r.key for r in records if r.key])

    assert not judged(*ids).is_violated
    assert judged(ids[0], ids[0]).lost and judged(ids[0], ids[0]).doubled


def test_judgement_of_a_key_with_final_value_none_requires_no_value() -> None:
    def wrong(*values: bytes | None) -> list[WrongFinal]:
        made = [LogRecord("out", 0, n, b"k", value) for n, value in enumerate(values)]
        return list(judge_finals(inputs("a"), made, lambda _: {"k": None}).wrong)

    assert wrong(b"1", None) == wrong() == wrong(b"null") == []
    assert wrong(b"1") == [WrongFinal("k", None, "1")]


@pytest.mark.parametrize("made", [7, None, [("topic", "a", "b")]])
def test_judgement_by_an_expect_function_without_a_list_gives_no_verdict(made: Any) -> None:
    with pytest.raises(Failure, match=r"--expect .* ids") as failed:
        judge_ids(inputs("a"), outputs("a"), KEY, expect=lambda _: made)
    assert failed.value.exit_code == 2


@pytest.mark.parametrize("made", [7, None, [("k", 1)], {"k": Decimal(1)}])
def test_judgement_by_a_final_function_without_a_json_mapping_gives_no_verdict(made: Any) -> None:
    with pytest.raises(Failure, match=r"--final .* mapping") as failed:
        judge_finals(inputs("a"), [], lambda _: made)
    assert failed.value.exit_code == 2


def test_judgement_of_an_id_without_a_topic_accepts_any_topic() -> None:
    def judged(*made: LogRecord) -> Judgement:
        return judge_ids(
            inputs("a", "b"), made, KEY, expect=lambda _: [("good", "a"), "b", ("good", "c"), "c"]
        )

    good = outputs("a", "b", "c", topic="good")
    assert not judged(*good, *outputs("c", topic="good")).is_violated
    assert not judged(*good, *outputs("c", topic="other")).is_violated
    assert judged(*good).lost == {"c": 1}
    assert judged(*good, *outputs("c", "b", topic="other")).doubled == {"b": 1}
