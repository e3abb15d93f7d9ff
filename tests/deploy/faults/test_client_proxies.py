"""Test that proxies of clients forward, hold, delay and lose requests, and reset connections."""

import gc
import socket
import struct
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress

import pytest

from oncelog.deploy.faults.client_proxies import ClientProxies

TIMEOUT_S = 10.0


class Broker:
    """A broker that sends each frame back as its answer, and keeps all frames."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.heard: list[bytes] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as stream:
            while length := stream.read(4):
                frame = stream.read(struct.unpack(">i", length)[0])
                self.heard.append(frame)
                connection.sendall(length + frame)

    def hears(self, frame: bytes) -> bool:
        deadline = time.monotonic() + TIMEOUT_S
        while frame not in self.heard and time.monotonic() < deadline:
            time.sleep(0.01)
        return frame in self.heard


@pytest.fixture
def broker() -> Iterator[Broker]:
    served = Broker()
    yield served
    served.listener.close()


@pytest.fixture
def proxies(broker: Broker) -> Iterator[ClientProxies]:
    opened = ClientProxies([broker.port])
    yield opened
    opened.close()


def frame(api_key: int, text: bytes = b"") -> bytes:
    return struct.pack(">h", api_key) + text


def connect(proxies: ClientProxies, broker: Broker, timeout_s: float = TIMEOUT_S) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxies.ports[broker.port]), timeout_s)


def send(connection: socket.socket, content: bytes) -> None:
    connection.sendall(struct.pack(">i", len(content)) + content)


def answer(connection: socket.socket) -> bytes:
    received = b""
    while len(received) < 4 or len(received) < 4 + struct.unpack(">i", received[:4])[0]:
        received += (more := connection.recv(65536))
        if not more:
            return b""
    return received[4:]


def test_client_proxy_forwards_frames_in_both_directions(
    broker: Broker, proxies: ClientProxies
) -> None:
    with connect(proxies, broker) as client:
        for number in range(3):
            send(client, frame(3, b"%d" % number))
            assert answer(client) == frame(3, b"%d" % number)


def test_client_proxy_of_encrypted_bytes_forwards_and_delays_the_bytes_unparsed(
    broker: Broker,
) -> None:
    proxies = ClientProxies([broker.port], is_encrypted=True)
    try:
        with connect(proxies, broker) as client:
            client.sendall(b"\x00\x00")  # half a length: no frame that would be waited for
            client.sendall(b"\x00\x01x")
            assert answer(client) == b"x"
            proxies.delay(broker.port, 50)
            proxies.hold(26)
            send(client, frame(26, b"late"))
            assert answer(client) == frame(26, b"late")
            assert proxies.counts == {"delayed": proxies.counts["delayed"]}
            assert proxies.counts["delayed"] >= 1
    finally:
        proxies.close()


def test_client_proxy_forwards_a_held_request_after_its_client_disconnected(
    broker: Broker, proxies: ClientProxies
) -> None:
    proxies.hold(26)
    with connect(proxies, broker) as client:
        send(client, frame(3))
        assert answer(client) == frame(3), "only the one kind is held"
        send(client, frame(26, b"late"))
        deadline = time.monotonic() + TIMEOUT_S
        while not proxies.counts["held"] and time.monotonic() < deadline:
            time.sleep(0.01)
    assert proxies.counts["held"] == 1 and frame(26, b"late") not in broker.heard
    with connect(proxies, broker) as another:
        send(another, frame(26, b"next"))
        assert answer(another) == frame(26, b"next"), "one request is held, others go on"
    proxies.heal()
    assert broker.hears(frame(26, b"late"))


def test_client_proxy_cut_from_its_broker_sends_no_bytes_and_is_reset_at_the_heal(
    broker: Broker, proxies: ClientProxies
) -> None:
    with connect(proxies, broker, 0.3) as client:
        send(client, frame(3))
        assert answer(client) == frame(3)
        proxies.cut(broker.port)
        send(client, frame(4))
        with pytest.raises(TimeoutError):
            client.recv(1)
        proxies.heal()
        client.settimeout(TIMEOUT_S)
        assert client.recv(1) == b""
    assert proxies.counts["dropped"] and frame(4) not in broker.heard
    with connect(proxies, broker) as client:
        send(client, frame(5))
        assert answer(client) == frame(5)


def test_client_proxy_with_a_delay_forwards_the_request_later(
    broker: Broker, proxies: ClientProxies
) -> None:
    proxies.delay(broker.port, 200)
    with connect(proxies, broker) as client:
        began = time.monotonic()
        send(client, frame(3))
        assert answer(client) == frame(3)
        assert time.monotonic() - began >= 0.2
    assert proxies.counts["delayed"] == 1


def test_client_proxy_close_leaves_no_open_connection(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy also closes a connection that it accepts during `close`."""
    left: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda found: left.append(found.exc_value))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        for number in range(20):
            opened = ClientProxies([broker.port])
            connections = [connect(opened, broker) for _ in range(3)]
            if number % 2:
                send(connections[0], frame(1))
            opened.close()
            for connection in connections:
                connection.close()
        gc.collect()
    assert left == []


def test_client_proxy_connection_reset_while_a_request_is_held_ends_without_an_error_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        proxies = ClientProxies([port])
        proxies.hold(0)
        with socket.create_connection(("127.0.0.1", proxies.ports[port]), TIMEOUT_S) as client:
            send(client, frame(0))
            broker, _ = listener.accept()
            deadline = time.monotonic() + TIMEOUT_S
            while not proxies.counts["held"]:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            broker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            broker.close()
            assert client.recv(1) == b""
            proxies.heal()
            proxies.close()
    gc.collect()
    assert not caplog.records, "a task's exception that nobody retrieved"
