"""Three brokers in the event loop of the test, and a producer that sends batch after batch."""

import asyncio
import struct
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from oncelog.coordinator.metadata.commands import CreateTopics, NewTopic
from oncelog.node.broker import Broker
from oncelog.node.config.broker_config import BrokerConfig
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.framing import encode_request_header
from oncelog.wire.messages import produce
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic

from ..awaiting import until

NODES = (1, 2, 3)
PRODUCE, PRODUCE_VERSION = 0, 10
TOPIC_ID = b"the only topic".ljust(16)
PRODUCER_ID = 4_711
START_TIMEOUT_S = 20


class ThreeBrokers:
    """Three brokers, with a method to create the topic `t` with one partition."""

    def __init__(self, brokers: list[Broker]) -> None:
        self.brokers = brokers

    async def create_topic(self) -> Broker:
        """Create `t`, wait until a broker leads it, and return that broker."""
        new = NewTopic("t", TOPIC_ID, 1, len(NODES))
        result = await self.brokers[0]._controller.submit(CreateTopics((new,)), timeout_ms=10_000)
        assert [item.error for item in result.items] == [0]
        await until(lambda: self.leader() is not None)
        leader = self.leader()
        assert leader is not None
        return leader

    def leader(self) -> Broker | None:
        for broker in self.brokers:
            hosted = broker.replicas.get("t", 0)
            if hosted is not None and hosted.leader is not None:
                return broker
        return None


@asynccontextmanager
async def three_brokers(root: Path) -> AsyncIterator[ThreeBrokers]:
    peers = tempfile.mkdtemp(prefix="oncelog-", dir=root)
    brokers = [_broker(root, peers, node) for node in NODES]
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(START_TIMEOUT_S):
            await asyncio.gather(*(broker.start() for broker in brokers))
        for broker in brokers:
            stack.push_async_callback(broker.stop)
        yield ThreeBrokers(brokers)


def _broker(root: Path, peers: str, node: int) -> Broker:
    properties = {
        "node.id": str(node),
        "cluster.id": "c",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(root / f"data-{node}"),
        "oncelog.voters": ",".join(map(str, NODES)),
        "oncelog.peer.directory": peers,
        "controlled.shutdown.enable": "false",
    }
    return Broker(BrokerConfig.from_properties(properties))


class Producer(asyncio.Protocol):
    """An idempotent producer that sends each batch after the answer to the previous one."""

    def __init__(self, acks: int = -1) -> None:
        self.acks = acks
        self.sent = self.acknowledged = 0
        self._wanted = 0
        self._received = b""
        self._done: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            (size,) = struct.unpack_from(">i", self._received)
            if len(self._received) < 4 + size:
                return
            answer, self._received = self._received[4 : 4 + size], self._received[4 + size :]
            response = produce.decode_response(memoryview(answer)[5:], PRODUCE_VERSION)
            assert response.topics[0].partitions[0].error_code == 0, response
            self.acknowledged += 1
            if self.acknowledged < self._wanted:
                self._send()
            elif self._done is not None and not self._done.done():
                self._done.set_result(None)

    async def produce(self, batches: int) -> None:
        """Produce `batches` more batches, and wait until all are acknowledged."""
        self._wanted += batches
        self._done = asyncio.get_running_loop().create_future()
        self._send()
        await self._done

    def _send(self) -> None:
        batch = BatchBuilder()
        batch.append(1_000 * self.sent, None, bytes(100))
        records = batch.build(producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=self.sent)
        request = ProduceRequest(
            None, self.acks, 30_000, [ProduceTopic("t", None, [ProducePartition(0, records)])]
        )
        header = encode_request_header(PRODUCE, PRODUCE_VERSION, self.sent, "a client")
        body = b"".join(produce.encode_request(request, PRODUCE_VERSION))
        assert self._transport is not None
        self._transport.write(struct.pack(">i", len(header) + len(body)) + header + body)
        self.sent += 1


@asynccontextmanager
async def producer_at(broker: Broker, acks: int = -1) -> AsyncIterator[Producer]:
    transport, producer = await asyncio.get_running_loop().create_connection(
        lambda: Producer(acks), "127.0.0.1", broker.server.port
    )
    try:
        yield producer
    finally:
        transport.close()
