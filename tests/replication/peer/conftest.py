"""Ports that are free for the streams of two brokers."""

import socket
from contextlib import ExitStack

import pytest


@pytest.fixture
def unused_ports() -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
