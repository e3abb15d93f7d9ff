"""Proxies between clients and brokers that can hold, delay or lose requests.

There is one listener for each broker. All run in one thread with its own event loop. Requests are
forwarded frame by frame, so a single request can be held while other connections continue. A held
request is forwarded after its release even if its client has closed the connection, as on a network
that delivers late. Bytes that arrive during a cut are dropped, and their connection is closed when
the fault ends. Encrypted bytes are forwarded unchanged, so their requests cannot be held.
"""

import asyncio
import contextlib
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from ...client.loop_thread import LoopThread
from ..cluster.failure import Failure

FRAME_BYTES_MAX = 128 * 1024 * 1024
CHUNK_BYTES = 256 * 1024
START_TIMEOUT_S = 10.0
_CLOSED = (OSError, RuntimeError)  # the latter is raised by uvloop for a write after the end
# turns of the loop: a connection is made, and a transport closed, by the second next turn
TURNS = 5


class ClientProxies:
    """One proxy for each broker, named by the broker's port. Any thread may call the methods."""

    def __init__(self, broker_ports: Iterable[int], *, is_encrypted: bool = False) -> None:
        self._is_encrypted = is_encrypted
        self.ports: dict[int, int] = {}  # of a broker -> ours
        self.counts: Counter[str] = Counter()  # of requests that were held, delayed, dropped
        self._cut: set[int] = set()
        self._delay_ms: dict[int, int] = {}
        self._held: set[int] = set()  # the next request of these APIs
        self._is_whole = asyncio.Event()
        self._is_whole.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._thread = LoopThread("proxies of clients")
        for port in broker_ports:
            self._run(self._listen(port))

    def close(self) -> None:
        """Close all connections and end the event loop's thread."""
        try:
            self._run(self._end())
        finally:
            self._thread.close()

    def cut(self, broker_port: int) -> None:
        """Drop all bytes between clients and this broker until `heal`."""
        self._call(self._is_whole.clear, partial(self._cut.add, broker_port))

    def delay(self, broker_port: int, delay_ms: int) -> None:
        """Delay each request to this broker until `heal`."""
        self._call(partial(self._delay_ms.update, {broker_port: delay_ms}))

    def hold(self, api_key: int) -> None:
        """Hold the next request of this API, and all later ones on its connection, until `heal`."""
        self._call(self._is_whole.clear, partial(self._held.add, api_key))

    def heal(self) -> None:
        """End all cuts, delays and holds. Connections that lost bytes in a cut are closed."""
        all_ends = (self._held.clear, self._delay_ms.clear, self._cut.clear, self._is_whole.set)
        self._call(*all_ends)

    async def _listen(self, broker_port: int) -> None:
        def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            def is_over(task: asyncio.Task[None]) -> None:
                self._tasks.discard(task)
                writer.close()  # also of one that is cancelled before it has begun

            task = asyncio.get_running_loop().create_task(self._serve(broker_port, reader, writer))
            self._tasks.add(task)
            task.add_done_callback(is_over)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self._servers.append(server)
        self.ports[broker_port] = server.sockets[0].getsockname()[1]

    async def _serve(
        self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if await self._was_cut(port):
            return
        try:
            from_broker, to_broker = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return
        back = asyncio.create_task(self._answers(port, from_broker, writer))
        try:
            with contextlib.suppress(*_CLOSED, asyncio.IncompleteReadError):
                await self._requests(port, reader, to_broker)
        finally:
            back.cancel()
            to_broker.close()  # before waiting, since the end of all proxies may interrupt the wait
            await asyncio.gather(back, return_exceptions=True)

    async def _requests(
        self, port: int, reader: asyncio.StreamReader, to_broker: asyncio.StreamWriter
    ) -> None:
        while True:
            data = await (reader.read(CHUNK_BYTES) if self._is_encrypted else _frame(reader))
            if not data:
                return
            api_key = None if self._is_encrypted else int.from_bytes(data[4:6], "big")
            if api_key in self._held:
                self._held.discard(api_key)
                self.counts["held"] += 1
                await self._is_whole.wait()
            if delay_ms := self._delay_ms.get(port):
                self.counts["delayed"] += 1
                await asyncio.sleep(delay_ms / 1000)
            if await self._was_cut(port):
                return
            to_broker.write(data)
            await to_broker.drain()

    async def _answers(
        self, port: int, from_broker: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(*_CLOSED):
            while data := await from_broker.read(CHUNK_BYTES):
                if await self._was_cut(port):
                    break
                writer.write(data)
                await writer.drain()
        writer.close()

    async def _was_cut(self, port: int) -> bool:
        """Return False if the broker is not cut off, else wait for `heal` and return True."""
        if port not in self._cut:
            return False
        self.counts["dropped"] += 1
        await self._is_whole.wait()
        return True

    async def _end(self) -> None:
        await _some_turns()  # a connection just accepted gets its task
        for server in self._servers:
            server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await _some_turns()  # closed connections are gone

    def _call(self, *steps: Callable[[], object]) -> None:
        for step in steps:
            self._thread.loop.call_soon_threadsafe(step)

    def _run(self, work) -> None:
        try:
            self._thread.run(work, START_TIMEOUT_S)
        except TimeoutError:
            raise Failure("The proxies of the clients do not answer.") from None


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """Return the next request with its length field, or b"" if the length is invalid."""
    length = await reader.readexactly(4)
    (size,) = struct.unpack(">i", length)
    if not 2 <= size <= FRAME_BYTES_MAX:
        return b""
    return length + await reader.readexactly(size)


async def _some_turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)
