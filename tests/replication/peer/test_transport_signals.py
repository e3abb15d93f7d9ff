"""Test that a received message is read although a failing send has reset the socket's event.

Node 2 was killed, and node 3's answer to node 2 failed. From then on node 3 read no message of node
1, because a poll of node 1 had arrived at the same moment.
"""

import asyncio
import time
from pathlib import Path

import pytest

from oncelog.replication.peer.address import routing_id
from oncelog.replication.peer.handlers import What
from oncelog.replication.peer.transport import PeerTransport

from ...awaiting import until
from ...present import present

KIND = 7


@pytest.mark.uvloop
async def test_peer_send_that_failed_leaves_no_received_message_unread(directory: Path) -> None:
    asker = PeerTransport(1, directory, [1, 2, 3], max_message_bytes=1 << 20)
    server = PeerTransport(2, directory, [1, 2, 3], max_message_bytes=1 << 20)
    heard: list[int] = []

    def serve(peer: int, header: bytes, frames: list, reply) -> None:
        heard.append(peer)
        reply(header, ())

    server.on_request(KIND, serve)
    await server.start()
    await asker.start()
    await until(lambda: asker.is_up(2) and server.is_up(1))
    assert (await asker.request(2, KIND, b"a", timeout_ms=5000))[0] == b"a"
    router = present(server._control._router)
    for _ in range(20):
        asked = asyncio.ensure_future(asker.request(2, KIND, b"b", timeout_ms=2000))
        await asyncio.sleep(0)  # the request is under way
        time.sleep(0.01)  # the request has arrived, and this event loop has not polled
        assert not router.send(What.REPLY, 0, 1, b"nobody", (), routing_id(3))
        assert (await asked)[0] == b"b"
    assert heard == [1] * 21
    await asker.stop()
    await server.stop()
