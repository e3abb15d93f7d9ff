"""Test messages between two real broker processes, with kills, pauses and cuts of the link."""

import asyncio
import gc
import os
import signal
import socket
from pathlib import Path

import pytest
import zmq

from oncelog.replication.peer.address import PeerSocketError, routing_id
from oncelog.replication.peer.control import ControlChannel
from oncelog.replication.peer.streams import PeerStream
from oncelog.replication.peer.transport import PeerTimeout, PeerTransport, PeerUnavailable

from ...awaiting import until
from .conftest import Peer
from .peer_process import BROKEN, BULK, COUNT, ECHO, ONE_WAY, SILENT

pytestmark = pytest.mark.uvloop


async def test_peer_request_is_answered_with_header_and_frames(transport: PeerTransport) -> None:
    for bulk, kind in ((False, ECHO), (True, BULK)):
        frames = [b"", b"small", memoryview(os.urandom(1 << 20))]
        header, answer = await transport.request(
            2, kind, b"head", frames, timeout_ms=5000, bulk=bulk
        )
        assert header == b"head"
        assert [bytes(frame) for frame in answer] == [bytes(frame) for frame in frames]
    assert transport.bytes_sent[2] > 2 << 20
    assert transport.bytes_received[2] > 2 << 20


async def test_peer_requests_in_large_numbers_get_their_own_answers(
    transport: PeerTransport,
) -> None:
    async def one(i: int) -> None:
        header, _ = await transport.request(2, ECHO, b"%d" % i, timeout_ms=9000)
        assert header == b"%d" % i

    await asyncio.gather(*(one(i) for i in range(1000)))
    assert not len(transport._under_way)


async def test_peer_frames_received_live_as_long_as_their_views(transport: PeerTransport) -> None:
    sent = [os.urandom(100_000) for _ in range(20)]
    kept = []
    for data in sent:
        _, frames = await transport.request(2, BULK, b"", [data], timeout_ms=5000, bulk=True)
        kept.append(memoryview(frames[0])[10:-10])
    assert [bytes(view) for view in kept] == [data[10:-10] for data in sent]


async def test_peer_request_without_an_answer_times_out_and_a_late_answer_is_dropped(
    peer: Peer, transport: PeerTransport
) -> None:
    with pytest.raises(PeerTimeout):
        await transport.request(2, SILENT, b"", timeout_ms=30)
    peer.gate.delay(2, 80, inbound=True, outbound=False)
    with pytest.raises(PeerTimeout):
        await transport.request(2, ECHO, b"", timeout_ms=30)
    await until(lambda: transport.dropped["late"] == 1)
    peer.gate.heal()
    assert (await transport.request(2, ECHO, b"x", timeout_ms=5000))[0] == b"x"


async def test_peer_handler_that_raises_fails_only_its_request(transport: PeerTransport) -> None:
    assert transport.send(2, BROKEN, b"")
    with pytest.raises(PeerUnavailable, match="ValueError"):
        await transport.request(2, BROKEN, b"", timeout_ms=5000)
    with pytest.raises(PeerUnavailable, match="kind 99"):
        await transport.request(2, 99, b"", timeout_ms=5000)
    assert (await transport.request(2, ECHO, b"x", timeout_ms=5000))[0] == b"x"


async def test_peer_one_way_messages_all_arrive(transport: PeerTransport) -> None:
    for _ in range(300):
        assert transport.send(2, ONE_WAY, b"hello")
    count, _ = await transport.request(2, COUNT, b"", timeout_ms=5000)
    assert count == b"300"


async def test_peer_that_is_absent_fails_a_request_immediately(lone: PeerTransport) -> None:
    assert not lone.send(2, ONE_WAY, b"x")
    with pytest.raises(PeerUnavailable):
        await lone.request(2, ECHO, b"", timeout_ms=60_000)
    with pytest.raises(PeerUnavailable):
        await lone.request(7, ECHO, b"", timeout_ms=60_000)


async def test_killed_peer_fails_its_requests_immediately_and_reconnects(
    peer: Peer, transport: PeerTransport
) -> None:
    waiting = asyncio.ensure_future(transport.request(2, SILENT, b"", timeout_ms=60_000))
    await asyncio.sleep(0.05)
    peer.kill()
    with pytest.raises(PeerUnavailable):
        await asyncio.wait_for(waiting, 5)
    await until(lambda: not transport.is_up(2))
    assert not transport.send(2, ONE_WAY, b"into the void")
    peer.start()
    await until(lambda: transport.is_up(2))
    count, _ = await transport.request(2, COUNT, b"", timeout_ms=5000)
    assert count == b"0", "nothing meant for the former incarnation arrives"
    assert peer.changes == [True, False, True]


async def test_killed_peer_is_reported_down_within_two_seconds(
    peer: Peer, transport: PeerTransport
) -> None:
    """A killed process refuses connections, and after two refusals the peer is reported down."""
    loop = asyncio.get_running_loop()
    peer.kill()
    killed = loop.time()
    await until(lambda: not transport.is_up(2))
    assert loop.time() - killed < 2


async def test_paused_peer_is_not_reported_down_and_answers_after_its_pause(
    peer: Peer, transport: PeerTransport
) -> None:
    peer.signal(signal.SIGSTOP)
    with pytest.raises(PeerTimeout):
        await transport.request(2, ECHO, b"", timeout_ms=300)
    assert transport.is_up(2)
    peer.signal(signal.SIGCONT)
    assert (await transport.request(2, ECHO, b"x", timeout_ms=5000))[0] == b"x"
    assert peer.changes == [True]


async def test_peer_transport_memory_for_a_paused_peer_is_bounded(
    peer: Peer, transport: PeerTransport
) -> None:
    peer.signal(signal.SIGSTOP)
    accepted = 0
    while transport.send(2, ONE_WAY, bytes(1000)):
        accepted += 1
        assert accepted < 50_000
    peer.signal(signal.SIGCONT)
    await until(lambda: transport.send(2, ONE_WAY, b"x"))


@pytest.mark.parametrize("direction", ["inbound", "outbound"])
async def test_peer_link_cut_in_one_direction_drops_messages_silently(
    peer: Peer, transport: PeerTransport, direction: str
) -> None:
    inbound = direction == "inbound"
    peer.gate.cut(2, inbound=inbound, outbound=not inbound)
    assert transport.send(2, ONE_WAY, b"x")
    with pytest.raises(PeerTimeout):
        await transport.request(2, ECHO, b"", timeout_ms=50)
    assert transport.is_up(2)
    peer.gate.heal()
    count, _ = await transport.request(2, COUNT, b"", timeout_ms=5000)
    assert count == (b"1" if inbound else b"0")


async def test_peer_transport_stop_fails_requests_in_progress(transport: PeerTransport) -> None:
    waiting = asyncio.ensure_future(transport.request(2, SILENT, b"", timeout_ms=60_000))
    await asyncio.sleep(0.01)
    await transport.stop()
    with pytest.raises(PeerUnavailable, match="stopping"):
        await waiting
    assert not transport.send(2, ONE_WAY, b"x")


async def test_peer_messages_malformed_or_of_unknown_senders_are_dropped_and_counted(
    lone: PeerTransport, directory: Path
) -> None:
    context = zmq.Context()
    try:
        for name, parts in (
            (b"someone", [b"\x01\x01" + bytes(8)]),
            (routing_id(9), [b"\x01\x01" + bytes(8)]),
            (routing_id(2), [b"short"]),
            (routing_id(2), [b"\x09\x01" + bytes(12)]),
            (routing_id(2), [b"\x02\x01" + bytes(12)]),  # a reply without a request
            (routing_id(2), [b"\x00\x01" + bytes(11) + b"\x05head"]),  # of five bytes
        ):
            sock = context.socket(zmq.DEALER)
            sock.setsockopt(zmq.ROUTING_ID, name)
            sock.connect(f"ipc://{directory}/control-1")
            sock.send_multipart(parts)
            total = sum(lone.dropped.values())
            await until(lambda total=total: sum(lone.dropped.values()) > total)
            sock.close(0)
    finally:
        context.destroy(0)
    assert lone.dropped == {"stranger": 2, "malformed": 4}


async def test_peer_message_beyond_the_limit_closes_the_connection_of_its_sender(
    transport: PeerTransport,
) -> None:
    with pytest.raises(PeerUnavailable):
        await transport.request(2, ECHO, b"", [bytes((1 << 24) + 1)], timeout_ms=9000)
    await until(lambda: transport.send(2, ONE_WAY, b"x"))


async def test_peer_socket_file_of_a_dead_process_is_replaced(directory: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(directory / "control-1"))
    async with Peer(directory).linked():
        pass


async def test_peer_socket_of_a_running_node_is_refused_to_a_second_process(
    directory: Path, transport: PeerTransport
) -> None:
    second = PeerTransport(2, directory, [1, 2], max_message_bytes=1000)
    with pytest.raises(PeerSocketError, match="another process"):
        await second.start()
    assert (await transport.request(2, ECHO, b"x", timeout_ms=5000))[0] == b"x"


@pytest.mark.parametrize("bulk", [False, True])
async def test_peer_request_on_a_link_that_raises_fails_as_unavailable(
    transport: PeerTransport, bulk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(*_: object) -> int:
        raise OSError("the link is broken")

    unhandled: list[dict] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    for link in (ControlChannel, PeerStream):
        monkeypatch.setattr(link, "send", send)
    with pytest.raises(PeerUnavailable):
        await transport.request(2, ECHO, b"", timeout_ms=5000, bulk=bulk)
    assert not transport.send(2, ONE_WAY, b"")
    assert not len(transport._under_way)
    monkeypatch.undo()
    header, _ = await transport.request(2, BULK, b"x", timeout_ms=5000, bulk=True)
    assert header == b"x"
    gc.collect()  # a pending exception of a future would be reported
    assert not unhandled
