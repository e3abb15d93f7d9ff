"""Test the choice of the heavy tests and cases that a build runs (`tests/rounds.py`)."""

from ..rounds import TURNS, chosen, skipped


def test_rotating_test_runs_in_one_of_three_successive_builds() -> None:
    names = [f"test_{number}" for number in range(17)]
    for first in (0, 739_000):
        rounds = [skipped(first + number, names) for number in range(TURNS)]
        assert all(sum(name in out for out in rounds) == TURNS - 1 for name in names)
        assert all(5 <= len(names) - len(out) <= 6 for out in rounds)


def test_rotating_cases_of_successive_builds_cover_all_cases_equally() -> None:
    cases = "abcde"
    taken = [case for number in range(5) for case in chosen(number, 2, cases)]
    assert sorted(taken) == sorted(cases * 2)
