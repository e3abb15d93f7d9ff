"""The link between brokers, for one-way messages and for requests with a reply and a deadline.

Control messages, such as heartbeats, use ZeroMQ (`control`). Requests for records (`bulk`) use
streams (`streams`). Both have the same envelope. Buffers are not copied, so the caller must not
change them after sending. A request ends with its reply, with PeerTimeout, or with PeerUnavailable
as soon as the connection is found broken. After PeerTimeout and PeerUnavailable the peer may have
executed the request.
"""

import asyncio
import os
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import zmq

from .address import prepare_directory, socket_path
from .control import ControlChannel, ControlChannels, ControlLink
from .handlers import (
    Answered,
    Buffer,
    PeerError,
    PeerHandlers,
    PeerPacket,
    PeerTimeout,
    PeerUnavailable,
    What,
)
from .link_gate import LinkGate
from .link_state import GRACE_MS, LinkState
from .requests import RequestsUnderWay
from .sockets import PeerSockets
from .streams import PeerStream, PeerStreams

__all__ = ["PeerError", "PeerTimeout", "PeerTransport", "PeerUnavailable"]
_ONE_WAY, _REQUEST, _REPLY, _FAILURE = What  # for fast comparisons with the role of a message


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
        self.messages_sent = 0
        self.bytes_received: dict[int, int] = dict.fromkeys(self.peers, 0)
        self._directory = socket_directory
        self._max_message_bytes = max_message_bytes
        self._links = {peer: LinkState() for peer in self.peers}
        self._control = ControlChannels(
            self.peers, received=self._received, event=self._link_event, dropped=self.dropped
        )
        self._streams: PeerStreams | None = None

    async def start(self) -> None:
        """Listen for peers, and begin to connect to them by ZeroMQ and by streams.

        Raises PeerSocketError, with a sentence for users.
        """
        self._loop = asyncio.get_running_loop()
        self._under_way = RequestsUnderWay(self._loop, int.from_bytes(os.urandom(7)))
        self.gate.attach(self._loop)
        prepare_directory(self._directory)
        self._streams = PeerStreams(
            self.node_id,
            socket_path(self._directory, "bulk", self.node_id),
            {peer: socket_path(self._directory, "bulk", peer) for peer in self.peers},
            max_message_bytes=self._max_message_bytes,
            received=self._received,
            lost=self._broken,
            dropped=self.dropped,
        )
        try:
            await self._streams.start()  # before peers can detect this broker
            self._control.start(self._open_sockets)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close everything. Requests in flight end with PeerUnavailable."""
        streams, self._streams = self._streams, None
        if streams is not None:
            await streams.stop()
        self._under_way.fail(PeerUnavailable("this broker is stopping"))
        await self._control.stop()

    def is_up(self, peer: int) -> bool:
        """Return whether the control link to the peer is up, as last reported."""
        return self._links[peer].is_up

    def send(self, peer: int, kind: int, payload: bytes) -> bool:
        """Send a message without an answer. Return False if it cannot be sent now."""
        channel = self._control.to(peer)
        return channel is not None and self._send(channel, peer, 0, payload, (), _ONE_WAY, kind)

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
        link: ControlChannel | PeerStream | None = None
        if not bulk:
            link = self._control.to(peer)
        elif self._streams is not None:
            link = self._streams.to(peer)
        if link is None:
            error = PeerUnavailable(f"there is no connection to broker {peer}")
            asyncio.get_running_loop().call_soon(answered, error)
            return
        correlation_id = self._under_way.add(answered, link, peer, timeout_ms)
        if not self._send(link, peer, correlation_id, header, frames, _REQUEST, kind):
            self._under_way.end(correlation_id, PeerUnavailable(f"no connection to broker {peer}"))

    def _open_sockets(self, context: "zmq.Context[zmq.Socket[bytes]]") -> PeerSockets:
        return PeerSockets(context, self._directory, self.node_id, self._max_message_bytes)

    # -- messages

    def _send(
        self,
        link: ControlLink | PeerStream,
        peer: int,
        correlation_id: int,
        header: bytes,
        frames: Sequence[Buffer] = (),
        what: What = What.REPLY,
        kind: int = 0,
        *,
        is_admitted: bool = False,
    ) -> bool:
        """Send a message over a link. Return False if the message could not be sent.

        Unless `is_admitted`, injected faults may hold, delay or drop the message, with the result
        True.
        """
        if self.gate.is_active and not is_admitted:
            rest = peer, correlation_id, header, frames, what, kind
            send_now = partial(self._send, link, *rest, is_admitted=True)
            self.gate.admit(peer, True, send_now, kind if what <= _REQUEST else None)
            return True
        try:
            sent_bytes = link.send(what, kind, correlation_id, header, frames)
        except Exception as error:  # a message that could not be sent was not received
            self._report(f"a message of kind {kind} to broker {peer}", error)
            sent_bytes = 0
        if not sent_bytes:
            self.dropped["undelivered"] += 1
            return False
        self.bytes_sent[peer] += sent_bytes
        self.messages_sent += 1
        return True

    def _received(
        self,
        link: ControlLink | PeerStream,
        peer: int,
        is_ours: bool,
        message: PeerPacket,
        size_bytes: int,
        *,
        is_admitted: bool = False,
    ) -> None:
        """Pass a reply to its waiting request, and any other message to its handler.

        Late replies and malformed messages are counted as dropped. is_ours: the message came on a
        connection that carries this broker's requests. is_admitted: the injected faults have let
        the message pass.
        """
        if not is_admitted:
            self.bytes_received[peer] += size_bytes
            if self.gate.is_active:
                take = partial(self._received, link, peer, is_ours, message, 0, is_admitted=True)
                self.gate.admit(peer, False, take)
                return
        what, kind, correlation_id, header, frames = message
        if is_ours and what in (_REPLY, _FAILURE):
            outcome = (header, frames) if what == _REPLY else _failure(peer, header)
            if not self._under_way.replied(correlation_id, link, outcome):
                self.dropped["late"] += 1
        elif not is_ours and what == _REQUEST:
            reply = partial(self._send, link, peer, correlation_id)
            self._asked(peer, (kind, link.is_bulk), header, frames, reply)
        elif not is_ours and what == _ONE_WAY:
            self._deliver(peer, kind, header)
        else:
            self.dropped["malformed"] += 1

    # -- links

    def _broken(self, link: ControlChannel | PeerStream, peer: int) -> None:
        self._under_way.fail(PeerUnavailable(f"the connection to broker {peer} broke"), link)

    def _link_event(self, channel: ControlChannel, peer: int, event: int) -> None:
        link = self._links[peer]
        if event == zmq.EVENT_DISCONNECTED:
            self._broken(channel, peer)
            link.closed(_monotonic_ms())
            self._loop.call_later((GRACE_MS + 1) / 1000, self._grace_over, peer, link)
            self._link_changed(peer, False)
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            if self._streams is not None:
                self._streams.dial_now(peer)
            if link.connected():
                self._changed(peer, True)
            self._link_changed(peer, True)
        elif link.refused():
            self._changed(peer, False)

    def _grace_over(self, peer: int, link: LinkState) -> None:
        if self._streams is not None and link.grace_over(_monotonic_ms()):
            self._changed(peer, False)


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _failure(peer: int, reason: bytes) -> PeerUnavailable:
    return PeerUnavailable(f"broker {peer} failed: {reason.decode(errors='replace')}")
