"""Test that a request which is not served is logged once with its client, in printable form."""

import logging

import pytest

from oncelog.node.listener.closing import UnservedRequest
from oncelog.node.listener.unserved_requests import NAMED_MAX, SHOWN_MAX, UnservedRequests
from oncelog.wire.framing import encode_request_header

from .toy_server import ECHO, toy_server

LOG = logging.getLogger("oncelog.requests")
SOFTWARE = ("confluent-kafka-python", "2.16.0")


def noted(api_key: int, version: int, client_id: str | None = "orders") -> str:
    requests = UnservedRequests(LOG)
    header = memoryview(encode_request_header(api_key, version, 1, client_id))
    requests.note(UnservedRequest(api_key, version), SOFTWARE, "127.0.0.1", header)
    (sentence,) = requests.sentences
    return sentence


def test_unserved_request_is_reported_with_client_software_and_api() -> None:
    assert noted(76, 1) == (
        "confluent-kafka-python 2.16.0 (client id orders) from 127.0.0.1 asks for API 76 "
        "(ShareGroupHeartbeat) version 1, which is not served: its connection is closed"
    )
    assert "asks for API 999 (unknown) version 7" in noted(999, 7, None)


def test_unserved_request_is_reported_with_a_printable_short_client_id() -> None:
    sentence = noted(76, 1, "\x1b[31m" + "x" * 30_000)
    assert sentence.isprintable() and len(sentence) < 250


def test_unserved_request_with_a_malformed_header_is_reported_with_the_software() -> None:
    requests = UnservedRequests(LOG)
    frame = memoryview(b"\0\x4c\0\1\0\0\0\1\x7f\xff")
    requests.note(UnservedRequest(76, 1), ("unknown", "unknown"), "127.0.0.1", frame)
    assert requests.sentences[0].startswith("a client of unknown software from 127.0.0.1 asks")


def test_unserved_request_of_the_same_software_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    requests = UnservedRequests(LOG)
    header = memoryview(encode_request_header(76, 1, 1, "a"))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            requests.note(UnservedRequest(76, 1), SOFTWARE, "127.0.0.1", header)
        requests.note(UnservedRequest(78, 1), SOFTWARE, "127.0.0.1", header)
    assert len(caplog.records) == 2


def test_unserved_request_reports_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    requests = UnservedRequests(LOG)
    header = memoryview(encode_request_header(76, 1, 1, "a"))
    with caplog.at_level(logging.WARNING):
        for number in range(3 * NAMED_MAX):
            software = ("client", str(number))
            requests.note(UnservedRequest(76, 1), software, "127.0.0.1", header)
    assert len(caplog.records) == NAMED_MAX + 1 and len(requests.sentences) == SHOWN_MAX
    assert "further requests" in caplog.records[-1].getMessage()


async def test_unserved_request_that_closes_its_connection_is_reported() -> None:
    async with toy_server() as bench:
        client = await bench.connect()
        assert await client.ask(ECHO, b"fine") == b"fine"
        client.send((78, 1), b"share fetch")
        assert await client.is_closed()
        (sentence,) = bench.server.unserved.sentences
        assert "(client id test)" in sentence and "API 78 (ShareFetch) version 1" in sentence
