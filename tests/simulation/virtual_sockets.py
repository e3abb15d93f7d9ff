"""TCP connections between simulated processes, for clients and the broker's listeners.

Bytes of one direction arrive in order, whole or in pieces, after a while. A window bounds the bytes
in flight, and the protocol of a sender with a full window is paused. Bytes sent during a cut arrive
after it, as by TCP's retransmissions. The connections of a killed process are reset. Those of a
machine without power are silent until it has power again.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any
from zlib import crc32

from .virtual_loop import ProcessLoop, Timeline
from .wires import Wires

WINDOW_BYTES = 256 * 1024
HIGH_WATER_BYTES = 64 * 1024
SYN_RETRY_S = 0.5


class Listener:
    def __init__(self, sockets: "Sockets", loop: ProcessLoop, factory: Any, port: int) -> None:
        self.loop, self.factory, self._sockets, self._port = loop, factory, sockets, port

    def close(self) -> None:
        if self._sockets.listeners.get(self._port) is self:
            del self._sockets.listeners[self._port]

    async def wait_closed(self) -> None:
        pass


class ListeningSocket:
    """A stand-in for the bound socket of a broker's listener."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)

    def getsockname(self) -> tuple[str, int]:
        return self._address


class Endpoint(asyncio.Transport):
    """One end of a simulated connection, which is the asyncio transport of a protocol."""

    def __init__(self, sockets: "Sockets", loop: ProcessLoop, far: int) -> None:
        super().__init__()
        self.loop, self.far = loop, far
        self.peer: Endpoint
        self.protocol: Any = None
        self._sockets = sockets
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._under_way_bytes = 0
        self._last_arrival = 0.0
        self._inbox: deque[bytes | None] = deque()  # None: the end
        self._is_reading = True
        self._is_closing = False
        self._is_lost = False
        self._is_end_sent = False
        self._has_paused_writer = False
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self.held_until = 0.0

    # -- the protocols' interface

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 30_000 + self.far) if name == "peername" else default

    def is_closing(self) -> bool:
        return self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def write(self, data: Any) -> None:
        if self._is_closing or not data:
            return
        self._unsent.append(bytes(data))
        self._unsent_bytes += len(data)
        self.pump()
        if self._unsent_bytes > self._high and not self._has_paused_writer:
            self._has_paused_writer = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self.loop.call_soon(self._read)

    def is_reading(self) -> bool:
        return self._is_reading

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._is_reading = False
            if self._sockets.wires.is_cut(self.loop.number, self.far):
                self.loop.call_soon(self.lose, None)
            self.pump()

    def abort(self) -> None:
        if not self._is_lost:
            self._is_closing = True
            self._unsent.clear()
            self._unsent_bytes = 0
            self.loop.call_soon(self.lose, None)

    # -- the wire

    def pump(self) -> None:
        """Send the bytes for which the window has space, unless the link is cut."""
        wires = self._sockets.wires
        if self._is_lost or wires.is_cut(self.loop.number, self.far):
            return
        timeline, rng = self._sockets.timeline, self._sockets.timeline.random
        while self._unsent and self._under_way_bytes < WINDOW_BYTES:
            data = self._unsent.popleft()
            if len(data) > 2 and rng.random() < 0.02:  # TCP knows no frames
                middle = rng.randrange(1, len(data))
                self._unsent.appendleft(data[middle:])
                data = data[:middle]
            self._unsent_bytes -= len(data)
            self._under_way_bytes += len(data)
            arrival = max(self._last_arrival, self.held_until, timeline.now + self._delay())
            self._last_arrival = arrival
            timeline.note(2, self.loop.number, self.far, len(data), crc32(data))
            self.peer.loop.call_at(arrival, self.peer.arrive, data)
        if self._is_closing and not self._unsent:
            self.send_end()
            self.loop.call_soon(self.lose, None)
        if self._has_paused_writer and self._unsent_bytes <= self._low and not self._is_lost:
            self._has_paused_writer = False
            self.protocol.resume_writing()

    def send_end(self) -> None:
        """Send FIN, after all earlier bytes."""
        if not self._is_end_sent:
            self._is_end_sent = True
            arrival = max(self._last_arrival, self._sockets.timeline.now) + self._delay()
            self.peer.loop.call_at(arrival, self.peer.arrive, None)

    def arrive(self, data: bytes | None) -> None:
        if not self._is_lost:
            self._inbox.append(data)
            self._read()

    def lose(self, error: Exception | None) -> None:
        """End the connection at this endpoint, and call `connection_lost` of its protocol."""
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._inbox.clear()
        self._sockets.endpoints.pop(self, None)
        if not self._is_end_sent:  # later bytes of the other end are answered by a reset
            self.peer.reset_later()
        self.protocol.connection_lost(error)

    def reset_later(self) -> None:
        """Let a TCP reset arrive at this endpoint after a delay, unless the link is cut."""
        if not self._is_lost:
            if self._sockets.wires.is_cut(self.far, self.loop.number):
                return  # the peer receives the reset when it sends
            # After the bytes sent before, which the other end has time to handle.
            arrival = max(self.peer._last_arrival, self._sockets.timeline.now) + self._delay()
            self.loop.call_at(arrival, self.lose, ConnectionResetError("reset by peer"))

    def vanish(self) -> None:
        """Remove the endpoint without a callback, since its process is dead."""
        self._is_lost = self._is_closing = True
        self._inbox.clear()
        self._unsent.clear()
        self._sockets.endpoints.pop(self, None)

    @property
    def is_lost(self) -> bool:
        return self._is_lost

    def _delay(self) -> float:
        return self._sockets.wires.delay(self.loop.number, self.far)

    def _read(self) -> None:
        inbox = self._inbox
        while inbox and self._is_reading and not self._is_lost:
            data = inbox.popleft()
            if data is None:
                self.protocol.eof_received()
                self.close()
                return
            view, done = memoryview(data), 0
            while done < len(data) and self._is_reading and not self._is_lost:
                buffer = self.protocol.get_buffer(-1)
                count = min(len(buffer), len(data) - done)
                buffer[:count] = view[done : done + count]
                done += count
                self.protocol.buffer_updated(count)
            if done < len(data):
                inbox.appendleft(data[done:])
            self._acknowledge(done)

    def _acknowledge(self, count: int) -> None:
        peer = self.peer
        peer._under_way_bytes -= count
        if peer._unsent or peer._has_paused_writer:
            peer.loop.call_soon(peer.pump)


class Sockets:
    def __init__(self, timeline: Timeline, wires: Wires) -> None:
        self.timeline, self.wires = timeline, wires
        self.listeners: dict[int, Listener] = {}
        self.endpoints: dict[Endpoint, None] = {}
        self.powerless: set[int] = set()  # ports of machines that are off
        wires.on_heal.append(self._healed)

    def listen(self, loop: ProcessLoop, factory: Any, sock: ListeningSocket) -> Listener:
        port = sock.getsockname()[1]
        listener = self.listeners[port] = Listener(self, loop, factory, port)
        return listener

    async def connect(
        self, loop: ProcessLoop, factory: Callable[[], Any], host: str, port: int
    ) -> tuple[Endpoint, Any]:
        while True:
            await asyncio.sleep(self.wires.delay(loop.number, port))
            far = self.wires.number_of(port)
            is_cut = self.wires.is_cut(loop.number, far) or self.wires.is_cut(far, loop.number)
            if not is_cut and port not in self.powerless:
                break
            await asyncio.sleep(SYN_RETRY_S)
        listener = self.listeners.get(port)
        if listener is None or not listener.loop.is_alive:
            raise ConnectionRefusedError(111, f"connection to {host}:{port} refused")
        near, away = Endpoint(self, loop, far), Endpoint(self, listener.loop, loop.number)
        near.peer, away.peer = away, near
        self.endpoints[near] = self.endpoints[away] = None
        near.protocol, away.protocol = factory(), listener.factory()
        listener.loop.call_soon(away.protocol.connection_made, away)
        near.protocol.connection_made(near)
        return near, near.protocol

    def process_died(self, loop: ProcessLoop, *, power: bool) -> None:
        """Close the ports of a dead process, and reset its connections.

        After a power cut the peers receive no reset.
        """
        for port, listener in list(self.listeners.items()):
            if listener.loop is loop:
                del self.listeners[port]
        for endpoint in [e for e in self.endpoints if e.loop is loop]:
            endpoint.vanish()
            if not power:
                endpoint.peer.reset_later()

    def power_is_back(self, number: int) -> None:
        """Reset the connections of other processes to a machine that has power again."""
        for endpoint in [e for e in self.endpoints if e.far == number and e.peer.is_lost]:
            endpoint.reset_later()

    def reset(self, one: int, other: int) -> None:
        """Reset all connections between two processes."""
        for endpoint in list(self.endpoints):
            if {endpoint.loop.number, endpoint.far} == {one, other}:
                endpoint.reset_later()

    def hold(self, source: int, target: int, seconds: float, share: float = 1.0) -> None:
        """Hold back bytes from `source` to `target` on a share of the open connections.

        Each of these connections has its own random time of at most `seconds`, like a
        retransmission timer.
        """
        rng = self.timeline.random
        for endpoint in self.endpoints:
            is_between = (endpoint.loop.number, endpoint.far) == (source, target)
            if is_between and rng.random() < share:
                endpoint.held_until = self.timeline.now + seconds * rng.random()

    def _healed(self) -> None:
        rng = self.timeline.random
        for endpoint in list(self.endpoints):
            if endpoint.peer.is_lost and endpoint.far not in self.wires.silent:
                endpoint.reset_later()
            elif endpoint.get_write_buffer_size():
                endpoint.loop.call_later(rng.uniform(0.0, 0.3), endpoint.pump)
