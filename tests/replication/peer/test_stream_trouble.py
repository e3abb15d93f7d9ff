"""Test streams between brokers with failing callbacks, full buffers and failed connections."""

import asyncio
import gc
import socket
import warnings
import weakref
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from oncelog.replication.peer.address import PeerSocketError
from oncelog.replication.peer.handlers import Body, PeerError, PeerPacket, What
from oncelog.replication.peer.stream_message import encode
from oncelog.replication.peer.streams import (
    SEND_BUFFER_BYTES,
    UNSENT_BYTES_MAX,
    PeerStream,
    PeerStreams,
)
from oncelog.replication.peer.transport import PeerTransport

from ...awaiting import until
from ...present import present
from .conftest import connected
from .peer_process import BULK
from .test_streams import HELLO, Side, pair, refused, running

pytestmark = pytest.mark.uvloop
HELLO_OF_TWO = HELLO.pack(16, b"oncelog1", 2, 1)


def packed(what: What, correlation_id: int, header: bytes = b"") -> bytes:
    parts, _ = encode(what, BULK, correlation_id, header, [])
    return b"".join(parts)


class LavishSide(Side):
    """A broker that answers each request with more bytes than the stream and kernel can buffer."""

    answer = bytes(UNSENT_BYTES_MAX + 2 * SEND_BUFFER_BYTES + 1_000_000)

    def _received(
        self, stream: PeerStream, peer: int, is_ours: bool, message: PeerPacket, size_bytes: int
    ) -> None:
        self.heard.append((peer, message))
        assert stream.send(What.REPLY, 0, message.correlation_id, b"", [self.answer])


async def read_answer(reader: asyncio.StreamReader) -> int:
    """Read one message, and return its length."""
    async with asyncio.timeout(20):
        length = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(length)
    return length


async def test_peer_stream_with_an_answer_in_progress_sends_a_second_answer(
    directory: Path,
) -> None:
    """A follower repeats a request if the answer to the first one seems to be lost."""
    one = LavishSide(1, directory / "1", {2: directory / "2"})
    async with running(one):
        reader, writer = await asyncio.open_unix_connection(str(directory / "1"))
        writer.write(HELLO_OF_TWO + packed(What.REQUEST, 1) + packed(What.REQUEST, 2))
        await until(lambda: len(one.heard) == 2)
        for _ in range(2):
            assert await read_answer(reader) > len(LavishSide.answer)
        writer.close()


async def test_peer_stream_full_of_answers_stops_reading_requests(directory: Path) -> None:
    one = LavishSide(1, directory / "1", {2: directory / "2"})
    async with running(one):
        reader, writer = await asyncio.open_unix_connection(str(directory / "1"))
        writer.write(HELLO_OF_TWO + packed(What.REQUEST, 1))
        await until(lambda: len(one.heard) == 1)
        writer.write(packed(What.REQUEST, 2))
        await asyncio.sleep(0.1)
        assert len(one.heard) == 1
        for _ in range(2):
            await read_answer(reader)
        assert len(one.heard) == 2
        writer.close()


@pytest.mark.parametrize("sent", [b"", HELLO_OF_TWO], ids=["before_hello", "after_hello"])
async def test_accepted_peer_stream_after_its_end_is_freed(
    directory: Path, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer for the hello would keep 10 kB of each closed connection until HELLO_TIMEOUT_S."""
    monkeypatch.setattr("oncelog.replication.peer.streams.HELLO_TIMEOUT_S", 600)
    one = Side(1, directory / "1", {2: directory / "2"})
    async with running(one):
        _, writer = await asyncio.open_unix_connection(str(directory / "1"))
        writer.write(sent)
        await until(lambda: bool(one.streams._open))
        await until(lambda: not sent or (2, False) in one.streams._streams)
        accepted = weakref.ref(next(iter(one.streams._open)))
        writer.close()
        await until(lambda: not one.streams._open)
        await until(lambda: gc.collect() >= 0 and accepted() is None)


async def test_accepted_peer_stream_that_times_out_while_it_connects_is_freed(
    directory: Path,
) -> None:
    """Uvloop does not notify a stream whose task is cancelled just after `connection_made`."""
    one, _ = pair(directory)
    async with running(one):
        with ExitStack() as clients:
            for number in range(60):
                client = clients.enter_context(socket.socket(socket.AF_UNIX))
                client.connect(str(directory / "1"))
                for _ in range(number % 6):
                    await asyncio.sleep(0)
                for task in list(one.streams._entering):
                    task.cancel()
        await until(lambda: not one.streams._open)


async def test_peer_listener_continues_after_lost_clients_and_too_many_open_files(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair(directory)
    accept, refusals = socket.socket.accept, [OSError(24, "Too many open files")]

    def accepting(listener: socket.socket) -> Any:
        if refusals:
            raise refusals.pop()
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", accepting)
    async with running(one):
        for _ in range(3):
            with socket.socket(socket.AF_UNIX) as gone:
                gone.connect(str(directory / "1"))
        async with running(two):
            await two.open_to(1)


async def test_peer_listener_continues_after_a_socket_that_cannot_be_set_up(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On macOS, setting options of a socket fails if its peer has disconnected."""

    class GoneSocket(socket.socket):
        def setsockopt(self, *_: Any) -> None:
            raise OSError(22, "Invalid argument")

    accept, gone_count = socket.socket.accept, 1

    def accepting(listener: socket.socket) -> Any:
        nonlocal gone_count
        accepted, address = accept(listener)
        if gone_count:
            gone_count -= 1
            accepted = GoneSocket(fileno=accepted.detach())
        return accepted, address

    monkeypatch.setattr(socket.socket, "accept", accepting)
    one, two = pair(directory)
    async with running(one):
        with socket.socket(socket.AF_UNIX) as gone:
            gone.connect(str(directory / "1"))
        await until(lambda: not gone_count)
        async with running(two):
            stream = await two.open_to(1)
            assert stream.send(What.REQUEST, BULK, 1, b"head", [])
            await until(lambda: bool(two.heard))


@pytest.mark.parametrize(
    "error", [RuntimeError("the loop"), ValueError("a name"), OSError(5, "io")]
)
async def test_peer_dialling_continues_after_an_attempt_that_raises(
    directory: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    dial, errors = PeerStreams._dial, [error, error]

    async def dialling(self: PeerStreams, peer: int) -> PeerStream:
        if errors:
            raise errors.pop()
        return await dial(self, peer)

    monkeypatch.setattr(PeerStreams, "_dial", dialling)
    one, two = pair(directory)
    async with running(one, two):
        await one.open_to(2)
        await two.open_to(1)
    assert not errors and not unhandled


async def test_peer_stream_with_a_raising_callback_stays_open(directory: Path) -> None:
    """The callback of an answer raises an OSError, which is reported. Later answers arrive."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    transport = PeerTransport(1, directory, [1, 2], max_message_bytes=1 << 20)
    server = PeerTransport(2, directory, [1, 2], max_message_bytes=1 << 20)
    kept: list[Any] = []
    server.on_request(BULK, lambda peer, header, frames, reply: kept.append(reply), bulk=True)
    answers: list[Body | PeerError] = []

    def broken(outcome: Body | PeerError) -> None:
        raise OSError("on purpose")

    await transport.start()
    await server.start()
    try:
        await connected(transport)
        streams = present(transport._streams)
        stream = streams.to(2)
        for answered in (broken, answers.append):
            transport.ask(2, BULK, b"", answered=answered, timeout_ms=5000, bulk=True)
        await until(lambda: len(kept) == 2)
        for reply in kept:
            reply(b"x", ())
        await until(lambda: bool(answers))
        assert answers == [(b"x", [])]
        assert streams.to(2) is stream
        assert [str(context["exception"]) for context in told] == ["on purpose"]
    finally:
        await transport.stop()
        await server.stop()


async def test_peer_connection_that_sends_its_hello_after_the_stop_is_closed(
    directory: Path,
) -> None:
    """The client has connected before the stop, and sends its first message afterwards."""
    one, _ = pair(directory)
    async with running(one):
        connected = await asyncio.open_unix_connection(str(directory / "1"))
        await asyncio.sleep(0.05)
    connected[1].write(HELLO_OF_TWO + packed(What.REQUEST, 1))
    await refused(connected)
    assert one.heard == []


async def test_peer_client_accepted_during_the_stop_is_refused(directory: Path) -> None:
    one, _ = pair(directory)
    await one.streams.start()
    with socket.socket(socket.AF_UNIX) as newcomer:
        newcomer.connect(str(directory / "1"))
        newcomer.sendall(HELLO_OF_TWO + packed(What.REQUEST, 1))
        await one.streams.stop()
        await asyncio.sleep(0.05)
    assert one.heard == []


@pytest.mark.in_turn
@pytest.mark.parametrize("turns", range(6))
def test_peer_streams_stop_leaves_no_connection_open(directory: Path, turns: int) -> None:
    """The stop also closes a connection at any stage of its acceptance."""

    async def scenario() -> None:
        one, two = pair(directory)
        async with running(one, two):
            await one.open_to(2)
            await two.open_to(1)
            with socket.socket(socket.AF_UNIX) as newcomer:
                newcomer.connect(str(directory / "1"))
                for _ in range(turns):
                    await asyncio.sleep(0)
                await one.streams.stop()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        uvloop = pytest.importorskip("uvloop")
        loop = uvloop.new_event_loop()
        loop.run_until_complete(scenario())
        loop.close()  # immediately, because open connections would warn by now
        gc.collect()
    assert [str(w.message) for w in caught if w.category is ResourceWarning] == []


async def test_peer_dialling_attempt_cancelled_late_leaves_no_stream(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the task is cancelled when it is connected, the loop closes the connection silently.

    The stream then gets no callback about its end.
    """
    one, two = pair(directory)
    opened, streams = one.streams.opened, one.streams
    seen: list[PeerStream] = []

    def give_up_once(stream: PeerStream) -> None:
        opened(stream)
        if stream.is_ours:
            seen.append(stream)
            streams._tasks[0].cancel()

    monkeypatch.setattr(streams, "opened", give_up_once)
    async with running(one, two):
        await until(lambda: bool(seen))
        await asyncio.sleep(0.05)
        assert streams.to(2) is None
        assert seen[0].send(What.REQUEST, BULK, 1, b"", []) == 0


async def test_peer_dialling_after_immediate_disconnects_slows_down(directory: Path) -> None:
    attempts = 0

    def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        writer.close()

    one, _ = pair(directory)
    server = await asyncio.start_unix_server(accept, str(directory / "2"))
    async with running(one):
        await asyncio.sleep(1.0)
        assert 1 < attempts < 20
    server.close()


async def test_peer_listener_that_cannot_bind_is_refused_with_a_clear_message(
    directory: Path,
) -> None:
    (directory / "1").mkdir()
    one, _ = pair(directory)
    with pytest.raises(PeerSocketError, match="cannot listen"):
        await one.streams.start()
    await one.streams.stop()


async def test_peer_hello_may_arrive_in_pieces(directory: Path) -> None:
    one, _ = pair(directory)
    async with running(one):
        reader, writer = await asyncio.open_unix_connection(str(directory / "1"))
        for byte in HELLO_OF_TWO + packed(What.REQUEST, 1, b"x"):
            writer.write(bytes([byte]))
            await asyncio.sleep(0.001)
        await read_answer(reader)
        assert one.heard[0][1].header == b"x"
        writer.close()


async def test_peer_stream_sends_empty_frames(directory: Path) -> None:
    one, two = pair(directory)
    async with running(one, two):
        stream = await one.open_to(2)
        frames = [memoryview(b""), memoryview(bytes(70_000)), memoryview(b"x")[1:]]
        stream.send(What.REQUEST, BULK, 1, b"", frames)
        await until(lambda: bool(one.heard))
        assert [len(frame) for frame in one.heard[0][1].frames] == [0, 70_000, 0]
