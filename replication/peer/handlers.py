"""The envelope of a message between brokers, and the handlers of its content.

Every message begins with its role (one-way, request, reply, failure), its type, the correlation id
of its request, and the length of its header. An exception of a handler affects only its message:
the error is logged, and the sender of a request gets a failure. An exception while sending a
request ends that request with PeerUnavailable, and nothing else.
"""

import asyncio
import logging
import struct
from collections import defaultdict
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from ...runtime.rate_limited_log import LimitedLog
from ...wire.errors import KafkaError

Buffer = bytes | bytearray | memoryview
MessageHandler = Callable[[int, bytes], None]
Reply = Callable[[bytes, Sequence[Buffer]], object]
RequestHandler = Callable[[int, bytes, list[Buffer], Reply], object]
PeerChange = Callable[[int, bool], None]
Body = tuple[bytes, list[Buffer]]  # the header and the frames of a reply

_ENVELOPE = struct.Struct(">BBQI")
ENVELOPE_BYTES = _ENVELOPE.size
log = logging.getLogger(__name__)


class PeerError(Exception):
    """The error of a request without a reply, which the peer may or may not have executed."""


class PeerUnavailable(PeerError):
    """The error of a missing or broken connection, or of a request the peer could not serve."""


class PeerTimeout(PeerError):
    """The error of a request without a reply before the deadline."""


Answered = Callable[[Body | PeerError], object]


class What(IntEnum):
    """The role of a message, which is one-way, request, reply or failure."""

    ONE_WAY = 0
    REQUEST = 1
    REPLY = 2
    FAILURE = 3


class PeerPacket(NamedTuple):
    """A message from a link. Header and frames may be views of received memory."""

    what: int
    kind: int
    correlation_id: int
    header: bytes
    frames: list[Buffer]


def envelope(what: What, kind: int, correlation_id: int, header_bytes: int) -> bytes:
    """Return the encoded envelope, which begins each message."""
    return _ENVELOPE.pack(what, kind, correlation_id, header_bytes)


def open_envelope(first: Buffer) -> tuple[int, int, int, int]:
    """Return (role, type, correlation id, length of the header) of a message.

    `first` has at least the ENVELOPE_BYTES at the beginning of the message.
    """
    return _ENVELOPE.unpack_from(first)


class PeerHandlers:
    """The handlers of one broker, and the number of messages dropped, by reason."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        # the reasons are malformed, stranger, unhandled, late, undelivered
        self.dropped: dict[str, int] = defaultdict(int)
        self._messages: dict[int, MessageHandler] = {}
        self._requests: dict[tuple[int, bool], RequestHandler] = {}
        self._changes: list[PeerChange] = []
        self._link_changes: list[PeerChange] = []
        self._limited_log = LimitedLog(log)

    def on_message(self, kind: int, handler: MessageHandler) -> None:
        """Set the handler of one-way messages of this type, called with peer and payload."""
        self._messages[kind] = handler

    def on_request(self, kind: int, handler: RequestHandler, *, bulk: bool = False) -> None:
        """Set the handler of requests of this type, called with peer, header, frames and reply.

        `bulk`: the requests arrive on streams, not on ZeroMQ. reply(header, frames) may be called
        later, once. An exception of the handler becomes PeerUnavailable at the sender.
        """
        self._requests[kind, bulk] = handler

    def on_peer_change(self, callback: PeerChange) -> None:
        """Call callback(peer, is_up) when a peer goes up or down, as decided by `link_state`."""
        self._changes.append(callback)

    def on_link_change(self, callback: PeerChange) -> None:
        """Call callback(peer, is_open) whenever the control link breaks or is opened again.

        A broken link may be open again within milliseconds. `on_peer_change` reports whether the
        peer is up.
        """
        self._link_changes.append(callback)

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
        """Send a request. `answered` gets (header, frames), or PeerUnavailable or PeerTimeout.

        `answered` is called exactly once, on the event loop, and never before this method returns.
        """
        raise NotImplementedError

    async def request(
        self,
        peer: int,
        kind: int,
        header: bytes,
        frames: Sequence[Buffer] = (),
        *,
        timeout_ms: int,
        bulk: bool = False,
    ) -> Body:
        """Send a request, and return the reply, or raise PeerUnavailable or PeerTimeout."""
        future: asyncio.Future[Body] = asyncio.get_running_loop().create_future()
        settle = partial(_settle, future)
        self.ask(peer, kind, header, frames, answered=settle, timeout_ms=timeout_ms, bulk=bulk)
        try:
            return await future
        finally:
            del future, settle  # an exception in the future refers to this frame, a reference cycle

    def _deliver(self, peer: int, kind: int, payload: bytes) -> None:
        handler = self._messages.get(kind)
        if handler is None:
            self.dropped["unhandled"] += 1
            return
        try:
            handler(peer, payload)
        except Exception as error:
            self._report(f"a message of kind {kind} from broker {peer}", error)

    def _asked(
        self,
        peer: int,
        kind_and_bulk: tuple[int, bool],
        header: bytes,
        frames: list[Buffer],
        reply: Callable[..., object],
    ) -> None:
        handler = self._requests.get(kind_and_bulk)
        if handler is None:
            self.dropped["unhandled"] += 1
            reply(b"it does not serve kind %d here" % kind_and_bulk[0], what=What.FAILURE)
            return
        try:
            handler(peer, header, frames, reply)
        except Exception as error:
            self._report(f"a request of kind {kind_and_bulk[0]} from broker {peer}", error)
            reply(type(error).__name__.encode(), what=What.FAILURE)

    def _report(self, message: str, error: Exception) -> None:
        """Log an error of a message, with a traceback unless the message is malformed."""
        is_malformed = isinstance(error, KafkaError)
        self._limited_log.log(
            logging.WARNING if is_malformed else logging.ERROR,
            message,
            asyncio.get_running_loop().time(),
            "node %d: %s failed: %r",
            self.node_id,
            message,
            error,
            error=None if is_malformed else error,
        )

    def _changed(self, peer: int, is_up: bool) -> None:
        self._notify(self._changes, peer, is_up)

    def _link_changed(self, peer: int, is_open: bool) -> None:
        self._notify(self._link_changes, peer, is_open)

    def _notify(self, callbacks: list[PeerChange], peer: int, is_up: bool) -> None:
        for callback in callbacks:
            try:
                callback(peer, is_up)
            except Exception:
                log.exception(
                    "node %d: a callback for a change of the link to node %d raised "
                    "an exception (the link is up: %s)",
                    self.node_id,
                    peer,
                    is_up,
                )


def _settle(future: "asyncio.Future[Body]", outcome: Body | PeerError) -> None:
    if future.done():
        return  # the waiting task was cancelled
    if isinstance(outcome, PeerError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
