"""Test that subscribed patterns follow RE2, have a limited size, and are matched in short steps."""

import subprocess
import sys

import pytest

from oncelog.coordinator.groups.consumer.patterns import (
    PATTERN_CHARACTERS_MAX,
    check_pattern,
    resolving_patterns,
)
from oncelog.runtime.steps import run_to_end
from oncelog.wire.errors import InvalidRegularExpression

from ..step_lengths import longest_step

STEP_MS_MAX = 20


@pytest.mark.parametrize(
    "pattern",
    ["t[0-9]+", "(^t[0-9])", "(?i)orders-.*", "a{1000}", "\\pL+", "grüß", "", "a|", "[.]"],
)
def test_re2_expression_that_is_valid_is_accepted(pattern: str) -> None:
    check_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["(", "[", "a{1001}", "(a)\\1", "(?=a)", "(?<!b)a", "*", "\\pL{100}",
     "((a{100}){100}){100}", "x" * (PATTERN_CHARACTERS_MAX + 1)],
)  # fmt: skip
def test_re2_expression_that_is_invalid_or_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression, match="SubscribedTopicRegex"):
        check_pattern(pattern)


def test_re2_expressions_match_whole_topic_names() -> None:
    topics = {"t1", "t2", "at1", "t1a", "orders-EU", "orders-us"}
    patterns = ["t[0-9]", "(?i)ORDERS-.*", "t1", ".*", "^t1$", "t.*|a.*", "none"]
    assert run_to_end(resolving_patterns(patterns, topics)) == {
        "t[0-9]": ("t1", "t2"),
        "(?i)ORDERS-.*": ("orders-EU", "orders-us"),
        "t1": ("t1",),
        ".*": ("at1", "orders-EU", "orders-us", "t1", "t1a", "t2"),
        "^t1$": ("t1",),
        "t.*|a.*": ("at1", "t1", "t1a", "t2"),
        "none": (),
    }


def test_re2_expression_invalid_in_a_stored_record_matches_no_topic() -> None:
    assert run_to_end(resolving_patterns(["(", "t"], ["t"])) == {"(": (), "t": ("t",)}


def test_re2_expressions_without_topics_resolve_to_no_topic() -> None:
    assert run_to_end(resolving_patterns(["a", "b"], ())) == {"a": (), "b": ()}


@pytest.mark.parametrize(
    "patterns, topics",
    [
        ([f"team{i}\\.orders-[0-9]*{i % 10}" for i in range(200)],
         [f"team{i % 40}.orders-{i}" for i in range(3000)]),
        (["(a|b)*a(a|b){200}", "(.*a.{50}){9}", "((a|b)*a(a|b){30}){20}"],
         [("ab" * 125)[:249 - i % 9] + "abbaabab"[: i % 9] for i in range(300)]),
    ],
)  # fmt: skip
def test_re2_expressions_in_large_numbers_are_resolved_in_short_steps(
    patterns: list[str], topics: list[str]
) -> None:
    resolved, longest_ms = longest_step(lambda: resolving_patterns(patterns, topics))
    assert len(resolved) == len(patterns)
    assert longest_ms < STEP_MS_MAX


def test_re2_library_is_loaded_with_the_first_expression() -> None:
    program = (
        "import sys\n"
        "import oncelog.coordinator.groups.consumer.patterns as patterns\n"
        "assert 're2' not in sys.modules\n"
        "patterns.check_pattern('a')\n"
        "assert 're2' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
