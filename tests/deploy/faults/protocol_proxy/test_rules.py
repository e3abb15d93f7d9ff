"""Test which requests match a rule, on how many of them it acts, and which rules are refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.faults.protocol_proxy.rules import (
    AnswerError,
    Delay,
    Disconnect,
    Hold,
    HoldPoint,
    LoseAnswer,
    LoseRequest,
    Match,
    Rule,
    RuleBook,
)
from oncelog.wire.error_codes import ErrorCode

from .frames import request_from, request_of
from .samples import SAMPLES, produce_request

END = request_of("EndTxn", 3, SAMPLES["EndTxn"])
COMMIT = request_of("OffsetCommit", 8, SAMPLES["OffsetCommit"])
PRODUCE = request_of("Produce", 9, produce_request(9))
UNREADABLE = request_from(memoryview(b"\0\x1a\0\x63\0\0\0\1\0\1c\0"))  # EndTxn, version 99


@pytest.mark.parametrize(
    ("match", "fitting"),
    [
        (Match(), [END, COMMIT, PRODUCE, UNREADABLE]),
        (Match(apis={"EndTxn"}), [END, UNREADABLE]),
        (Match(apis={"EndTxn", "Produce"}), [END, PRODUCE, UNREADABLE]),
        (Match(client_id="c"), [END, COMMIT, PRODUCE, UNREADABLE]),
        (Match(client_id="d"), []),
        (Match(instance="one"), [END, COMMIT, PRODUCE, UNREADABLE]),
        (Match(instance="two"), []),
        (Match(broker_id=7), [END, COMMIT, PRODUCE, UNREADABLE]),
        (Match(broker_id=8), []),
        (Match(topic="orders"), [COMMIT, PRODUCE]),
        (Match(topic="others"), []),
        (Match(group="readers"), [COMMIT]),
        (Match(transactional_id="writer"), [END, PRODUCE]),
        (Match(apis={"Produce"}, transactional_id="writer", topic="orders"), [PRODUCE]),
        (Match(where=lambda request: request.body.topics), [COMMIT, PRODUCE]),
    ],
)
def test_rule_match_selects_requests_by_its_fields(match: Match, fitting: list[Any]):
    def safely(request: Any) -> bool:
        try:
            return match.fits(request)
        except AttributeError:  # of the `where` above
            return False

    assert [r for r in (END, COMMIT, PRODUCE, UNREADABLE) if safely(r)] == fitting


@given(nth=st.integers(1, 5), times=st.none() | st.integers(1, 5), count=st.integers(0, 15))
def test_rule_with_nth_and_times_applies_to_those_matching_requests(
    nth: int, times: int | None, count: int
):
    book, rule = RuleBook(), Rule(Match(apis={"EndTxn"}), LoseAnswer(), nth, times)
    book.add(rule)
    got: list[int] = []
    for number in range(1, count + 1):
        assert book.decide(COMMIT) is None
        if book.decide(END) is rule:
            book.has_acted(rule)
            got.append(number)
    last = count if times is None else min(count, nth + times - 1)
    assert got == list(range(nth, last + 1))
    assert book.made(rule) == len(got)


def test_rule_with_an_undone_action_acts_on_the_next_request():
    book, rule = RuleBook(), Rule(Match(), LoseAnswer())
    book.add(rule)
    assert book.decide(END) is rule
    assert book.decide(END) is None
    book.give_back(rule)
    assert book.decide(END) is rule
    assert book.made(rule) == 0
    book.has_acted(rule)
    assert book.made(rule) == 1


def test_rule_that_matches_first_applies_and_later_rules_do_not_count_the_request():
    book = RuleBook()
    first, second = Rule(Match(), LoseAnswer()), Rule(Match(apis={"EndTxn"}), Disconnect())
    book.add(first)
    book.add(second)
    assert [book.decide(END) for _ in range(3)] == [first, second, None]


def test_rule_that_was_removed_applies_to_no_further_request():
    book, rule = RuleBook(), Rule(Match(), LoseAnswer(), times=None)
    book.add(rule)
    assert book.decide(END) is rule
    book.remove(rule)
    book.has_acted(rule)
    book.give_back(rule)
    assert (book.decide(END), book.made(rule)) == (None, 0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Rule(Match(apis={"EndTransaction"}), LoseAnswer()), "no API EndTransaction"),
        (lambda: Rule(Match(), LoseAnswer(), nth=0), "from the 1st time on"),
        (lambda: Rule(Match(), LoseAnswer(), times=0), "once at least"),
        (lambda: Rule(Match(), AnswerError(ErrorCode.NOT_COORDINATOR)), "needs the APIs"),
        (
            lambda: Rule(Match(apis={"Metadata"}), AnswerError(ErrorCode.NOT_COORDINATOR)),
            "to Metadata that tells an error cannot be made",
        ),
        (lambda: Rule(Match(), Delay(0)), "A delay is more than 0"),
        (lambda: Rule(Match(), Delay(3_000)), "at most 600 s"),
        (lambda: Rule(Match(), LoseRequest(0)), "A silence is more than 0"),
        (
            lambda: Rule(Match(), Hold(HoldPoint.BEFORE_REQUEST, lambda *_: None, 601)),
            "deadline is more than 0 and at most 600 s",
        ),
    ],
)
def test_rule_with_an_impossible_combination_is_refused(make, words):
    with pytest.raises(Failure, match=words) as problem:
        make()
    assert problem.value.exit_code == 2
