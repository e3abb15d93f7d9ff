"""A real listener with request handlers that the test controls."""

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from oncelog.node.config.listeners import Listener
from oncelog.node.handlers.metadata import cluster
from oncelog.node.listener.dispatch import Api, CloseConnection, Dispatcher, RequestContext
from oncelog.node.listener.pending_answer import PendingAnswer
from oncelog.node.listener.protection import Protection
from oncelog.node.listener.server import KafkaServer
from oncelog.wire.errors import KafkaError, UnknownServerError
from oncelog.wire.framing import RequestHeader, encode_request_header
from oncelog.wire.primitives import MalformedFrame

from ...awaiting import until
from ..fake_broker import FakeBroker, plain_listener

# The toys have keys and versions with known headers.
PRODUCE, WAIT, ECHO, SLOW = (0, 3), (1, 4), (2, 1), (3, 1)
SMALL_ANSWER_BYTES = 60_000  # less than the limit at which writing is paused


class Toys:
    """Request handlers that record the bodies that they get, in `started`."""

    def __init__(self) -> None:
        self.started: list[bytes] = []
        self.pending: dict[bytes, PendingAnswer] = {}
        self.abandoned: list[bytes] = []
        self.gate = asyncio.Event()

    def wait(self, context: RequestContext, header: RequestHeader, body: memoryview) -> Any:
        """Return a pending answer, which the test completes.

        A body that begins with "now" is answered immediately. One that begins with "none" has no
        answer.
        """
        name = bytes(body)
        self.started.append(name)
        if name.startswith(b"none"):
            return None
        pending = PendingAnswer(on_abandon=lambda: self.abandoned.append(name))
        if name.startswith(b"now"):
            pending.complete([name])
        self.pending[name] = pending
        return pending

    def echo(self, context: RequestContext, header: RequestHeader, body: memoryview) -> Any:
        name = bytes(body)
        self.started.append(name)
        match name.split(b" ")[0]:
            case b"close":
                raise CloseConnection("on purpose")
            case b"malformed":
                raise MalformedFrame("on purpose")
            case b"defect":
                raise ZeroDivisionError("on purpose")
            case b"big":
                return [bytes(int(name.split(b" ")[1]))]
        return [b"", name[:3], memoryview(name)[3:]]

    async def slow(
        self, context: RequestContext, header: RequestHeader, body: memoryview
    ) -> list[Any]:
        self.started.append(bytes(body))
        await self.gate.wait()
        if bytes(body) == b"defect":
            raise ZeroDivisionError("on purpose")
        return [bytes(body)]

    @staticmethod
    def say_error(
        context: RequestContext, header: RequestHeader, body: memoryview, error: KafkaError
    ) -> Any:
        assert type(error) is UnknownServerError
        return [b"error %d" % error.number]

    def apis(self) -> tuple[Api, ...]:
        return (
            Api(*PRODUCE, PRODUCE[1], self.wait, is_pipelined=True, advertised_from=0),
            Api(*WAIT, WAIT[1], self.wait),
            Api(*ECHO, ECHO[1], self.echo, self.say_error),
            Api(*SLOW, SLOW[1], self.slow),
            *(api for api in cluster.apis() if api.key == 18),
        )


class Client:
    """A client with one connection, which receives answers as (correlation id, body)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.transport: Any = writer.transport  # the transport of a socket, which can pause reading
        self.sent = 0

    def send(self, api: tuple[int, int], body: bytes = b"") -> None:
        self.sent += 1
        self.writer.write(self.frame(api, body, self.sent))

    @staticmethod
    def frame(api: tuple[int, int], body: bytes, correlation_id: int = 1) -> bytes:
        request = encode_request_header(*api, correlation_id, "test") + body
        return len(request).to_bytes(4, "big") + request

    async def receive(self, timeout_s: float = 10) -> tuple[int, bytes]:
        async with asyncio.timeout(timeout_s):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            answer = await self.reader.readexactly(size)
        return int.from_bytes(answer[:4], "big"), answer[4:]

    async def ask(self, api: tuple[int, int], body: bytes = b"") -> bytes:
        self.send(api, body)
        correlation_id, answer = await self.receive()
        assert correlation_id == self.sent
        return answer

    def reset(self) -> None:
        """Close the connection with a reset, so that the broker notices it although it waits."""
        peer = self.transport.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    async def is_closed(self, timeout_s: float = 5) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                return await self.reader.read(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    async def is_silent(self, seconds: float = 0.05) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self.reader.read(1)
        except TimeoutError:
            return True
        return False


class Bench:
    """A listener with test handlers and its clients."""

    def __init__(self, server: KafkaServer, toys: Toys) -> None:
        self.server, self.toys = server, toys
        self.clients: list[Client] = []

    async def connect(self, listener: str = "PLAINTEXT", **options: Any) -> Client:
        port = self.server.ports[listener]
        client = Client(*await asyncio.open_connection("127.0.0.1", port, **options))
        self.clients.append(client)
        return client


@asynccontextmanager
async def toy_server(
    listeners: Sequence[Listener] = (),
    protection: Protection | None = None,
    **limits: Any,
) -> AsyncIterator[Bench]:
    toys = Toys()
    log = logging.getLogger("oncelog.test")
    dispatcher = Dispatcher(toys.apis(), log)
    services = FakeBroker(1).services
    services.config = replace(services.config, **limits)
    server = KafkaServer(dispatcher, services, log, protection=protection)
    await server.start(listeners or plain_listener())
    bench = Bench(server, toys)
    try:
        yield bench
    finally:
        for client in bench.clients:
            client.writer.transport.abort()
        await server.stop(deadline_s=0.2)


async def fill_the_socket(bench: Bench, write: Callable[[bytes], object]) -> None:
    """Send requests of the only client, which does not read, until an answer stays unsent."""
    (connection,) = bench.server._connections
    transport, started = connection._transport, bench.toys.started
    assert transport is not None
    while not transport.get_write_buffer_size():
        count = len(started)
        write(Client.frame(ECHO, b"big %d" % SMALL_ANSWER_BYTES))
        await until(lambda count=count: len(started) > count)
        await asyncio.sleep(0)  # the loop writes at the end of its turn
    assert not connection._is_writing_paused
