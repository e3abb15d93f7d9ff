"""Test the recorded durations of requests, and their percentiles."""

import pytest

from oncelog.node.listener.answer_times import MINUTE_S, RANGES, AnswerTimes

FETCH = 1


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize("seconds", [0.0, -1e-9, 1e-7, 1e-6, 0.00037, 0.004, 1.5, 29.0, 10_000.0])
def test_answer_time_percentile_of_a_single_time_is_at_most_a_fifth_above_that_time(
    seconds: float,
) -> None:
    times = AnswerTimes(Clock())
    times.note(FETCH, seconds)
    ((key, found),) = times.read()
    (value,) = found.percentiles((0.5,))
    assert (key, found.count, found.total_s, sum(found.recent)) == (FETCH, 1, seconds, 1)
    longest = 1e-6 * 1.2 ** (RANGES - 1)
    assert value >= min(seconds, longest)
    assert value <= max(1e-6, 1.2 * min(seconds, longest) + 1e-9)


def test_answer_time_percentiles_separate_late_answers_from_punctual_answers() -> None:
    times = AnswerTimes(Clock())
    for _ in range(98):
        times.note(FETCH, 0.001)
    for _ in range(2):
        times.note(FETCH, 0.5)
    median, late = times.read()[0][1].percentiles((0.5, 0.99))
    assert median < 0.0013 and 0.5 <= late < 0.61


def test_answer_times_older_than_two_minutes_are_dropped() -> None:
    clock = Clock()
    times = AnswerTimes(clock)
    times.note(FETCH, 5.0)
    latest: list[float] = []
    for minute in range(1, 4):
        clock.now_s = minute * MINUTE_S
        times.note(FETCH, 0.001)
        ((_, found),) = times.read()
        latest += found.percentiles((0.999,))
    assert [late > 4 for late in latest] == [True, True, False]


def test_answer_times_of_an_api_never_requested_are_absent() -> None:
    assert AnswerTimes(Clock()).read() == []
