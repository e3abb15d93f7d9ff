"""One end of a proxied connection, which receives bytes and delivers frames in order.

While a frame is handled (a delay, a hold), later frames wait and no bytes are read.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, cast

from ....wire.framing import FrameReceiver
from ....wire.primitives import MalformedFrame

Handle = Callable[[memoryview], Coroutine[Any, Any, None] | None]
WRITE_BUFFER_HIGH_BYTES = 4 * 1024 * 1024
CLOSE_TIMEOUT_S = 10.0
# smaller frames are copied after their length, since one write is cheaper than two
SMALL_BYTES = 16 * 1024
TLS_HANDSHAKE, TLS_ALERT = b"\x16\x03", b"\x15\x03"
TLS = "it speaks TLS"
BUSY, FULL = "a frame is being handled", "the other end does not take more"


class Side(asyncio.BufferedProtocol):
    """One end of a connection, which passes frames to the handlers of its owner.

    handle: called with each frame, and returns a coroutine if it takes time. on_made: called when
    connected. on_malformed: called with the reason. on_full: called when writes must pause or may
    continue. on_drained: called when the connection is closed and all its frames are handled.
    """

    def __init__(
        self,
        frame_bytes_max: int,
        handle: Handle,
        *,
        on_made: Callable[[], None],
        on_malformed: Callable[[str], None],
        on_full: Callable[[bool], None],
        on_drained: Callable[[], None],
    ) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_lost = self.is_full = False
        self._receiver = FrameReceiver(frame_bytes_max)
        self._handle = handle
        self._on_made, self._on_malformed = on_made, on_malformed
        self._on_full, self._on_drained = on_full, on_drained
        self._frames: deque[memoryview] = deque()
        self._paused = set[str]()
        self._is_reading, self._is_drained = True, False
        self._is_handling = False
        self._task: asyncio.Task[None] | None = None
        self._aborting: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Return whether no frame is waiting or being handled."""
        return self._task is None and not self._frames

    def write(self, frame: bytes | memoryview) -> None:
        """Send a frame, or drop it when this end is closed."""
        if self.transport is None or self.is_lost or self.transport.is_closing():
            return
        length = len(frame).to_bytes(4)
        if len(frame) <= SMALL_BYTES:
            self.transport.write(length + frame)
        else:
            self.transport.write(length)
            self.transport.write(frame)

    def pause(self, why: str) -> None:
        """Handle and read no frame until `resume` with the same reason."""
        self._paused.add(why)
        self._update_reading()

    def resume(self, why: str) -> None:
        self._paused.discard(why)
        self._go_on()

    def close(self) -> None:
        """Close after the written bytes are sent, or at a timeout."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()
            loop = asyncio.get_running_loop()
            self._aborting = loop.call_later(CLOSE_TIMEOUT_S, self.transport.abort)

    def abort(self) -> None:
        """Close immediately, and drop all waiting frames."""
        self._frames.clear()
        if self._task is not None:
            # A task that is cancelled before its first step does not run its `finally`.
            asyncio.get_running_loop().call_soon(self._task.cancel)
        if self.transport is not None:
            self.transport.abort()

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's classes.
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)
        # uvloop begins to read after this, even if reading was paused, and may have read a little.
        asyncio.get_running_loop().call_soon(self._update_reading)
        self._on_made()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self._receiver.buffer_updated(nbytes)
        except MalformedFrame as error:
            start = self._receiver.peek(2)
            self._on_malformed(TLS if is_tls(start) else str(error))
            return
        if frames:
            self._frames.extend(frames)
            self._go_on()

    def eof_received(self) -> None:
        self.close()  # the transport's own close has no timeout

    def pause_writing(self) -> None:
        self.is_full = True
        self._on_full(True)

    def resume_writing(self) -> None:
        self.is_full = False
        self._on_full(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        if self._aborting is not None:
            self._aborting.cancel()
        self._end_when_drained()
        self.resume_writing()  # the other end's frames are dropped now

    # -- frames in order

    def _go_on(self) -> None:
        if self._is_handling:
            return  # the caller's caller handles the next frame
        while self._frames and not self._paused:
            self._is_handling, work = True, None
            try:
                work = self._handle(self._frames.popleft())
            except Exception as error:
                self._refuse(error)
            self._is_handling = False
            if work is not None:
                self._paused.add(BUSY)
                self._task = asyncio.get_running_loop().create_task(self._finish(work))
        self._update_reading()
        self._end_when_drained()

    async def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self._refuse(error)
        finally:
            self._task = None
            self.resume(BUSY)

    def _refuse(self, error: Exception) -> None:
        """Drop all waiting frames after one that is malformed or cannot be forwarded."""
        self._frames.clear()
        self._on_malformed(str(error) or repr(error))

    def _end_when_drained(self) -> None:
        if self.is_lost and self.is_idle and not self._is_drained:
            self._is_drained = True
            self._on_drained()

    def _update_reading(self) -> None:
        if self.transport is None or self.is_lost or self.transport.is_closing():
            return
        if self._is_reading and self._paused:
            self.transport.pause_reading()
        elif not self._is_reading and not self._paused:
            self.transport.resume_reading()
        self._is_reading = not self._paused


def is_tls(start: bytes) -> bool:
    """Return whether the first bytes are those of a TLS handshake or of a TLS alert."""
    return start in (TLS_HANDSHAKE, TLS_ALERT)
