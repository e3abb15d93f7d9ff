"""Test that periodic sleeps of 0.1 s or more end together, at tenths of a second."""

import pytest

from oncelog.node.clock import until_tenth_s


@pytest.mark.parametrize(
    ("now_s", "interval_s", "sleep_s"),
    [
        (7.0, 0.1, 0.1),
        (7.003, 0.1, 0.097),
        (6.9995, 0.1, 0.1005),  # woken a little too soon
        (7.04, 1.0, 0.96),
        (7.06, 300.0, 300.04),
        (7.06, 0.02, 0.02),
    ],
)
def test_periodic_sleep_ends_at_a_tenth_of_a_second_unless_it_is_shorter(
    now_s: float, interval_s: float, sleep_s: float
) -> None:
    assert until_tenth_s(now_s, interval_s) == pytest.approx(sleep_s)
