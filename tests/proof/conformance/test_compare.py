"""Test the comparison of two surveys and its tables."""

from collections.abc import Mapping

import pytest

from oncelog.proof.conformance.compare import ConformanceRow, Reason, compared, counts, reasons_for
from oncelog.proof.conformance.outcomes import (
    CLOSED,
    SERVED,
    SILENT,
    AskOutcome,
    agree,
    not_asked,
    outcome_of,
)
from oncelog.proof.conformance.report import reason_lines, unexplained_rows
from oncelog.proof.conformance.survey import (
    Survey,
    SurveyedApi,
    SurveyedFeature,
    came_in_words,
    runs_of,
    survey_fields,
    survey_of,
)
from oncelog.wire.messages import control

REFUSED, OTHERWISE = (
    AskOutcome("refused", "INVALID_REQUEST"),
    AskOutcome("refused", "INVALID_GROUP_ID"),
)
ELSEWHERE = AskOutcome("elsewhere", "NOT_COORDINATOR")
END_TXN, UNKNOWN = 26, 999


def surveyed(
    apis: Mapping[int, tuple[int, int]] | None = None,
    came: AskOutcome = SERVED,
    features: Mapping[str, SurveyedFeature] | None = None,
    **configs: set[str],
) -> Survey:
    found = {
        key: SurveyedApi(low, high, dict.fromkeys(range(low, high + 1), came))
        for key, (low, high) in (apis or {}).items()
    }
    kept = {kind: frozenset(names) for kind, names in configs.items()}
    return Survey("here:1", "id", found, features or {}, kept)


def verdicts(ours: Survey, theirs: Survey, *reasons: Reason) -> list[tuple[str, str, str, str]]:
    rows = compared(ours, theirs, reasons)
    return [(row.verdict, row.name, row.theirs, row.ours) for row in rows]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ({26: (0, 5)}, {26: (0, 5)}, ("equal", "EndTxn", "0-5", "0-5")),
        ({26: (0, 6)}, {26: (1, 5)}, ("equal", "EndTxn", "1-5", "0-6")),
        ({26: (0, 4)}, {26: (0, 5)}, ("without", "EndTxn", "0-5", "0-4")),
        ({26: (1, 5)}, {26: (0, 5)}, ("without", "EndTxn", "0-5", "1-5")),
        ({}, {26: (0, 0)}, ("without", "EndTxn", "0", "-")),
        ({}, {UNKNOWN: (3, 4)}, ("without", "API 999", "3-4", "-")),
    ],
)
def test_conformance_compares_apis_by_their_versions(ours, theirs, expected) -> None:
    assert verdicts(surveyed(ours), surveyed(theirs))[0] == expected


def test_conformance_ignores_apis_keys_and_features_that_only_oncelog_has() -> None:
    ours = surveyed({26: (0, 5)}, broker={"a"}, features={"f": SurveyedFeature(0, 1, 1)})
    assert compared(ours, surveyed(), ()) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "alike"),
    [
        (SERVED, SERVED, True),
        (REFUSED, REFUSED, True),
        (REFUSED, SERVED, False),
        (REFUSED, OTHERWISE, False),
        (CLOSED, SERVED, False),
        (SERVED, SILENT, False),
        (ELSEWHERE, SERVED, True),
        (REFUSED, ELSEWHERE, True),
        (CLOSED, ELSEWHERE, False),
    ],
)
def test_conformance_answers_agree_if_equal_or_if_one_refers_to_another_broker(
    ours: AskOutcome, theirs: AskOutcome, alike: bool
) -> None:
    assert agree(ours, theirs) == alike
    rows = compared(surveyed({26: (0, 1)}, ours), surveyed({26: (0, 1)}, theirs), ())
    (row,) = [row for row in rows if row.kind == "answer"]
    assert (row.name, row.is_equal) == ("EndTxn 0-1", alike)
    if not alike:
        assert (row.theirs, row.ours) == (str(theirs), str(ours))


@pytest.mark.parametrize("other", [SERVED, REFUSED, SILENT, not_asked("why")])
def test_conformance_version_without_a_request_is_neither_equal_nor_different(
    other: AskOutcome,
) -> None:
    for ours, theirs in ((not_asked("why"), other), (other, not_asked("why"))):
        rows = compared(
            surveyed({26: (0, 1)}, ours),
            surveyed({26: (0, 1)}, theirs),
            (Reason("answer", "*", "x"),),
        )
        assert [(row.verdict, row.name, row.is_equal) for row in rows[1:]] == [
            ("not asked", "EndTxn 0-1", False)
        ]
        assert counts(rows) == {"equal": 1, "reason": 0, "without": 0, "not asked": 1}
        assert list(reason_lines(rows)) == ["not asked: why", "  answers  EndTxn 0-1"]
        assert unexplained_rows(rows) == []


def test_conformance_compares_features_by_range_and_level() -> None:
    theirs = surveyed(features={n: SurveyedFeature(0, 2, 2) for n in ("same", "lower", "none")})
    ours = surveyed(
        features={"same": SurveyedFeature(0, 2, 2), "lower": SurveyedFeature(0, 2, None)}
    )
    assert verdicts(ours, theirs) == [
        ("without", "lower", "0-2, level 2", "0-2"),
        ("without", "none", "0-2, level 2", "-"),
        ("equal", "same", "0-2, level 2", "0-2, level 2"),
    ]


def test_conformance_difference_gets_the_first_matching_reason() -> None:
    reasons = (
        Reason("api", "broker *", "of another kind"),
        Reason("config", "broker ssl.*", "no TLS"),
        Reason("config", "broker *", "the rest"),
    )
    theirs = surveyed(broker={"ssl.x", "y", "z"}, topic={"y"})
    rows = compared(surveyed(broker={"z"}), theirs, reasons)
    assert [(row.name, row.verdict, row.reason) for row in rows] == [
        ("broker ssl.x", "reason", "no TLS"),
        ("broker y", "reason", "the rest"),
        ("broker z", "equal", ""),
        ("topic y", "without", ""),
    ]
    assert counts(rows) == {"equal": 1, "reason": 2, "without": 1, "not asked": 0}
    assert list(reason_lines(rows)) == [
        "no TLS", "  broker keys  ssl.x", "the rest", "  broker keys  y",
    ]  # fmt: skip
    assert unexplained_rows(rows) == [{"what": "config topic y", "theirs": "there", "ours": "-"}]


def test_conformance_reasons_apply_only_to_our_clusters() -> None:
    assert reasons_for(surveyed(broker={"node.id", "oncelog.voters"}))
    assert reasons_for(surveyed(broker={"node.id"})) == reasons_for(surveyed()) == ()


def test_conformance_answer_outcome_follows_from_its_error_code() -> None:
    def outcome(**values: object) -> AskOutcome:
        body = control.encode_response(END_TXN, 3, values)
        return outcome_of(control.decode_response(END_TXN, 3, body))

    assert outcome() == SERVED
    assert outcome(error_code=42) == REFUSED
    assert outcome(error_code=16) == ELSEWHERE
    assert outcome(error_code=9999) == AskOutcome("refused", "error 9999")


def test_conformance_versions_with_equal_results_are_printed_together() -> None:
    assert came_in_words({}) == ""
    assert came_in_words({0: SERVED, 1: SERVED}) == "served"
    different = {0: SERVED, 1: REFUSED, 2: REFUSED, 3: CLOSED}
    assert came_in_words(different) == "0 served; 1-2 refused INVALID_REQUEST; 3 closed"
    assert runs_of([5, 0, 2, 1]) == "0-2, 5"


def test_conformance_survey_is_read_back_from_json() -> None:
    found = surveyed({26: (0, 1)}, REFUSED, {"f": SurveyedFeature(0, 1, None)}, broker={"a", "b"})
    assert survey_of(survey_fields(found)) == found


def test_conformance_row_is_equal_or_explained_or_unexplained() -> None:
    row = ConformanceRow("api", "X", "0", "-", is_equal=False)
    assert (row.verdict, row._replace(reason="why").verdict) == ("without", "reason")
    assert row._replace(is_equal=True).verdict == "equal"
