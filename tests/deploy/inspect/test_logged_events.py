"""Test that events are read from text and JSON node.log files, and other lines are ignored."""

import io
import logging
from pathlib import Path

import pytest

from oncelog.deploy.inspect.logged_events import EventLogs, event_in
from oncelog.node.log_format import FORMAT, TIME_FORMAT, JsonFormatter, PrintableFormatter
from oncelog.runtime.event_log import EventLog

FORMATTERS = {"text": PrintableFormatter(FORMAT, TIME_FORMAT), "json": JsonFormatter()}
AT_MS = 1_795_903_342_528
HOSTILE = 'a {"b"}\n2026-11-28 22:02:22.528 INFO oncelog.events: election {} faked \x1b[2J'


@pytest.fixture(params=["text", "json"])
def log(request: pytest.FixtureRequest) -> io.StringIO:
    """Return the stream to which a logger writes events in one of the two formats."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(FORMATTERS[request.param])
    handler.addFilter(_at)
    logger = logging.getLogger("oncelog.events")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    request.addfinalizer(lambda: logger.removeHandler(handler))
    return stream


def _at(record: logging.LogRecord) -> bool:
    record.created, record.msecs = AT_MS / 1000, AT_MS % 1000
    return True


async def test_event_line_of_a_node_log_is_parsed_back_as_written(log: io.StringIO) -> None:
    EventLog().tell("isr", "orders/0", "fell behind", "node 2 left", topic="orders", isr=(1, 3))
    (line,) = log.getvalue().splitlines()
    event = event_in(line, 3)
    assert event is not None
    assert (event.kind, event.sentence, event.node, event.line) == ("isr", "node 2 left", 3, line)
    assert abs(event.at_ms - AT_MS) <= 1
    assert event.terms["isr"] == [1, 3] and event.term("topic") == "orders"


async def test_event_line_with_a_hostile_client_name_is_parsed_as_one_event(
    log: io.StringIO,
) -> None:
    EventLog().tell("group", HOSTILE, "left", f"group {HOSTILE}: left", group=HOSTILE)
    (line,) = log.getvalue().splitlines()
    event = event_in(line, 1)
    assert event is not None and line.isprintable()
    assert (event.kind, event.term("group")) == ("group", HOSTILE)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "2026-11-28 22:02:22.528 INFO oncelog.node.broker: election {} no event",
        "2026-11-28 22:02:22.528 INFO oncelog.events: election {broken",
        "2026-13-28 22:02:22.528 INFO oncelog.events: election {} no month",
        '{"logger": "oncelog.events", "event": "isr"}',
        '{"logger": "oncelog.events", "event": "isr", "at_ms": 1, "terms": [], "message": ""}',
        "{}",
        "{",
    ],
)
def test_log_line_without_a_well_formed_event_is_parsed_as_no_event(line: str) -> None:
    assert event_in(line, 1) is None


def test_event_log_that_grows_or_is_replaced_is_followed_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    start = "2026-11-28 22:02:22.528 INFO oncelog.events: topic "
    logs = EventLogs({1: path})
    assert logs.new() == []  # the file does not exist yet
    path.write_text(f"{start}{{}} one\n{start}{{}} tw")
    assert [event.sentence for event in logs.new()] == ["one"]
    with path.open("a") as file:
        file.write("o\n")
    assert [event.sentence for event in logs.new()] == ["two"]
    path.write_text(f"{start}{{}} anew\n")  # a shorter one in its place
    assert [event.sentence for event in logs.new()] == ["anew"]


def test_event_logs_of_several_nodes_are_merged_by_time(tmp_path: Path) -> None:
    for node, second in ((1, 3), (2, 1)):
        line = f"2026-11-28 22:02:0{second}.000 INFO oncelog.events: node {{}} of {node}\n"
        (tmp_path / f"{node}").write_text(line)
    logs = EventLogs({node: tmp_path / f"{node}" for node in (1, 2)})
    assert [event.sentence for event in logs.new()] == ["of 2", "of 1"]
