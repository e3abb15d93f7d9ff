"""The streams between brokers, for records. The requesting broker connects.

A request and its answer of 16 kB cost two brokers 28 µs here and 93 µs by ZeroMQ, which passes each
message between threads (docs/decisions/0010). Control messages stay on ZeroMQ, so a heartbeat never
waits behind megabytes.

A stream begins with a hello, which names the connecting broker and the intended broker. All later
messages are from the connecting broker, or are answers to it. With TLS, each side's certificate
must have `broker-ID` among its DNS names, with the id of its broker. A newer stream of a broker
ends the previous stream and its unanswered requests, because the broker has restarted, or has lost
the other end.
"""

import asyncio
import logging
import socket
import ssl
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...runtime.background_task import background_task, end_tasks
from ...runtime.rate_limited_log import LimitedLog
from ...wire.frame_memory import FrameMemory
from ...wire.framing import FrameReceiver
from ...wire.primitives import MalformedFrame
from .address import PeerSocketError
from .handlers import Buffer, PeerPacket, What
from .sockets import listening_socket
from .stream_message import decode, encode

StreamAddress = Path | tuple[str, int]  # a Unix socket, or host and port

RECONNECT_INTERVAL_S = 0.015
RECONNECT_INTERVAL_MAX_S = 0.1  # limits the attempts to connect to a dead peer
CONNECT_TIMEOUT_S = 5.0
HELLO_TIMEOUT_S = 5.0
STOP_TIMEOUT_S = 1.0
UNSENT_BYTES_MAX = 4 * 1024 * 1024  # above this a stream is full
SEND_BUFFER_BYTES = 2 * 1024 * 1024  # for a Unix socket; further bytes wait for both event loops
_MAGIC = b"oncelog1"
# The length of the rest, _MAGIC, the connecting broker, the intended broker.
_HELLO = struct.Struct(">I8sII")
_HELLO_BYTES = _HELLO.size - 4


class StreamTls(NamedTuple):
    """SSL contexts that require the other side's certificate, for streams over TCP."""

    listening: ssl.SSLContext
    dialling: ssl.SSLContext


class PeerStream(asyncio.BufferedProtocol):
    """One connection. `peer` is the broker at the other end, or None before its hello."""

    is_bulk = True

    def __init__(self, streams: "PeerStreams", dialled: int | None = None) -> None:
        self.peer = dialled
        self.is_ours = dialled is not None  # True if this broker sends requests on the stream
        self.ended = asyncio.get_running_loop().create_future()
        self._streams = streams
        max_bytes = streams.max_message_bytes
        # Answers of a broker to which this one has connected are large, and their length is
        # trusted.
        memory = streams.frame_memory
        self._receiver = FrameReceiver(max_bytes, memory, is_trusted=self.is_ours)
        self.get_buffer = self._receiver.get_buffer  # called by the event loop before each read
        self._transport: asyncio.Transport | None = None
        self._hello_timer: asyncio.TimerHandle | None = None
        self._is_full = False

    def send(
        self, what: What, kind: int, correlation_id: int, header: bytes, frames: Sequence[Buffer]
    ) -> int:
        """Send a message, and return its size in bytes, or 0 if it could not be sent.

        It cannot be sent if the peer is lost, or if it is a request and the peer is too slow. An
        answer is never refused, since the requesting broker would wait for the answer until the
        deadline. Instead no more of its requests are read while the stream is full.
        """
        if self._transport is None or (self._is_full and self.is_ours):
            return 0
        parts, size_bytes = encode(what, kind, correlation_id, header, frames)
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)
        return size_bytes

    def abort(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    # -- called by the event loop

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        if not self._streams.made(self):
            self.abort()
        elif self.peer is None:
            loop = asyncio.get_running_loop()
            self._hello_timer = loop.call_later(HELLO_TIMEOUT_S, self.abort)
        elif self._is_certified(self.peer):
            transport.write(_HELLO.pack(_HELLO_BYTES, _MAGIC, self._streams.node_id, self.peer))
            self._streams.opened(self)
        else:
            self._refuse("stranger")

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._receiver.buffer_updated(nbytes):
                peer = self.peer
                if self._transport is None:
                    return
                if peer is None:
                    self._introduced(frame)
                    continue
                message = decode(frame)
                try:
                    self._streams.received(self, peer, self.is_ours, message, len(frame))
                except Exception as error:
                    self._report(peer, error)
        except MalformedFrame:
            self._refuse("malformed")

    def pause_writing(self) -> None:
        self._is_full = True
        if not self.is_ours and self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_full = False
        if not self.is_ours and self._transport is not None:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._cancel_hello_timer()
        if not self.ended.done():
            self.ended.set_result(None)
        self._streams.closed(self)

    def _report(self, peer: int, error: Exception) -> None:
        """Report an exception of a message's handler to the event loop. The stream stays open."""
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"a message from broker {peer}: {error!r}", "exception": error}
        )

    # -- the hello

    def _introduced(self, hello: memoryview) -> None:
        if len(hello) != _HELLO_BYTES or bytes(hello[:8]) != _MAGIC:
            raise MalformedFrame("it does not begin with a hello")
        peer, meant = struct.unpack_from(">II", hello, 8)
        is_known = peer in self._streams.peers and meant == self._streams.node_id
        if is_known and self._is_certified(peer):
            self.peer = peer
            self._cancel_hello_timer()
            self._streams.opened(self)
        else:
            self._refuse("stranger")

    def _is_certified(self, peer: int) -> bool:
        assert self._transport is not None
        if self._streams.tls is None:
            return True
        names = self._transport.get_extra_info("peercert", {}).get("subjectAltName", ())
        return ("DNS", f"broker-{peer}") in names

    def _cancel_hello_timer(self) -> None:
        """Cancel the timer, which would keep a closed stream and its buffers in memory."""
        if self._hello_timer is not None:
            self._hello_timer.cancel()

    def _refuse(self, reason: str) -> None:
        self._streams.dropped[reason] += 1
        self.abort()


class PeerStreams:
    """All streams of one broker, one to each peer for its own requests, and one from each peer."""

    def __init__(
        self,
        node_id: int,
        address: StreamAddress,
        peers: Mapping[int, StreamAddress],
        *,
        max_message_bytes: int,
        received: Callable[[PeerStream, int, bool, PeerPacket, int], object],
        lost: Callable[[PeerStream, int], object],
        dropped: dict[str, int],
        tls: StreamTls | None = None,
    ) -> None:
        """Store addresses and callbacks.

        received: gets a stream, the peer, whether this broker sends the requests, a message, and
        its bytes. lost: gets a stream of this broker's requests, and the peer.
        """
        self.node_id = node_id
        self.peers = peers
        self.max_message_bytes = max_message_bytes
        self.received = received
        self.dropped = dropped
        self.tls = tls
        self.frame_memory = FrameMemory()
        self._address = address
        self._lost = lost
        self._limited_log = LimitedLog(logging.getLogger(__name__))
        # By peer, and whether this broker has connected.
        self._streams: dict[tuple[int, bool], PeerStream] = {}
        self._open: set[PeerStream] = set()  # those, and connections before their hello
        self._is_stopped = False
        self._is_wanted = {peer: asyncio.Event() for peer in peers}
        self._listener: socket.socket | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._entering: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen for streams of peers, and begin to open a stream to each peer.

        Raises PeerSocketError, with a sentence for users.
        """
        try:
            self._listener = listening_socket(self._address)
        except OSError as error:
            raise PeerSocketError(f"cannot listen at {self._address}: {error}") from error
        for peer in self.peers:
            self._tasks.append(background_task(f"stream to broker {peer}", self._keep(peer)))
        self._listen()

    def _listen(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        """Accept a connection without the event loop's own methods.

        A Unix socket keeps the system's send buffer unless it is set before the event loop gets the
        socket. Also, sock_accept loses an accepted connection if it is cancelled in the same turn
        of the event loop.
        """
        loop = asyncio.get_running_loop()
        try:
            accepted, _ = listener.accept()
        except OSError:  # the client has closed, or the process has too many open files
            loop.remove_reader(listener)
            loop.call_later(RECONNECT_INTERVAL_MAX_S, self._listen)
            return
        accepted.setblocking(False)
        self._entering.add(task := loop.create_task(self._enter(accepted)))
        task.add_done_callback(lambda task: self._entered(task, accepted))

    async def _enter(self, accepted: socket.socket) -> None:
        context = self.tls.listening if self.tls else None
        if accepted.family == socket.AF_UNIX:  # macOS: EINVAL if the client has closed
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        loop, stream = asyncio.get_running_loop(), PeerStream(self)
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                await loop.connect_accepted_socket(lambda: stream, accepted, ssl=context)
        except BaseException:
            stream.connection_lost(None)  # uvloop does not notify it, as in `_dial`
            raise

    def _entered(self, task: asyncio.Task[None], accepted: socket.socket) -> None:
        """Close an accepted connection after a failed or cancelled handshake, and log the error."""
        self._entering.discard(task)
        if task.cancelled():
            accepted.close()
        elif (error := task.exception()) is not None:
            self._report("accepting a stream of another broker", error)
            accepted.close()

    def _report(self, attempt: str, error: BaseException) -> None:
        """Log the error of a failed connection, unless it is expected (an OSError).

        SSLError and TimeoutError are OSErrors.
        """
        if not isinstance(error, OSError):
            now_s = asyncio.get_running_loop().time()
            self._limited_log.log(
                logging.ERROR, attempt, now_s, "%s failed: %r", attempt, error, error=error
            )

    async def stop(self) -> None:
        """Close all streams, and wait until they are closed."""
        self._is_stopped = True
        listener, self._listener = self._listener, None
        if listener is not None:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        await end_tasks(*self._tasks, *self._entering)
        ended = [stream.ended for stream in self._open]
        for stream in list(self._open):
            stream.abort()
        if ended:
            await asyncio.wait(ended, timeout=STOP_TIMEOUT_S)

    def to(self, peer: int) -> PeerStream | None:
        """Return the open stream for requests to the peer, or None without one."""
        return self._streams.get((peer, True))

    def dial_now(self, peer: int) -> None:
        """Connect to a peer without waiting for the next attempt, because the peer is up."""
        self._is_wanted[peer].set()

    def made(self, stream: PeerStream) -> bool:
        """Record a new connection. Return whether it may be used, which is False after `stop`."""
        self._open.add(stream)
        return not self._is_stopped

    def opened(self, stream: PeerStream) -> None:
        assert stream.peer is not None
        key = stream.peer, stream.is_ours
        former = self._streams.get(key)
        self._streams[key] = stream
        if former is not None:
            former.abort()

    def closed(self, stream: PeerStream) -> None:
        was_open = stream in self._open
        self._open.discard(stream)
        if stream.peer is None or not was_open:
            return
        key = stream.peer, stream.is_ours
        if self._streams.get(key) is stream:
            del self._streams[key]
        if stream.is_ours:
            self._lost(stream, stream.peer)

    async def _keep(self, peer: int) -> None:
        """Keep a stream to one peer open forever, with growing pauses between attempts."""
        wait_s = RECONNECT_INTERVAL_S
        is_wanted = self._is_wanted[peer]
        while True:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    stream = await self._dial(peer)
            except Exception as error:  # the next attempt may succeed after any error
                self._report(f"dialling broker {peer}", error)
                is_wanted.clear()
                try:
                    async with asyncio.timeout(wait_s):
                        await is_wanted.wait()
                except TimeoutError:
                    pass
                wait_s = min(2 * wait_s, RECONNECT_INTERVAL_MAX_S)
            else:
                begun_s = asyncio.get_running_loop().time()
                await stream.ended
                if asyncio.get_running_loop().time() - begun_s > RECONNECT_INTERVAL_MAX_S:
                    wait_s = RECONNECT_INTERVAL_S
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RECONNECT_INTERVAL_MAX_S)

    async def _dial(self, peer: int) -> PeerStream:
        loop, address, stream = asyncio.get_running_loop(), self.peers[peer], PeerStream(self, peer)
        try:
            if isinstance(address, Path):
                await loop.create_unix_connection(lambda: stream, str(address))
            else:
                context = self.tls.dialling if self.tls else None
                await loop.create_connection(
                    lambda: stream,
                    *address,
                    ssl=context,
                    server_hostname=f"broker-{peer}" if context else None,
                )
        except BaseException:
            # Cancelled after it was connected: uvloop closes the connection without notifying the
            # stream.
            stream.connection_lost(None)
            raise
        return stream
