"""A broker for tests of the proxy, which answers EndTxn, and a client of the proxy."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from oncelog.deploy.faults.protocol_proxy.events import Event
from oncelog.deploy.faults.protocol_proxy.hub import Hub
from oncelog.deploy.faults.protocol_proxy.two_ends import ProxyTls
from oncelog.wire.framing import decode_request_header

from .frames import answer_frame

TIMEOUT_S = 10.0


def sent(frame: bytes) -> bytes:
    return len(frame).to_bytes(4) + frame


class ScriptedBroker:
    """A broker that answers each EndTxn with `error_code`, unless `answers` is False.

    `heard` has the request frames of all connections. The test itself answers all other requests.
    """

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.answers = True
        self.error_code = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.ended = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
                self.heard.append(frame)
                header = decode_request_header(memoryview(frame))
                if self.answers and header.api_key == 26:
                    values = {"error_code": self.error_code}
                    writer.write(sent(answer_frame("EndTxn", 3, values, header.correlation_id)))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.ended += 1
        finally:
            writer.close()

    @property
    def correlation_ids(self) -> list[int]:
        return [int.from_bytes(frame[4:8]) for frame in self.heard]


class Client:
    """A client's connection that sends and reads frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, frame: bytes) -> None:
        self.writer.write(sent(frame))

    async def read(self) -> bytes | None:
        """Read the next frame, or return None at the end of the connection."""
        async with asyncio.timeout(TIMEOUT_S):
            try:
                length = int.from_bytes(await self.reader.readexactly(4))
                return await self.reader.readexactly(length)
            except (asyncio.IncompleteReadError, ConnectionError):
                return None

    async def correlation_id(self) -> int | None:
        frame = await self.read()
        return None if frame is None else int.from_bytes(frame[:4])


class Bench:
    """A proxy in the event loop of the test, its scripted broker, its events and its clients."""

    def __init__(self, hub: Hub, broker: ScriptedBroker, events: list[Event]) -> None:
        self.hub, self.broker, self.events = hub, broker, events
        self._clients: list[Client] = []

    async def client(self, instance: str = "one") -> Client:
        port = self.hub.ports.port_of(instance, None)
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        self._clients.append(client)
        return client

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def close(self) -> None:
        for client in self._clients:
            client.writer.transport.abort()


@asynccontextmanager
async def bench(
    transaction_timeout_ms: int = 0, tls: ProxyTls | None = None
) -> AsyncIterator[Bench]:
    broker, events = ScriptedBroker(), list[Event]()
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0, ssl=tls and tls.to_clients)
    broker.port = server.sockets[0].getsockname()[1]
    hub = Hub([("127.0.0.1", broker.port)], [events.append], transaction_timeout_ms, tls)
    hub.brokers.addresses[7] = ("127.0.0.1", broker.port)
    one = Bench(hub, broker, events)
    try:
        yield one
    finally:
        one.close()
        await hub.close()
        for writer in broker.writers:
            writer.transport.abort()
        server.close()
        await asyncio.sleep(0.01)
