"""The TLS of one connection, without a socket.

OpenSSL works on two memory buffers. Received bytes are put into one and read as plain text. Answers
are queued as plain text and encrypted slice by slice, so that a large answer neither blocks the
event loop nor is in memory twice. A memory buffer never shrinks, so it gets about one TLS record of
the largest size at a time.
"""

import contextlib
import ssl
from collections import deque
from collections.abc import Iterable
from typing import Any

from ....wire.framing import Buffer
from .reasons import reason_of

SLICE_BYTES = 64 * 1024  # the plain text that is encrypted at a time, in about 0.3 ms
RECORDS_AT_ONCE = 16  # the records that OpenSSL gets at a time; 16 key updates take 0.5 ms
PLAIN_BYTES_MAX = 16 * 1024  # the plain text of one record
GIVEN_BYTES_MAX = PLAIN_BYTES_MAX + 1024  # OpenSSL gets more only in a single, invalid record
READ_ON_BYTES = PLAIN_BYTES_MAX // 2  # `read_into` gives OpenSSL more after this much plain text
_HEADER_BYTES = 5  # the size of a record header, whose last two bytes are the length
_HANDSHAKE_RECORD = 0x16


class NotTls(Exception):
    """The error of a peer that does not use TLS."""


class TlsChannel:
    """The server side of TLS. A method raises ssl.SSLError when the peer violates the protocol."""

    __slots__ = (
        "_incoming",
        "_is_first",
        "_later",
        "_outgoing",
        "_record_bytes",
        "_tls",
        "_unsent",
        "broken_by",
        "has_ended",
        "has_more",
        "is_established",
        "unsent_bytes",
    )

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._unsent: deque[memoryview] = deque()
        self._is_first = True
        self._later = memoryview(b"")  # received bytes that OpenSSL has not got yet
        self._record_bytes = 0  # the missing bytes of the last record
        self.has_more = False  # OpenSSL got more after it had read everything
        self.unsent_bytes = 0
        self.is_established = False
        self.has_ended = False  # the peer has closed its side
        self.broken_by = ""  # the peer's error, after which OpenSSL neither decrypts nor encrypts

    # -- from the peer

    def receive(self, data: Buffer) -> None:
        """Pass received bytes to TLS, or raise NotTls when the first byte begins no handshake.

        The caller must not change the bytes before it has called `keep_unread`.
        """
        if self._is_first and len(data):
            self._is_first = False
            if data[0] != _HANDSHAKE_RECORD:
                raise NotTls
        if self._later:
            self._later = memoryview(b"".join((self._later, data)))
        else:
            self._give(data)

    def keep_unread(self) -> None:
        """Copy the bytes that OpenSSL has not got yet."""
        if self._later:
            self._later = memoryview(bytes(self._later))

    @property
    def unread_bytes(self) -> int:
        """The number of received bytes that were not read, encrypted or not."""
        plain = self._tls.pending() if self.is_established else 0
        return self._incoming.pending + len(self._later) + plain

    def shake_hands(self) -> bool:
        """Continue the handshake with the received bytes, and return whether it is complete."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._give_more()
            return False
        self.is_established = True
        return True

    def read_into(self, buffer: memoryview) -> int:
        """Read available plain text into a buffer, and return the number of bytes."""
        filled, tls, incoming = 0, self._tls, self._incoming
        given_at = 0  # the filled bytes when OpenSSL got more
        if self._later and not incoming.pending:
            self._give_more()
        try:
            while filled < len(buffer):
                rest = buffer[filled:] if filled else buffer
                count = tls.read(len(rest), rest)  # type: ignore[arg-type]
                if not count:
                    self.has_ended = True
                    break
                filled += count  # type: ignore[operator]
                if not incoming.pending and filled < len(buffer):  # cheaper than SSLWantReadError
                    self._give_more()
                    if not self.has_more or filled - given_at < READ_ON_BYTES:
                        break
                    given_at = filled
        except ssl.SSLWantReadError:
            self._give_more()
        except ssl.SSLError as error:
            if not filled:
                raise
            self.broken_by = reason_of(error)  # the plain text before the error is still valid
        return filled

    def certificate(self) -> dict[str, Any] | None:
        """Return the client's certificate in the form of Python's ssl module, or None if absent."""
        return self._tls.getpeercert() or None

    def _give_more(self) -> None:
        self.has_more = False
        if self._later:
            later, self._later = self._later, memoryview(b"")
            self.has_more = self._give(later)

    def _give(self, data: Buffer) -> bool:
        """Give OpenSSL RECORDS_AT_ONCE records or GIVEN_BYTES_MAX bytes, or less.

        Returns whether OpenSSL got any byte.

        OpenSSL processes records until it finds plain text, and a client may send thousands of key
        updates in a row.
        """
        end, last = self._record_bytes, len(data) - _HEADER_BYTES  # where the last header may begin
        for _ in range(RECORDS_AT_ONCE):
            if end > last:
                break
            record_end = end + _HEADER_BYTES + (data[end + 3] << 8 | data[end + 4])
            if end and record_end > GIVEN_BYTES_MAX:
                break
            end = record_end
        if end < len(data):
            self._later = memoryview(data)[end:]
            data = data[:end]
        self._record_bytes = end - len(data)
        self._incoming.write(data)
        return len(data) > 0

    # -- to the peer

    def queue(self, buffers: Iterable[Buffer]) -> None:
        """Queue plain text to be sent, in buffers that must not change until then."""
        for buffer in buffers:
            if len(buffer):
                self._unsent.append(memoryview(buffer))
                self.unsent_bytes += len(buffer)

    def next_slice(self) -> memoryview:
        """Take at most SLICE_BYTES of the queue. Join buffers, since each write makes a record."""
        unsent, room = self._unsent, SLICE_BYTES
        parts: list[memoryview] = []
        while unsent and room:
            part = unsent.popleft()
            if len(part) > room:
                unsent.appendleft(part[room:])
            parts.append(part[:room])
            room -= len(parts[-1])
        self.unsent_bytes -= SLICE_BYTES - room
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def encrypt(self, plain: Buffer) -> bytes:
        """Encrypt an answer or a slice of it, and return the bytes to send."""
        records: list[bytes] = []
        while len(plain) > PLAIN_BYTES_MAX:
            plain = plain[self._tls.write(plain[:PLAIN_BYTES_MAX]) :]
            records.append(self._outgoing.read())
        if len(plain):
            self._tls.write(plain)  # all of it, since it is one record
        if not records:
            return self._outgoing.read()
        return b"".join((*records, self._outgoing.read()))

    def outgoing(self) -> bytes:
        """Return the bytes that OpenSSL itself sends, such as handshake, alerts and key updates."""
        return self._outgoing.read()

    def end(self) -> bytes:
        """Close this side, and return the bytes to send."""
        if self.is_established:
            with contextlib.suppress(ssl.SSLError):  # the peer has not closed its side yet
                self._tls.unwrap()
        return self._outgoing.read()

    def drop_unsent(self) -> None:
        """Drop the queue, since the peer has disconnected."""
        self._unsent.clear()
        self.unsent_bytes = 0
