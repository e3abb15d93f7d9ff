"""A listener's TLS, between the event loop's plain transport and the connection.

The event loop's own TLS is not used. It would encrypt an answer of 50 MB at once, never report that
a client does not read its answers, and count no connection before its handshake is complete
(docs/decisions/0019-tls-as-a-filter.md). Here a connection is admitted before the handshake. A
handshake, an encryption or a read of the received bytes proceeds only within the time budget of a
turn of the event loop.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast

from ....coordinator.security.principal import Principal
from ....runtime.turn_share import TurnShare
from ....wire.framing import Buffer
from ..connection import Connection
from ..connection_state import UNREAD_BYTES
from .channel import SLICE_BYTES, NotTls, TlsChannel
from .reasons import NOT_TLS, reason_of

RECEIVE_BYTES = 64 * 1024
SMALL_BYTES = 4096  # the largest answer whose encryption (5 us) costs less than its write

PrincipalOf = Callable[[dict[str, Any] | None], Principal]


class TlsTransport(asyncio.BufferedProtocol):
    """The TLS of one connection. `principal_of` returns the principal of a certificate.

    Reading stops while the connection has paused it, and while received bytes wait for a later turn
    of the event loop. Received bytes stay encrypted until then, at most those of one read.
    """

    def __init__(
        self,
        connection: Connection,
        context: ssl.SSLContext,
        principal_of: PrincipalOf,
        share: TurnShare,
        received: memoryview,
    ) -> None:
        """Create the transport.

        received: memory for one read, which all transports of a loop share.
        """
        self._connection, self._share, self._received = connection, share, received
        self._principal_of = principal_of
        self._channel = TlsChannel(context)
        self._transport: asyncio.Transport | None = None
        self._is_paused_by_connection = False
        self._is_put_off = False  # reading continues in a later turn
        self._is_transport_full = False
        self._is_write_put_off = False
        self._has_paused_connection = False
        self._is_closing = False
        self._has_ended = False

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let the server admit the connection before the handshake."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=SLICE_BYTES)
        self._connection.connection_made(cast(asyncio.BaseTransport, self))

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop unsent bytes, and call the connection's `connection_lost`."""
        self._is_closing = True
        self._channel.drop_unsent()
        self._connection.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the next read."""
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        """Process encrypted bytes, and ignore bytes after the client has closed its side."""
        if self._has_ended:
            return
        try:
            self._channel.receive(self._received[:nbytes])
        except NotTls:
            self._connection.close(NOT_TLS)
            return
        self._read()
        self._channel.keep_unread()

    def eof_received(self) -> bool:
        """Note that the client has closed its side, and stay open until the answers are sent."""
        self._end_reading()
        return True

    def pause_writing(self) -> None:
        """Pause writing and reading, since received bytes may need an answer of TLS itself."""
        self._is_transport_full = True
        self._steer()
        self._pause_connection()

    def resume_writing(self) -> None:
        """Continue to encrypt and send the queue, since the socket can be written again."""
        self._is_transport_full = False
        self._steer()
        self._share.do(self._send)

    # -- called by the connection: its transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a property of the plain transport, such as its socket, or the unread bytes."""
        if name == UNREAD_BYTES:
            return self._channel.unread_bytes
        assert self._transport is not None
        return self._transport.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignore limits other than 0, since the plain transport holds at most one slice."""
        if high == 0 and self._transport is not None:
            self._transport.set_write_buffer_limits(high=0)

    def get_write_buffer_size(self) -> int:
        """Return the number of unsent bytes, encrypted or not."""
        assert self._transport is not None
        return self._channel.unsent_bytes + self._transport.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._is_paused_by_connection = True
        self._steer()

    def resume_reading(self) -> None:
        """Resume reading. Bytes that were received before the pause are read first."""
        self._is_paused_by_connection = False
        if self._channel.unread_bytes and not self._is_put_off:
            self._put_off()
        self._steer()

    def writelines(self, buffers: list[Buffer]) -> None:
        """Send a small answer at once if nothing is queued, and queue other answers (`_send`).

        Pause the connection if a rest stays in the queue.
        """
        channel, transport = self._channel, self._transport
        is_small = sum(map(len, buffers)) <= SMALL_BYTES
        is_free = not (channel.unsent_bytes or self._is_transport_full)
        if is_small and is_free and transport is not None and not transport.is_closing():
            self._write(b"".join(buffers))
        else:
            channel.queue(buffers)
            self._send()
        if channel.unsent_bytes:
            self._pause_connection()

    def close(self) -> None:
        """Close the connection once the queue has been sent."""
        self._is_closing = True
        self._steer()
        if not self._channel.unsent_bytes:
            self._hang_up()

    def abort(self) -> None:
        assert self._transport is not None
        self._is_closing = True
        self._transport.abort()

    # -- reading

    def _read(self) -> None:
        """Read the received bytes, until the connection pauses or this turn's time is spent."""
        if self._is_put_off or self._is_closing:
            return
        channel, connection, share = self._channel, self._connection, self._share
        try:
            while not self._is_paused_by_connection and not self._is_closing:
                if share.is_spent():
                    self._put_off()
                    break
                if not channel.is_established:
                    is_done = channel.shake_hands()
                    if is_done and connection.context is not None:
                        connection.context.principal = self._principal_of(channel.certificate())
                    share.ended()
                    if not is_done and not channel.has_more:
                        break
                    continue
                room = connection.get_buffer(-1)
                count = channel.read_into(room)
                share.ended()
                if count:
                    connection.buffer_updated(count)
                if channel.broken_by:
                    self._break(channel.broken_by)
                if channel.has_ended:
                    self._end_reading()
                may_have_more = count == len(room) or channel.has_more
                if channel.has_ended or not may_have_more:
                    break
        except ssl.SSLError as error:
            self._break(reason_of(error))
            return
        transport, outgoing = self._transport, channel.outgoing()
        if outgoing and transport is not None and not transport.is_closing():
            transport.write(outgoing)

    def _break(self, reason: str) -> None:
        """Drop the queue, which cannot be encrypted after a TLS error, and close the connection."""
        self._channel.drop_unsent()
        self._connection.close(self._channel.broken_by or reason)

    def _put_off(self) -> None:
        """Read the rest of the received bytes in a later turn of the event loop.

        In the meantime other connections are served.
        """
        self._is_put_off = True
        self._steer()
        self._share.put(self._read_on, is_early=not self._channel.is_established)

    def _read_on(self) -> None:
        self._is_put_off = False
        self._read()
        self._steer()

    def _end_reading(self) -> None:
        if self._has_ended or self._is_closing:
            return
        self._has_ended = True
        if not self._connection.eof_received():
            self.close()

    def _steer(self) -> None:
        """Pause or resume reading of the socket, as the state of the connection requires."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        is_held = self._is_paused_by_connection or self._is_put_off or self._is_transport_full
        if is_held or self._is_closing:
            transport.pause_reading()
        else:
            transport.resume_reading()

    # -- writing

    def _pause_connection(self) -> None:
        if not self._has_paused_connection:
            self._has_paused_connection = True
            self._connection.pause_writing()

    def _send(self) -> None:
        """Encrypt and send the queue, until the socket is full or this turn's time is spent.

        The rest is sent when the socket is writable, or in a later turn of the event loop.
        """
        channel, transport, share = self._channel, self._transport, self._share
        if transport is None or transport.is_closing() or self._is_write_put_off:
            return
        while channel.unsent_bytes and not self._is_transport_full:
            if share.is_spent():
                self._is_write_put_off = True
                share.put(self._send_on)
                return
            self._write(channel.next_slice())
            share.ended()
        if not channel.unsent_bytes:
            if self._has_paused_connection and not self._is_transport_full:
                self._has_paused_connection = False
                self._connection.resume_writing()
            if self._is_closing:
                self._hang_up()

    def _write(self, plain: Buffer) -> None:
        """Encrypt and send plain text, or close the connection if TLS has failed."""
        assert self._transport is not None
        try:
            encrypted = self._channel.encrypt(plain)
        except ssl.SSLError as error:  # not raised into the handler that completes the answer
            self._break(reason_of(error))
        else:
            self._transport.write(encrypted)

    def _send_on(self) -> None:
        self._is_write_put_off = False
        self._send()

    def _hang_up(self) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            if last := self._channel.end():
                transport.write(last)
            transport.close()
