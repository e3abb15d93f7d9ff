"""TLS of one connection without a socket: bytes go in, bytes come out.

OpenSSL works on two memory buffers. What the peer sent is put into one and read as plain text; what
is to be sent is queued as plain text and encrypted slice by slice, so that one large answer neither
keeps the event loop nor stands in memory twice.
"""

import contextlib
import ssl
from collections import deque
from collections.abc import Iterable
from typing import Any

from ....wire.framing import Buffer
from .reasons import reason_of

SLICE_BYTES = 64 * 1024  # of plain text that is encrypted at once; some 0.3 ms
RECORDS_AT_ONCE = 64  # that OpenSSL is given to read; as many changes of keys are 2 ms
_HEADER_BYTES = 5  # of a record; the last two are its length
_HANDSHAKE_RECORD = 0x16


class NotTls(Exception):
    """The peer does not speak TLS."""


class TlsChannel:
    """The server's end. Its methods raise ssl.SSLError when the peer breaks the protocol."""

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
        self._later = b""  # came, and OpenSSL has not been given it yet
        self._record_bytes = 0  # of its last record that are still to come
        self.has_more = False  # OpenSSL was given more when it had read all before
        self.unsent_bytes = 0
        self.is_established = False
        self.has_ended = False  # the peer has said that nothing more will come
        self.broken_by = ""  # the peer's mistake, after which OpenSSL neither reads nor encrypts

    # -- from the peer

    def receive(self, data: Buffer) -> None:
        """Take bytes of the peer. Raises NotTls when its very first is no handshake."""
        if self._is_first and len(data):
            self._is_first = False
            if data[0] != _HANDSHAKE_RECORD:
                raise NotTls
        if self._later:
            self._later += bytes(data)
        else:
            self._give(memoryview(data))

    @property
    def unread_bytes(self) -> int:
        """How much came and was not read; encrypted bytes count as they are."""
        plain = self._tls.pending() if self.is_established else 0
        return self._incoming.pending + len(self._later) + plain

    def shake_hands(self) -> bool:
        """Go on with the handshake as far as the bytes allow; return whether it is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._give_more()
            return False
        self.is_established = True
        return True

    def read_into(self, buffer: memoryview) -> int:
        """Fill a buffer with plain text, as far as there is any; return how much."""
        filled, tls = 0, self._tls
        try:
            while filled < len(buffer):
                count = tls.read(len(buffer) - filled, buffer[filled:])  # type: ignore[arg-type]
                if not count:
                    self.has_ended = True
                    break
                filled += count  # type: ignore[operator]
        except ssl.SSLWantReadError:
            self._give_more()
        except ssl.SSLError as error:
            if not filled:
                raise
            self.broken_by = reason_of(error)  # what came before the mistake counts
        return filled

    def certificate(self) -> dict[str, Any] | None:
        """Return the peer's certificate as Python's ssl decodes it, None without one."""
        return self._tls.getpeercert() or None

    def _give_more(self) -> None:
        later, self._later = self._later, b""
        self.has_more = bool(later) and self._give(memoryview(later))

    def _give(self, data: memoryview) -> bool:
        """Give OpenSSL a few records, however small they are; return whether it got any byte.

        It reads until it comes upon plain text, and of changes of keys a client may send
        thousands in a row.
        """
        end, size = self._record_bytes, len(data)
        last = size - _HEADER_BYTES  # where a whole header may begin
        for _ in range(RECORDS_AT_ONCE):
            if end > last:
                break
            end += _HEADER_BYTES + (data[end + 3] << 8 | data[end + 4])
        given = min(end, size)
        self._record_bytes = end - given
        self._incoming.write(data[:given])
        self._later = bytes(data[given:])
        return given > 0

    # -- to the peer

    def queue(self, buffers: Iterable[Buffer]) -> None:
        """Take plain text to be sent; the buffers must not change until it is."""
        for buffer in buffers:
            if len(buffer):
                self._unsent.append(memoryview(buffer))
                self.unsent_bytes += len(buffer)

    def encrypt_slice(self) -> bytes:
        """Encrypt the next bytes of the queue, SLICE_BYTES at most; return what is to be sent."""
        part = self._next_slice()
        self.unsent_bytes -= len(part)
        while len(part):
            part = part[self._tls.write(part) :]
        return self._outgoing.read()

    def outgoing(self) -> bytes:
        """Return what OpenSSL itself has to send: of the handshake, alerts, key updates."""
        return self._outgoing.read()

    def end(self) -> bytes:
        """Say that nothing more will come; return what is to be sent."""
        if self.is_established:
            with contextlib.suppress(ssl.SSLError):  # the peer has not said the same yet
                self._tls.unwrap()
        return self._outgoing.read()

    def drop_unsent(self) -> None:
        """Forget what is queued: the peer is gone."""
        self._unsent.clear()
        self.unsent_bytes = 0

    def _next_slice(self) -> memoryview:
        """Take a slice off the queue; short buffers are joined, since each write is a record."""
        unsent = self._unsent
        first = unsent.popleft()
        if len(first) >= SLICE_BYTES or not unsent:
            if len(first) > SLICE_BYTES:
                unsent.appendleft(first[SLICE_BYTES:])
            return first[:SLICE_BYTES]
        parts, room = [first], SLICE_BYTES - len(first)
        while unsent and room:
            part = unsent.popleft()
            if len(part) > room:
                unsent.appendleft(part[room:])
            parts.append(part[:room])
            room -= len(parts[-1])
        return memoryview(b"".join(parts))
