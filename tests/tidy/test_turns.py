"""Test which heavy tests the default run takes, which alternate between runs."""

from ..rounds import TURNS, chosen, skipped


def test_rotating_tests_run_in_one_of_three_rounds() -> None:
    names = [f"test_{number}" for number in range(17)]
    for first in (0, 739_000):
        rounds = [skipped(first + number, names) for number in range(TURNS)]
        assert all(sum(name in out for out in rounds) == TURNS - 1 for name in names)
        assert all(5 <= len(names) - len(out) <= 6 for out in rounds)


def test_rotating_cases_of_a_round_continue_where_the_last_ended() -> None:
    cases = "abcde"
    taken = [case for number in range(5) for case in chosen(number, 2, cases)]
    assert sorted(taken) == sorted(cases * 2)
