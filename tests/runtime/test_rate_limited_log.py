"""Test the limit of log lines that clients or a full disk could cause without end."""

import logging

import pytest

from oncelog.runtime.rate_limited_log import LINES_PER_PERIOD, PERIOD_S, LimitedLog


def test_limited_log_beyond_ten_lines_a_minute_reports_how_many_were_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    limited = LimitedLog(logging.getLogger("limited"))
    for moment in range(1, 40):
        limited.log(logging.WARNING, "full", 1000.0 + moment, "no room %d", moment)
        limited.log(logging.INFO, "refused", 1000.0, "refused")
    assert caplog.messages.count("refused") == LINES_PER_PERIOD
    assert [m for m in caplog.messages if m.startswith("no room")] == [
        f"no room {moment}" for moment in range(1, LINES_PER_PERIOD + 1)
    ]
    limited.log(logging.WARNING, "full", 1001.0 + PERIOD_S, "no room again")
    assert caplog.messages[-3:] == [
        f"full: {39 - LINES_PER_PERIOD} more lines of this kind were not logged",
        f"refused: {39 - LINES_PER_PERIOD} more lines of this kind were not logged",
        "no room again",
    ]
    assert {r.levelno for r in caplog.records if r.message == "no room again"} == {logging.WARNING}
