"""Test that a client above its quota gets a throttle time, and that its connection pauses."""

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from oncelog.node.handlers.api_table import served_apis
from oncelog.node.listener import client_quotas
from oncelog.node.listener.dispatch import Dispatcher, RequestContext
from oncelog.wire.errors import ErrorCode
from oncelog.wire.framing import encode_request_header
from oncelog.wire.messages import api_keys, control, fetch, produce
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from oncelog.wire.records import Record, encode_batch

from ...awaiting import until
from ..fake_broker import request
from ..own_broker import OwnBroker, running

LOG = logging.getLogger("oncelog.test")
USER = {"entity_type": "user", "entity_name": "ANONYMOUS"}
RATE = 1_000
FETCH_VERSION = PRODUCE_VERSION = 12
BATCH = encode_batch([Record(0, 0, None, bytes(13_000))])
THROTTLE_MS = range(2_500, 4_500)  # of 13 kB at a kilobyte a second over ten windows


class Client:
    """A client that sends requests to a broker's dispatcher without a connection."""

    def __init__(self, broker: OwnBroker) -> None:
        self._dispatcher = Dispatcher(served_apis(LOG), LOG)
        self.context = RequestContext(broker.services, connection_id=1, peer_host="127.0.0.1")

    def send(self, key: int, version: int, body: bytes) -> Any:
        """Dispatch a request, and return the dispatcher's result."""
        return request(self._dispatcher, self.context, key, version, body).outcome

    async def ask(self, key: int, version: int, values: Any) -> Any:
        if isinstance(values, list):
            values = b"".join(values)
        return await request(self._dispatcher, self.context, key, version, values).value()

    async def set(self, key: str, value: float | None, *entity: dict[str, Any]) -> int:
        operation = {"key": key, "value": value or 0.0, "remove": value is None}
        entry = {"entity": list(entity), "ops": [operation]}
        answer = await self.ask(49, 1, {"entries": [entry], "validate_only": False})
        return answer.entries[0].error_code

    async def produce(self, partitions: int = 1) -> Any:
        return await self.ask(0, PRODUCE_VERSION, produce_body(partitions=partitions))

    async def fetch(self, offset: int, max_wait_ms: int = 0) -> Any:
        topics = [FetchTopic("t", None, [FetchPartition(0, offset, 1_000_000)])]
        asked = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=topics)
        return await self.ask(1, FETCH_VERSION, fetch.encode_request(asked, FETCH_VERSION))

    async def described(
        self, **wanted: Any
    ) -> list[tuple[dict[str, str | None], dict[str, float]]]:
        values = {"components": [], "strict": False, **wanted}
        answer = await self.ask(48, 1, values)
        if answer.error_code:
            raise AssertionError(answer.error_code)
        return [
            (
                {part.entity_type: part.entity_name for part in entry.entity},
                {value.key: value.value for value in entry.values},
            )
            for entry in answer.entries
        ]


def produce_body(acks: int = 1, partitions: int = 1) -> bytes:
    asked = [ProducePartition(index, BATCH) for index in range(partitions)]
    topics = [ProduceTopic("t", None, asked)]
    encoded = produce.encode_request(ProduceRequest(None, acks, 1_000, topics), PRODUCE_VERSION)
    return b"".join(encoded) if isinstance(encoded, list) else bytes(encoded)


async def served(broker: OwnBroker) -> Client:
    await broker.create("t", 1)
    await until(lambda: broker.serves("t", 1))
    return Client(broker)


def test_producer_above_its_quota_gets_its_throttle_time(tmp_path: Path):
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            client = await served(broker)
            assert (await client.produce()).throttle_time_ms == 0
            assert await client.set("producer_byte_rate", RATE, USER) == 0
            answer = await client.produce()
            assert answer.throttle_time_ms in THROTTLE_MS
            assert answer.topics[0].partitions[0].error_code == 0
            assert await client.set("producer_byte_rate", None, USER) == 0
            assert (await client.produce()).throttle_time_ms == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("waits", [False, True])
def test_consumer_above_its_quota_gets_its_throttle_time(waits: bool, tmp_path: Path):
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            client = await served(broker)
            default = {"entity_type": "client-id", "entity_name": None}
            assert await client.set("consumer_byte_rate", RATE, default) == 0
            if not waits:
                await client.produce()
            fetching = asyncio.create_task(client.fetch(0, 20_000 if waits else 0))
            await asyncio.sleep(0)
            if waits:
                await client.produce()
            answer = await fetching
            assert answer.throttle_time_ms in THROTTLE_MS
            assert len(answer.topics[0].partitions[0].records) == len(BATCH)

    asyncio.run(scenario())


def test_fetch_answer_is_no_larger_than_its_quota_allows_in_its_windows(tmp_path: Path):
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            client = await served(broker)
            for _ in range(3):
                await client.produce()
            await client.set("consumer_byte_rate", 2 * RATE, USER)
            answer = await client.fetch(0)
            assert len(answer.topics[0].partitions[0].records) == len(BATCH)

    asyncio.run(scenario())


def test_throttled_connection_starts_no_request_until_its_pause_ends(tmp_path: Path):
    async def scenario() -> None:
        async with running(tmp_path, settings={"quota.window.num": "2"}) as broker:
            client = await served(broker)
            assert await client.set("producer_byte_rate", 10_000, USER) == 0
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.server.port)
            versions = control.encode_request(api_keys.API_VERSIONS, 0, {})
            bodies = ((0, PRODUCE_VERSION, produce_body()), (18, 0, versions))
            for key, version, body in bodies:
                frame = encode_request_header(key, version, key, "c") + body
                writer.write(len(frame).to_bytes(4, "big") + frame)
            answered: list[tuple[int, float]] = []
            for _ in bodies:
                size = int.from_bytes(await reader.readexactly(4), "big")
                answer = await reader.readexactly(size)
                answered.append((int.from_bytes(answer[:4], "big"), time.monotonic()))
            writer.close()
            (first, told_s), (second, free_s) = answered
            assert (first, second) == (0, 18)
            assert free_s - told_s > 0.2  # 13 kB at 10 kB/s over a second: some 300 ms

    asyncio.run(scenario())


def test_describe_client_quotas_returns_quotas_by_their_entities(tmp_path: Path):
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            client = Client(broker)
            any_client = {"entity_type": "client-id", "entity_name": None}
            for entity in ((USER,), (USER, any_client), (any_client,)):
                assert await client.set("consumer_byte_rate", 5.0, *entity) == 0
            quota = {"consumer_byte_rate": 5.0}
            user, both, default = {"user": "ANONYMOUS"}, {"client-id": None}, {"client-id": None}
            everything = [(user, quota), (user | both, quota), (default, quota)]
            assert await client.described() == everything
            exact = [{"entity_type": "user", "match_type": 0, "match": "ANONYMOUS"}]
            assert await client.described(components=exact) == everything[:2]
            assert await client.described(components=exact, strict=True) == everything[:1]
            of_default = [{"entity_type": "client-id", "match_type": 1, "match": None}]
            assert await client.described(components=of_default, strict=True) == everything[2:]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("key", "value", "entity"),
    [
        ("controller_mutation_rate", 5.0, [USER]),
        ("request_percentage", 0.0, [USER]),
        ("producer_byte_rate", -1.0, [USER]),
        ("producer_byte_rate", 5.0, []),
        ("producer_byte_rate", 5.0, [USER, USER]),
        ("producer_byte_rate", 5.0, [{"entity_type": "user", "entity_name": ""}]),
        ("producer_byte_rate", 5.0, [{"entity_type": "ip", "entity_name": "::1"}]),
        ("producer_byte_rate", 5.0, [{"entity_type": "tribe", "entity_name": "x"}]),
    ],
)
def test_client_quota_that_is_unsupported_or_invalid_is_refused(
    key: str, value: float, entity: list[dict[str, str]], tmp_path: Path
):
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            assert await Client(broker).set(key, value, *entity) == ErrorCode.INVALID_REQUEST
            assert len(broker.state.quotas) == 0

    asyncio.run(scenario())


def test_active_client_keeps_its_measured_rate_while_many_others_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(client_quotas, "RATES_MAX", 10)

    async def scenario() -> None:
        async with running(tmp_path) as broker:
            default = {"entity_type": "client-id", "entity_name": None}
            assert await Client(broker).set("producer_byte_rate", RATE, default) == 0
            context = RequestContext(broker.services, connection_id=2, peer_host="127.0.0.1")
            quotas = broker.services.quotas
            assert quotas.produced(context, "eager", 20_000) > 0
            for number in range(30):
                quotas.produced(context, f"other-{number}", 1)
                assert quotas.produced(context, "eager", 1) > 0
            context.is_closed = True
            assert context.mute is not None
            context.mute.close()

    asyncio.run(scenario())
