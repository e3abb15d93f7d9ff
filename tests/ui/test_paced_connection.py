"""Test the limit on the page's requests to one broker in any second."""

from hypothesis import given
from hypothesis import strategies as st

from oncelog.ui.paced_connection import RequestPace


@given(st.lists(st.floats(0, 400), max_size=60), st.integers(1, 6))
def test_request_pace_never_exceeds_its_limit_in_any_second(pauses, limit) -> None:
    pace, now_ms, sent = RequestPace(limit), 0.0, []
    for pause_ms in pauses:
        now_ms += pause_ms
        while (wait_ms := pace.wait_ms(now_ms)) > 0:
            now_ms += wait_ms
        pace.sent(now_ms)
        sent.append(now_ms)
    assert all(later - first >= 1_000 - 1e-6 for first, later in zip(sent, sent[limit:]))  # noqa: B905


def test_request_pace_allows_a_first_burst_immediately() -> None:
    pace = RequestPace(5)
    for _ in range(5):
        assert pace.wait_ms(10.0) == 0
        pace.sent(10.0)
    assert pace.wait_ms(10.0) == 1_000
