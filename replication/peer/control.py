"""The ZeroMQ sockets of one broker on its event loop, for heartbeats and other control messages.

A ROUTER is bound, and a DEALER connects to every peer. ZeroMQ's file descriptor is edge-triggered
for both directions. The descriptor becomes readable once, and any call on the socket may consume
that signal. Therefore the socket is read until it is empty, and EVENTS is checked after every send.

A message is one ZeroMQ part with its envelope and header, followed by its frames. A single small
frame is in the first part, since another part costs more than the copy. Large frames are not
copied.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import zmq
from zmq.utils.monitor import parse_monitor_message

from .address import node_of
from .handlers import ENVELOPE_BYTES, Buffer, PeerPacket, What, envelope, open_envelope
from .sockets import PeerSockets, Socket

_COPY_BELOW_BYTES = zmq.COPY_THRESHOLD  # smaller frames are always copied by ZeroMQ
_RIDES_BELOW_BYTES = _COPY_BELOW_BYTES // 2
_DRAIN_MESSAGES = 64  # after this number other tasks run on the event loop
_LINK_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED
_UNREACHABLE = (zmq.EAGAIN, zmq.EHOSTUNREACH)
# Plain numbers, because pyzmq's flags cost microseconds in each message.
_EVENTS = zmq.EVENTS
_POLLIN, _NOBLOCK, _MORE = int(zmq.POLLIN), int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_send = zmq.backend.Socket.send  # without pyzmq's Python layer, which would create a Frame


class ControlChannel:
    """A DEALER socket that is connected to `peer`, or this broker's ROUTER, with `peer` None."""

    __slots__ = ("_channels", "is_scheduled", "monitor", "peer", "socket")
    is_bulk = False

    def __init__(self, channels: "ControlChannels", sock: Socket, peer: int | None) -> None:
        self.socket = sock
        self.peer = peer
        self.monitor: Socket | None = None
        self.is_scheduled = False
        self._channels = channels

    def send(
        self,
        what: What,
        kind: int,
        correlation_id: int,
        header: bytes,
        frames: Sequence[Buffer],
        routing_id: bytes = b"",
    ) -> int:
        """Send a message, and return its size in bytes, or 0 if it could not be sent.

        It cannot be sent without a connection, or while the socket is full.
        """
        sock = self.socket
        if sock.closed:
            return 0
        parts = _parts(what, kind, correlation_id, header, frames)
        if routing_id:
            parts = (routing_id, *parts)
        left, sent_bytes = len(parts), 0
        try:
            for part in parts:
                left -= 1
                size_bytes = part.nbytes if type(part) is memoryview else len(part)
                sent_bytes += size_bytes
                flags = _MORE if left else _NOBLOCK
                if size_bytes < _COPY_BELOW_BYTES:
                    _send(sock, part, flags, True, False)
                else:
                    sock.send(part, flags, copy=False)
        except zmq.ZMQError as error:
            if error.errno not in _UNREACHABLE:
                raise
            return 0
        finally:
            if not self.is_scheduled:
                self._channels.look_again(self)  # a failed send also consumes the signal
        return sent_bytes


class _Asker(NamedTuple):
    """A connection from a peer to this broker's ROUTER, over which the reply is sent."""

    router: ControlChannel
    routing_id: bytes
    is_bulk = False

    def send(
        self, what: What, kind: int, correlation_id: int, header: bytes, frames: Sequence[Buffer]
    ) -> int:
        return self.router.send(what, kind, correlation_id, header, frames, self.routing_id)


ControlLink = ControlChannel | _Asker
Received = Callable[[ControlLink, int, bool, PeerPacket, int], object]


class ControlChannels:
    """All ZeroMQ sockets of one broker. The callbacks run on the event loop that called `start`."""

    def __init__(
        self,
        peers: Iterable[int],
        *,
        received: Received,
        event: Callable[[ControlChannel, int, int], object],
        dropped: dict[str, int],
    ) -> None:
        """Store the callbacks, and `dropped`, in which dropped messages are counted by reason.

        received: gets a link, the peer, whether this broker connected the link, a message, and its
        bytes. event: gets a channel, its peer, and the event of ZeroMQ's monitor.
        """
        self._peers = frozenset(peers)
        self._received, self._event = received, event
        self._dropped = dropped
        self._context: zmq.Context[Socket] | None = None
        self._router: ControlChannel | None = None
        self._dealers: dict[int, ControlChannel] = {}

    def start(self, open_sockets: Callable[["zmq.Context[Socket]"], PeerSockets]) -> None:
        """Bind the ROUTER, and begin to connect a DEALER to each peer.

        Raises PeerSocketError, with a sentence for users.
        """
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context(io_threads=1)
        sockets = open_sockets(self._context)
        self._router = ControlChannel(self, sockets.listen(), None)
        self._watch(self._router)
        for peer in self._peers:
            self._dial(sockets, peer)

    async def stop(self) -> None:
        if self._context is None:
            return
        for channel in [*self._dealers.values(), *([self._router] if self._router else ())]:
            self._loop.remove_reader(_descriptor(channel.socket))
            if channel.monitor is not None:
                self._loop.remove_reader(_descriptor(channel.monitor))
                channel.socket.disable_monitor()
                channel.monitor.close(0)
            channel.socket.close(0)
        self._router, self._dealers = None, {}
        context, self._context = self._context, None
        await self._loop.run_in_executor(None, context.term)

    def to(self, peer: int) -> ControlChannel | None:
        """Return the channel to the peer, or None for an unknown peer or after `stop`."""
        return self._dealers.get(peer)

    def look_again(self, channel: ControlChannel) -> None:
        """Read a socket in the next turn of the event loop if it has input.

        The caller calls this after other calls on the socket, which may have cleared its signal.
        """
        if _has_input(channel.socket):
            channel.is_scheduled = True
            self._loop.call_soon(self._drain, channel)

    def _dial(self, sockets: PeerSockets, peer: int) -> None:
        dealer, monitor = sockets.dial(peer, _LINK_EVENTS)
        channel = self._dealers[peer] = ControlChannel(self, dealer, peer)
        channel.monitor = monitor
        self._loop.add_reader(_descriptor(monitor), self._read_monitor, channel, monitor)
        self._loop.call_soon(self._read_monitor, channel, monitor)
        self._watch(channel)

    def _watch(self, channel: ControlChannel) -> None:
        self._loop.add_reader(_descriptor(channel.socket), self._drain, channel)
        self.look_again(channel)

    def _read_monitor(self, channel: ControlChannel, monitor: Socket) -> None:
        assert channel.peer is not None
        while not monitor.closed and _has_input(monitor):
            event = parse_monitor_message(monitor.recv_multipart(zmq.NOBLOCK))["event"]
            self._event(channel, channel.peer, event)

    def _drain(self, channel: ControlChannel) -> None:
        """Receive until the socket is empty, because the socket signals again only then."""
        channel.is_scheduled = True  # sends in the meantime need not check for input
        sock = channel.socket
        try:
            for _ in range(_DRAIN_MESSAGES):
                if sock.closed:
                    return
                sender = sock.recv(_NOBLOCK) if channel.peer is None else b""
                parts = [part := sock.recv(_NOBLOCK, False)]
                while part.more:
                    parts.append(part := sock.recv(_NOBLOCK, False))
                self._take(channel, sender, parts)
                if sock.closed or not _has_input(sock):  # a check is cheaper than an exception
                    channel.is_scheduled = False
                    return
            self._loop.call_soon(self._drain, channel)
        except zmq.Again:
            channel.is_scheduled = False
        except BaseException:
            self._loop.call_soon(self._drain, channel)
            raise

    def _take(self, channel: ControlChannel, sender: bytes, parts: list[zmq.Frame]) -> None:
        """Pass a received message to the callback `received`.

        A malformed message, or a message of an unknown broker, is counted as dropped. sender: the
        routing id that a ROUTER puts before the message.
        """
        peer = channel.peer
        link: ControlLink = channel
        if peer is None:
            peer = node_of(sender)
            if peer is None or peer not in self._peers:
                self._dropped["stranger"] += 1
                return
            link = _Asker(channel, sender)
        message = _message(parts)
        if message is None:
            self._dropped["malformed"] += 1
            return
        size_bytes = len(sender) + sum(map(len, parts))
        self._received(link, peer, channel.peer is not None, message, size_bytes)


def _parts(
    what: What, kind: int, correlation_id: int, header: bytes, frames: Sequence[Buffer]
) -> tuple[Buffer, ...]:
    first = envelope(what, kind, correlation_id, len(header))
    if len(frames) == 1 and len(frames[0]) < _RIDES_BELOW_BYTES:
        return (b"".join((first, header, frames[0])),)
    return (first + header, *frames)


def _message(parts: list[zmq.Frame]) -> PeerPacket | None:
    first = parts[0].bytes
    if len(first) < ENVELOPE_BYTES:
        return None
    what, kind, correlation_id, header_bytes = open_envelope(first)
    header_end = ENVELOPE_BYTES + header_bytes
    if len(first) < header_end:
        return None
    frames: list[Buffer] = []
    if len(first) > header_end:
        frames.append(memoryview(first)[header_end:])
    frames += [part.bytes for part in parts[1:]]
    return PeerPacket(what, kind, correlation_id, first[ENVELOPE_BYTES:header_end], frames)


def _descriptor(sock: Socket) -> int:
    return int(sock.get(zmq.FD))


def _has_input(sock: Socket) -> bool:
    return bool(sock.get(_EVENTS) & _POLLIN)  # type: ignore[operator]
