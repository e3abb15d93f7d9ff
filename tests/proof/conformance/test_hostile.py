"""Test the survey of a broker that closes connections, stays silent, or sends garbage.

The survey reports this behaviour within a bounded time.
"""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from oncelog.cli.main import run
from oncelog.deploy.cluster.failure import Failure
from oncelog.proof.conformance import asking
from oncelog.proof.conformance.asking import SILENCES_MAX, AskedBroker
from oncelog.proof.conformance.surveying import survey
from oncelog.wire.framing import decode_request_header, encode_response_header
from oncelog.wire.messages import control

API_VERSIONS, END_TXN = 18, 26
APIS = {API_VERSIONS: (0, 3), END_TXN: (0, 3), 999: (0, 1)}
ANSWER_S = 0.5
Deed = Callable[[socket.socket, bytes], bool]  # returns whether the connection continues


def versions(frame: bytes) -> bytes:
    """Return the answer to an ApiVersions request."""
    header = decode_request_header(memoryview(frame))
    rows = [{"api_key": k, "min_version": a, "max_version": b} for k, (a, b) in APIS.items()]
    version = header.api_version
    body = control.encode_response(API_VERSIONS, version, {"api_keys": rows})
    head = encode_response_header(API_VERSIONS, version, header.correlation_id)
    return len(head + body).to_bytes(4, "big") + head + body


def closes(connection: socket.socket, frame: bytes) -> bool:
    return False


def is_silent(connection: socket.socket, frame: bytes) -> bool:
    return True


def babbles(connection: socket.socket, frame: bytes) -> bool:
    """Answer with the request's correlation id, followed by garbage."""
    connection.sendall(b"\0\0\0\x0e" + frame[4:8] + b"\xff" * 10)
    return True


def announces_much(connection: socket.socket, frame: bytes) -> bool:
    connection.sendall(b"\x7f\xff\xff\xff" + frame[4:8])
    return True


def answers_another(connection: socket.socket, frame: bytes) -> bool:
    connection.sendall(b"\0\0\0\x06\0\1\2\3\0\0")
    return True


def drips(connection: socket.socket, frame: bytes) -> bool:
    """Send a byte from time to time, for longer than the time limit of an answer."""
    connection.sendall(b"\0\0\x10\0")
    end_s = time.monotonic() + 3 * ANSWER_S
    while time.monotonic() < end_s:
        connection.sendall(b"x")
        time.sleep(ANSWER_S / 10)
    return False


@contextmanager
def broker(deed: Deed, *, first: bool = True, connections_max: int = 1_000) -> Iterator[str]:
    """Run a broker that calls `deed` for each request, and yield its address.

    With `first` it answers ApiVersions itself. It closes a connection if `deed` returns False.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as received:
            try:
                while size := received.read(4):
                    frame = received.read(int.from_bytes(size, "big"))
                    if first and int.from_bytes(frame[:2], "big") == API_VERSIONS:
                        connection.sendall(versions(frame))
                    elif not deed(connection, frame):
                        return
            except OSError:
                return

    def accept() -> None:
        while len(connections) < connections_max:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connections.append(connection)
            threading.Thread(target=serve, args=(connection,), daemon=True).start()
        listener.close()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join(5)
        for connection in connections:
            connection.close()


@pytest.mark.parametrize(
    ("deed", "came"),
    [
        (closes, ["closed"] * 4),
        (is_silent, ["silent"] * SILENCES_MAX + ["not asked"]),
        (drips, ["silent"] * SILENCES_MAX + ["not asked"]),
        (babbles, ["garbage"] * 4),
        (announces_much, ["garbage"] * 4),
        (answers_another, ["garbage"] * 4),
    ],
)
def test_conformance_survey_reports_the_behaviour_of_a_hostile_broker(
    deed: Deed, came: list[str]
) -> None:
    began_s = time.monotonic()
    with broker(deed) as bootstrap:
        found = survey({"bootstrap.servers": bootstrap}, print, answer_s=ANSWER_S)
    assert [found.apis[END_TXN].came[v].came for v in range(4)] == came
    assert {outcome.came for outcome in found.apis[API_VERSIONS].came.values()} == {"served"}
    assert str(found.apis[999].came[0]) == "not asked this client has no schema for it"
    assert found.features == {} and not any(found.configs.values())
    assert bool(found.stopped) == ("not asked" in came)
    assert time.monotonic() - began_s < 30


@pytest.mark.parametrize("silent", ["ours", "theirs", "both"])
def test_conformance_of_a_cluster_that_falls_silent_fails(
    silent: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(survey.__kwdefaults__ or {}, "answer_s", ANSWER_S)
    with broker(is_silent) as a, broker(is_silent if silent == "both" else closes) as b:
        ours, theirs = (b, a) if silent == "theirs" else (a, b)
        code = run(["conformance", "--bootstrap", ours, "--against", theirs])
    printed = " ".join(capsys.readouterr().out.split())
    assert code == 1
    assert f"{a} was not asked to the end: {SILENCES_MAX} requests" in printed


@pytest.mark.parametrize("goes", ["ours", "theirs"])
def test_conformance_of_a_cluster_that_disappears_midway_fails(
    goes: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(asking, "FAILED_CONNECTIONS_MAX", 2)
    with broker(closes, connections_max=1) as a, broker(closes) as b:
        ours, theirs = (a, b) if goes == "ours" else (b, a)
        code = run(["conformance", "--bootstrap", ours, "--against", theirs])
    printed = " ".join(capsys.readouterr().out.split())
    assert "0 with a reason, 0 without, " in printed and ", 0 not asked" not in printed
    assert f"{a} was not asked to the end: it accepts no connection" in printed
    assert code == 1


def test_conformance_of_an_incomplete_survey_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(survey.__kwdefaults__ or {}, "answer_s", ANSWER_S)
    with broker(is_silent) as bootstrap:
        assert run(["conformance", "--bootstrap", bootstrap]) == 1
        assert "was not asked to the end" in " ".join(capsys.readouterr().out.split())
        assert run(["conformance", "--bootstrap", bootstrap, "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["cluster"]["stopped"]


@pytest.mark.parametrize("deed", [closes, is_silent, babbles, announces_much])
def test_conformance_of_a_broker_without_api_versions_fails(deed: Deed) -> None:
    with broker(deed, first=False) as bootstrap, pytest.raises(Failure, match="ApiVersions"):
        survey({"bootstrap.servers": bootstrap}, print, answer_s=ANSWER_S)


def test_conformance_without_a_broker_fails() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Failure, match=f"127.0.0.1:{port}"):
        survey({"bootstrap.servers": f"127.0.0.1:{port}"}, print, answer_s=ANSWER_S)


def test_conformance_survey_retries_a_broker_that_disappears_only_a_few_times() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    asked = AskedBroker({"bootstrap.servers": "x:1"}, "127.0.0.1", port, answer_s=ANSWER_S)
    came = [asked.ask(END_TXN, 3, {})[0] for _ in range(7)]
    assert [outcome.came for outcome in came] == ["closed"] * 4 + ["not asked"] * 3
    assert "accepts no connection" in came[-1].detail
    asked.close()
