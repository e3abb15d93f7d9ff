"""Test that an event is logged as one line, and that the number of lines is limited."""

import asyncio
import json
import logging

import pytest

from oncelog.runtime import event_log
from oncelog.runtime.event_log import ALIKE_PER_PERIOD, EVENTS_PER_PERIOD, PERIOD_S, EventLog


@pytest.fixture(autouse=True)
def at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


async def test_event_log_line_has_the_kind_the_fields_and_the_sentence_of_the_event(caplog) -> None:
    EventLog().tell("fence", "app-1", "new session", "app-1: fenced", producer_id=7, isr=(1, 2))
    kind, rest = caplog.messages[0].split(" ", 1)
    terms, end = json.JSONDecoder().raw_decode(rest)
    assert (kind, rest[end:]) == ("fence", " app-1: fenced")
    assert terms == {
        "subject": "app-1",
        "reason": "new session",
        "producer_id": 7,
        "isr": [1, 2],
    }


async def test_event_log_flooded_by_one_producer_still_logs_fences_of_other_producers(
    caplog,
) -> None:
    now_s = 5.0
    events = EventLog(lambda: now_s)
    for _ in range(1_000):
        events.tell("fence", "hostile", "older session", "refused")
    events.tell("fence", "app-1", "older session", "refused")
    subjects = [message.split('"')[3] for message in caplog.messages]
    assert subjects == ["hostile"] * ALIKE_PER_PERIOD + ["app-1"]
    assert events.counts["fence", "older session"] == 1_001
    now_s += PERIOD_S
    events.tell("fence", "app-1", "older session", "refused")
    assert f"{1_000 - ALIKE_PER_PERIOD} more events of this kind within 10 s" in caplog.messages[-2]


async def test_event_log_flooded_by_many_producers_is_bounded(caplog) -> None:
    events = EventLog(lambda: 5.0)
    for number in range(1_000):
        events.tell("fence", f"app-{number}", "older session", "refused")
    events.tell("abort", "app-1", "timeout", "aborted")
    assert len(caplog.messages) == EVENTS_PER_PERIOD + 1


async def test_event_log_at_the_end_of_a_period_reports_how_many_were_left_out(
    caplog, monkeypatch
) -> None:
    monkeypatch.setattr(event_log, "PERIOD_S", 0.05)
    events = EventLog()
    for _ in range(ALIKE_PER_PERIOD + 3):
        events.tell("fence", "hostile", "older session", "refused")
    async with asyncio.timeout(5):
        while "3 more events of this kind within" not in caplog.messages[-1]:
            await asyncio.sleep(0.01)


async def test_event_log_line_with_a_long_client_name_is_cut(caplog) -> None:
    EventLog().tell("fence", "x" * 30_000, "new session", "y" * 30_000, asked_by="z" * 30_000)
    assert len(caplog.messages[0]) < 2_000
