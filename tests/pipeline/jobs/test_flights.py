"""Test the command line of the flights job and its reports, without Spark."""

import json
import threading
import time
import traceback
from typing import Any

import pytest

from oncelog.pipeline.jobs import flights
from oncelog.pipeline.jobs.flights import (
    ProgressReporter,
    airlines,
    arguments,
    of_sinks,
    offsets_of,
    stop,
)
from oncelog.pipeline.sink.sink import ExactlyOnceSink
from oncelog.pipeline.sink.stop_words import SinkStopped
from oncelog.wire.security.secret import Secret

REQUIRED = ("--bootstrap", "h:1", "--checkpoint", "/c")


def offsets(**by_partition: int) -> str:
    by_number = {name[1:]: offset for name, offset in by_partition.items()}
    return json.dumps({"version": 1, "topics": {"flights": {"id": "ab", "offsets": by_number}}})


class Query:
    def __init__(self) -> None:
        self.lastProgress: dict | None = None
        self.problem: Exception | None = None

    def exception(self) -> Exception | None:
        return self.problem

    def batch(self, number: int, rows: int, start: str | None, end: str) -> None:
        self.lastProgress = {
            "batchId": number, "numInputRows": rows, "timestamp": "2013-01-01T00:00:01.250Z",
            "sources": [{"startOffset": start, "endOffset": end}],
        }  # fmt: skip


def test_flight_job_sink_gets_only_the_security_settings_of_a_client_file(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text(
        "bootstrap.servers=h:2\nclient.id=a\nrequest.timeout.ms=9\nsecurity.protocol=SASL_SSL\n"
        "sasl.mechanism=PLAIN\nsasl.username=alice\nsasl.password=geheim\n"
    )
    options = arguments(["--command-config", str(file), "--checkpoint", "/c"])
    taken = of_sinks(options.login)
    assert taken == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": Secret("geheim"),
    }
    ExactlyOnceSink("flights-sums", options.login["bootstrap.servers"], "delays", **taken)


def test_flight_job_reports_each_micro_batch_once_and_no_idle_trigger():
    query: Any = Query()
    reported: list[Any] = []
    reporter = ProgressReporter({"sums": query}, lambda *event: reported.append(event))
    assert reporter.look()
    query.batch(0, 10, None, offsets(p0=5, p1=5))
    assert reporter.look()
    assert reporter.look()
    query.batch(1, 0, offsets(p0=5, p1=5), offsets(p0=5, p1=5))
    assert reporter.look()
    query.batch(1, 0, offsets(p0=5, p1=5), offsets(p0=6, p1=5))  # only a marker was added
    assert reporter.look()
    assert reported == [
        ("batch", "sums", 0, 1_356_998_401_250, 10, {"0": 5, "1": 5}),
        ("batch", "sums", 1, 1_356_998_401_250, 0, {"0": 6, "1": 5}),
    ]


def test_flight_job_with_a_failed_query_reports_the_failure_in_one_line():
    query: Any = Query()
    reported: list[Any] = []
    try:
        raise SinkStopped("Sink s belongs to query q: say which.")
    except SinkStopped:
        trace = traceback.format_exc()
    query.problem = RuntimeError(
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: An exception was "
        f"raised by the Python Proxy. Return Message: {trace} SQLSTATE: XXKST\n"
        "=== Streaming Query ===\nIdentifier: sums [id = 1, runId = 2]"
    )
    assert not ProgressReporter({"sums": query}, lambda *event: reported.append(event)).look()
    assert reported == [("failed", "sums", "SinkStopped: Sink s belongs to query q: say which.")]


def test_flight_job_sink_options_are_read_from_the_command_line():
    given = ["first_batch=7", "transaction_timeout_ms=90000", "linger_ms=5"]
    options = arguments([*REQUIRED, *(f"--sink-option={one}" for one in given)])
    sink = ExactlyOnceSink("s", "h:1", "t", **dict(options.sink_option))
    assert sink.protocol.terms.first_batch == 7
    assert sink.timeout_ms == 90_000
    with pytest.raises(ValueError, match="first_batch is a whole number from 0 on, not 'x'"):
        ExactlyOnceSink("s", "h:1", "t", first_batch="x")


class Stuck:
    """A query, or a Spark session, with a `stop` that does not return in time."""

    def __init__(self) -> None:
        self.sparkContext = self
        self._gateway = None

    def stop(self) -> None:
        time.sleep(60)


def test_flight_job_with_a_query_that_does_not_stop_exits(monkeypatch):
    codes = []

    def leave(code: int) -> None:
        codes.append(code)

    monkeypatch.setattr(flights, "STOP_S_MAX", 0.1)
    monkeypatch.setattr(flights.os, "_exit", leave)
    thread = threading.Thread(target=stop, args=(Stuck(), {"sums": Stuck()}), daemon=True)
    thread.start()
    deadline = time.monotonic() + 10
    while not codes and time.monotonic() < deadline:
        time.sleep(0.02)
    assert codes == [flights.FAILED]


def test_flight_job_arguments_have_defaults_and_wrong_ones_are_refused():
    options = arguments(REQUIRED)
    assert (options.source, options.enriched, options.sums) == (
        "flights", "enriched-flights", "delays",
    )  # fmt: skip
    for wrong in ([*REQUIRED, "--sink-option", "linger_ms"], REQUIRED[:2]):
        with pytest.raises(SystemExit):
            arguments(wrong)


def test_flight_airlines_are_read_from_a_file_or_stay_unknown_without_one(tmp_path):
    assert airlines(None) == {}
    file = tmp_path / "airlines.csv"
    file.write_text("carrier,name\nUA,United Air Lines Inc.\n")
    assert airlines(file) == {"UA": "United Air Lines Inc."}
    assert offsets_of(None) == offsets_of("null") == {}
