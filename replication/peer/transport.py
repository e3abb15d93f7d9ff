"""The link between brokers: one-way messages, and requests with a reply and a deadline.

Two ROUTERs are bound, two DEALERs connect to every peer. They are used raw on the event loop:
ZeroMQ's file descriptor is edge-triggered and covers both directions, so it becomes readable
once, and any call on the socket may swallow that signal. Hence we read until the socket is
empty, and look at EVENTS after every send.

A message is its envelope and header, and frames of records. One small frame rides in the same
part of ZeroMQ: another part costs more than the copy. Large ones are parts of their own and not
copied: what is sent must not change afterwards.

A request ends with its reply, or PeerTimeout, or PeerUnavailable as soon as the connection is
seen to break; in the last two the peer may have acted on it.
"""

import asyncio
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import zmq
from zmq.utils.monitor import parse_monitor_message

from .address import CHANNELS, node_of, prepare_directory
from .handlers import (
    ENVELOPE_BYTES,
    Answered,
    Buffer,
    PeerError,
    PeerHandlers,
    PeerTimeout,
    PeerUnavailable,
    What,
    envelope,
    open_envelope,
)
from .link_gate import LinkGate
from .link_state import GRACE_MS, LinkState
from .requests import RequestsUnderWay
from .sockets import PeerSockets, Socket

__all__ = ["PeerError", "PeerTimeout", "PeerTransport", "PeerUnavailable"]

_COPY_BELOW_BYTES = zmq.COPY_THRESHOLD  # below it ZeroMQ copies whatever is asked for
_RIDES_BELOW_BYTES = _COPY_BELOW_BYTES // 2
_DRAIN_MESSAGES = 64  # then others have their turn on the event loop
_LINK_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED
_UNREACHABLE = (zmq.EAGAIN, zmq.EHOSTUNREACH)
# Plain numbers: flags of pyzmq cost microseconds, and these are used for each message.
_EVENTS = zmq.EVENTS
_POLLIN, _NOBLOCK, _MORE = int(zmq.POLLIN), int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_send = zmq.backend.Socket.send  # without the Python layer above it, which makes a Frame first


@dataclass(slots=True, eq=False)
class _Channel:
    """One ZeroMQ socket on the event loop."""

    socket: Socket
    is_bulk: bool
    peer: int | None = None  # None: our ROUTER, whose messages bear their sender
    monitor: Socket | None = None
    is_scheduled: bool = False


class PeerTransport(PeerHandlers):
    """All links of one broker. Use it on the event loop that started it."""

    def __init__(
        self,
        node_id: int,
        socket_directory: Path,
        peers: Iterable[int],
        *,
        max_message_bytes: int,
        gate: LinkGate | None = None,
    ) -> None:
        super().__init__(node_id)
        self.peers = frozenset(peers) - {node_id}
        self.gate = gate or LinkGate()
        self.bytes_sent: dict[int, int] = dict.fromkeys(self.peers, 0)
        self.bytes_received: dict[int, int] = dict.fromkeys(self.peers, 0)
        self._directory = socket_directory
        self._max_message_bytes = max_message_bytes
        self._context: zmq.Context[Socket] | None = None
        self._routers: list[_Channel] = []
        self._dealers: dict[tuple[int, bool], _Channel] = {}
        self._links = {peer: LinkState() for peer in self.peers}

    async def start(self) -> None:
        """Bind, and begin to connect. Raises PeerSocketError with a sentence for people."""
        self._loop = asyncio.get_running_loop()
        self._under_way = RequestsUnderWay(self._loop, int.from_bytes(os.urandom(7)))
        self.gate.attach(self._loop)
        prepare_directory(self._directory)
        self._context = zmq.Context(io_threads=1)
        sockets = PeerSockets(self._context, self._directory, self.node_id, self._max_message_bytes)
        try:
            for name in CHANNELS:
                channel = _Channel(sockets.listen(name), name == "bulk")
                self._routers.append(channel)
                self._watch(channel)
            for peer in self.peers:
                for name in CHANNELS:
                    self._dial(sockets, name, peer)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close everything; requests under way end with PeerUnavailable."""
        for channel in [*self._routers, *self._dealers.values()]:
            self._loop.remove_reader(_descriptor(channel.socket))
            if channel.monitor is not None:
                self._loop.remove_reader(_descriptor(channel.monitor))
                channel.socket.disable_monitor()
                channel.monitor.close(0)
            channel.socket.close(0)
        self._routers, self._dealers = [], {}
        self._under_way.fail(PeerUnavailable("this broker is stopping"))
        if self._context is not None:
            context, self._context = self._context, None
            await self._loop.run_in_executor(None, context.term)

    def is_up(self, peer: int) -> bool:
        """Whether the control link to the peer stands, as `on_peer_change` last told."""
        return self._links[peer].is_up

    def send(self, peer: int, kind: int, payload: bytes) -> bool:
        """Send without an answer; never blocks. False: unreachable, or its queue is full."""
        channel = self._dealers.get((peer, False))
        if channel is None:
            return False
        return self._post(channel, peer, _parts(What.ONE_WAY, kind, 0, payload, ()))

    def ask(
        self,
        peer: int,
        kind: int,
        header: bytes,
        frames: Sequence[Buffer] = (),
        *,
        answered: Answered,
        timeout_ms: int,
        bulk: bool = False,
    ) -> None:
        channel = self._dealers.get((peer, bulk))
        if channel is None:
            error = PeerUnavailable(f"broker {peer} is not a peer, or this one is stopped")
            asyncio.get_running_loop().call_soon(answered, error)
            return
        correlation_id = self._under_way.add(answered, channel, peer, timeout_ms)
        parts = _parts(What.REQUEST, kind, correlation_id, header, frames)
        if not self._post(channel, peer, parts):
            self._under_way.end(correlation_id, PeerUnavailable(f"no connection to broker {peer}"))

    # -- sockets

    def _dial(self, sockets: PeerSockets, name: str, peer: int) -> None:
        dealer, monitor = sockets.dial(name, peer, _LINK_EVENTS)
        channel = _Channel(dealer, name == "bulk", peer, monitor)
        self._dealers[peer, channel.is_bulk] = channel
        self._loop.add_reader(_descriptor(monitor), self._read_monitor, channel, monitor)
        self._loop.call_soon(self._read_monitor, channel, monitor)
        self._watch(channel)

    def _watch(self, channel: _Channel) -> None:
        self._loop.add_reader(_descriptor(channel.socket), self._drain, channel)
        self._look_again(channel)

    def _look_again(self, channel: _Channel) -> None:
        """Make up for a signal that a call on the socket may have swallowed."""
        if _has_input(channel.socket):
            channel.is_scheduled = True
            self._loop.call_soon(self._drain, channel)

    def _drain(self, channel: _Channel) -> None:
        """Receive until the socket says that it is empty: only then is its signal armed anew."""
        channel.is_scheduled = True  # what is sent meanwhile need not look
        sock = channel.socket
        try:
            for _ in range(_DRAIN_MESSAGES):
                if sock.closed:
                    return
                sender = sock.recv(_NOBLOCK) if channel.peer is None else b""
                parts = [part := sock.recv(_NOBLOCK, False)]
                while part.more:
                    parts.append(part := sock.recv(_NOBLOCK, False))
                self._received(channel, sender, parts)
                if sock.closed or not _has_input(sock):  # asking costs less than an exception
                    channel.is_scheduled = False
                    return
            self._loop.call_soon(self._drain, channel)
        except zmq.Again:
            channel.is_scheduled = False
        except BaseException:
            self._loop.call_soon(self._drain, channel)
            raise

    # -- sending

    def _post(self, channel: _Channel, peer: int, parts: Sequence[Buffer]) -> bool:
        if self.gate.is_active:
            is_reply = channel.peer is None
            kind = None if is_reply else open_envelope(bytes(parts[0][:ENVELOPE_BYTES]))[1]
            self.gate.admit(peer, True, partial(self._post_now, channel, peer, parts), kind)
            return True
        return self._post_now(channel, peer, parts)

    def _post_now(self, channel: _Channel, peer: int, parts: Sequence[Buffer]) -> bool:
        sock = channel.socket
        if sock.closed:
            return False
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
            self.dropped["undelivered"] += 1
            return False
        finally:
            if not channel.is_scheduled:
                self._look_again(channel)  # a send that fails swallows the signal, too
        self.bytes_sent[peer] += sent_bytes
        return True

    def _reply(
        self,
        channel: _Channel,
        peer: int,
        routing_id: bytes,
        correlation_id: int,
        header: bytes,
        frames: Sequence[Buffer] = (),
        what: What = What.REPLY,
    ) -> bool:
        parts = _parts(what, 0, correlation_id, header, frames)
        return self._post(channel, peer, (routing_id, *parts))

    # -- receiving

    def _received(self, channel: _Channel, sender: bytes, parts: list[zmq.Frame]) -> None:
        """`sender` is the routing id, which a ROUTER puts before the parts of a message."""
        peer = channel.peer
        if peer is None:
            peer = node_of(sender)
            if peer is None or peer not in self.peers:
                self.dropped["stranger"] += 1
                return
        self.bytes_received[peer] += len(sender) + sum(map(len, parts))
        if self.gate.is_active:
            deliver = partial(self._dispatch, channel, peer, sender, parts)
            self.gate.admit(peer, False, deliver)
        else:
            self._dispatch(channel, peer, sender, parts)

    def _dispatch(
        self, channel: _Channel, peer: int, sender: bytes, parts: list[zmq.Frame]
    ) -> None:
        first = parts[0].buffer if channel.is_bulk else parts[0].bytes
        if len(first) < ENVELOPE_BYTES:
            self.dropped["malformed"] += 1
            return
        what, kind, correlation_id, header_bytes = open_envelope(first)
        header_end = ENVELOPE_BYTES + header_bytes
        if len(first) < header_end:
            self.dropped["malformed"] += 1
            return
        header = bytes(first[ENVELOPE_BYTES:header_end])
        frames: list[Buffer] = []
        if len(first) > header_end:
            frames.append(memoryview(first)[header_end:])
        frames += [part.buffer if channel.is_bulk else part.bytes for part in parts[1:]]
        is_ours = channel.peer is not None
        if is_ours and what in (What.REPLY, What.FAILURE):
            outcome = (header, frames) if what == What.REPLY else _failure(peer, header)
            if not self._under_way.replied(correlation_id, channel, outcome):
                self.dropped["late"] += 1
        elif not is_ours and what == What.REQUEST:
            reply = partial(self._reply, channel, peer, sender, correlation_id)
            self._asked(peer, (kind, channel.is_bulk), header, frames, reply)
        elif not is_ours and what == What.ONE_WAY:
            self._deliver(peer, kind, header)
        else:
            self.dropped["malformed"] += 1

    # -- links

    def _read_monitor(self, channel: _Channel, monitor: Socket) -> None:
        while not monitor.closed and _has_input(monitor):
            event = parse_monitor_message(monitor.recv_multipart(zmq.NOBLOCK))["event"]
            if event == zmq.EVENT_DISCONNECTED:
                broken = PeerUnavailable(f"the connection to broker {channel.peer} broke")
                self._under_way.fail(broken, channel)
            if not channel.is_bulk and channel.peer is not None:
                self._link_event(channel.peer, self._links[channel.peer], event)

    def _link_event(self, peer: int, link: LinkState, event: int) -> None:
        if event == zmq.EVENT_DISCONNECTED:
            link.closed(_monotonic_ms())
            self._loop.call_later((GRACE_MS + 1) / 1000, self._grace_over, peer, link)
            self._link_changed(peer, False)
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            if link.connected():
                self._changed(peer, True)
            self._link_changed(peer, True)
        elif link.refused():
            self._changed(peer, False)

    def _grace_over(self, peer: int, link: LinkState) -> None:
        if self._context is not None and link.grace_over(_monotonic_ms()):
            self._changed(peer, False)


def _parts(
    what: What, kind: int, correlation_id: int, header: bytes, frames: Sequence[Buffer]
) -> tuple[Buffer, ...]:
    first = envelope(what, kind, correlation_id, len(header))
    if len(frames) == 1 and len(frames[0]) < _RIDES_BELOW_BYTES:
        return (b"".join((first, header, frames[0])),)
    return (first + header, *frames)


def _descriptor(sock: Socket) -> int:
    return int(sock.get(zmq.FD))


def _has_input(sock: Socket) -> bool:
    return bool(sock.get(_EVENTS) & _POLLIN)  # type: ignore[operator]


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _failure(peer: int, reason: bytes) -> PeerUnavailable:
    return PeerUnavailable(f"broker {peer} failed: {reason.decode(errors='replace')}")
