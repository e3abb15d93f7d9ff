"""Times of requests, as percentiles of ranges."""

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
def test_percentile_of_one_time_is_at_most_a_fifth_above_it(seconds: float) -> None:
    times = AnswerTimes(Clock())
    times.note(FETCH, seconds)
    ((key, found),) = times.read()
    (value,) = found.percentiles((0.5,))
    assert (key, found.count, found.total_s, sum(found.recent)) == (FETCH, 1, seconds, 1)
    longest = 1e-6 * 1.2 ** (RANGES - 1)
    assert value >= min(seconds, longest)
    assert value <= max(1e-6, 1.2 * min(seconds, longest) + 1e-9)


def test_percentiles_separate_the_late_from_the_others() -> None:
    times = AnswerTimes(Clock())
    for _ in range(98):
        times.note(FETCH, 0.001)
    for _ in range(2):
        times.note(FETCH, 0.5)
    median, late = times.read()[0][1].percentiles((0.5, 0.99))
    assert median < 0.0013 and 0.5 <= late < 0.61


def test_times_of_more_than_two_minutes_ago_count_no_more() -> None:
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


def test_api_that_was_never_asked_for_is_not_there() -> None:
    assert AnswerTimes(Clock()).read() == []
