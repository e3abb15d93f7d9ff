"""Test request quotas (KIP-124), with measured times, throttle times and exemptions."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.coordinator.quotas.rate import QuotaRate
from oncelog.node.handlers.api_table import served_apis
from oncelog.node.listener.client_quotas import ClientQuotas
from oncelog.node.listener.pending_answer import PendingAnswer
from oncelog.node.listener.request_time import with_throttle
from oncelog.runtime.spent_time import SpentTime
from oncelog.wire.messages import control

from ..own_broker import OwnBroker, running
from .test_client_quotas import USER, Client, produce_body, served

LOG = logging.getLogger("oncelog.test")
TABLE = {api.key: api for api in served_apis(LOG)}
A_QUOTA = 1.0  # per cent
CAP_MS = 1_000  # one window
API_VERSIONS, METADATA, LIST_GROUPS, WRITE_TXN_MARKERS = 18, 3, 16, 27


class Tick:
    """A clock that advances by `seconds` at each reading."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.now_s = seconds, 0.0

    def __call__(self) -> float:
        self.now_s += self.seconds
        return self.now_s


@asynccontextmanager
async def held(tmp_path: Path, tick_s: float) -> AsyncIterator[tuple[OwnBroker, Client]]:
    """Yield a broker whose requests take `tick_s` seconds, and a client with a quota of 1 %."""
    async with running(tmp_path) as broker:
        client = await served(broker)
        broker.services.quotas = ClientQuotas(
            broker.state, samples=11, window_ms=1_000, now_ms=lambda: 0, clock_s=Tick(tick_s)
        )
        assert await client.set("request_percentage", A_QUOTA, USER) == 0
        yield broker, client


def expected_ms(*seconds: float) -> int:
    rate = QuotaRate(samples=11, window_ms=1_000)
    return [min(CAP_MS, rate.record(each * 100, A_QUOTA, 0)) for each in seconds][-1]


def test_request_time_throttle_equals_the_formula_of_kafka(tmp_path: Path):
    async def scenario() -> None:
        async with held(tmp_path, 0.052) as (_, client):
            told = [
                (await client.ask(API_VERSIONS, 3, {"client_software_name": "a",
                 "client_software_version": "1"})).throttle_time
                for _ in range(3)
            ]  # fmt: skip
            assert told == [expected_ms(*[0.052] * count) for count in (1, 2, 3)]
            assert told == [0, 400, CAP_MS]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("key", "version", "values"),
    [
        (API_VERSIONS, 2, {}),
        (API_VERSIONS, 3, {"client_software_name": "?", "client_software_version": "?"}),
        (METADATA, 12, {"topics": [], "allow_auto_topic_creation": False}),
        (LIST_GROUPS, 4, {"states_filter": []}),
        (47, 0, {"group_id": "none", "topics": []}),  # OffsetDelete: after its error code
        (39, 2, {"hmac": b"", "renew_period_ms": 1}),  # RenewDelegationToken: at the end
    ],
)
def test_request_time_throttle_is_in_the_answer(
    key: int, version: int, values: dict[str, Any], tmp_path: Path
):
    async def scenario() -> None:
        async with held(tmp_path, 1.0) as (_, client):
            answer = await client.ask(key, version, values)
            assert answer.throttle_time == CAP_MS
            assert client.context.mute is not None
            client.context.mute.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("asks", ["produce", "large produce", "fetch"])
def test_request_time_throttle_is_in_the_answer_of_a_produce_and_a_waiting_fetch(
    asks: str, tmp_path: Path
):
    async def scenario() -> None:
        async with held(tmp_path, 1.0) as (broker, client):
            if asks != "fetch":
                answer = await client.produce(1 if asks == "produce" else 150)
            else:
                fetching = asyncio.create_task(client.fetch(0, 20_000))
                await asyncio.sleep(0)
                broker.append("t")
                answer = await fetching
            assert answer.throttle_time_ms == CAP_MS
            assert client.context.mute is not None
            client.context.mute.close()

    asyncio.run(scenario())


def test_request_time_throttle_does_not_hold_a_produce_with_acks_zero(tmp_path: Path):
    async def scenario() -> None:
        async with held(tmp_path, 1.0) as (_, client):
            assert client.send(0, 12, produce_body(acks=0)) is None
            assert client.context.mute is None

    asyncio.run(scenario())


def test_request_time_of_brokers_is_exempt_from_throttling(tmp_path: Path):
    async def scenario() -> None:
        async with held(tmp_path, 1.0) as (_, client):
            await client.ask(WRITE_TXN_MARKERS, 1, {"markers": []})
            assert client.context.mute is None

    asyncio.run(scenario())


def test_request_time_is_not_measured_without_a_request_quota(tmp_path: Path):
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            client = await served(broker)
            tick = broker.services.quotas.clock_s = Tick(1.0)
            assert await client.set("producer_byte_rate", 1e9, USER) == 0
            await client.produce()
            assert await client.set("request_percentage", A_QUOTA, USER) == 0
            assert await client.set("request_percentage", None, USER) == 0
            before_s = tick.now_s
            await client.produce()
            assert tick.now_s == before_s
            if client.context.mute is not None:
                client.context.mute.close()

    asyncio.run(scenario())


def test_request_time_includes_steps_and_coroutines_of_a_request(tmp_path: Path):
    async def scenario() -> None:
        async with held(tmp_path, 0.001) as (broker, client):
            seconds: list[float] = []
            quotas = broker.services.quotas
            quotas.requested = lambda context, client_id, spent_s: seconds.append(spent_s) or 0  # type: ignore[method-assign]
            topics = [{"name": f"t{number}"} for number in range(3_000)]
            await client.ask(METADATA, 8, {"topics": topics, "allow_auto_topic_creation": False})
            (large,) = seconds
            assert large > 0.01  # each step reads the clock
            assert SpentTime.running is None

    asyncio.run(scenario())


def test_request_time_of_a_closed_client_is_counted():
    spent: list[list[bytes]] = []
    pending = PendingAnswer()
    pending.finish = lambda body: spent.append(body) or body  # type: ignore[assignment, func-returns-value]
    pending.abandon()
    pending.complete([b"answer"])
    assert spent == [[b"answer"]] and pending.buffers is None


def test_throttle_time_field_position_is_known_for_each_api_and_version():
    for api in TABLE.values():
        for version in {api.min_version, api.max_version}:
            fields = control.response_fields(api.key, version)
            if api.key == 0 or "throttle_time" not in fields:
                continue
            before = fields[: fields.index("throttle_time")]
            is_last = len(before) + 1 == len(fields)
            assert before in ((), ("error_code",)) or api.key == API_VERSIONS or is_last, api


@pytest.mark.parametrize(
    ("key", "version"),
    [(18, 0), (18, 1), (18, 2), (18, 3), (18, 5), (3, 2), (3, 3), (3, 12), (47, 0), (16, 5),
     (39, 1), (39, 2), (41, 3)],
)  # fmt: skip
def test_throttle_time_is_written_into_its_field_of_the_answer(key: int, version: int):
    values: dict[str, Any] = {}
    if key == API_VERSIONS:
        values["api_keys"] = [{"api_key": 1, "min_version": 2, "max_version": 3}] * 50
    before = control.encode_response(key, version, values)
    body = b"".join(with_throttle([before], key, version, 77))
    answer = control.decode_response(key, version, body)
    if "throttle_time" in control.response_fields(key, version):
        assert answer.throttle_time == 77
        told = {**values, "throttle_time": 77}
        assert body == control.encode_response(key, version, told)
    else:
        assert body == before


def test_throttle_time_in_the_answer_is_the_longer_of_two():
    before = control.encode_response(LIST_GROUPS, 4, {"throttle_time": 90})
    assert b"".join(with_throttle([before], LIST_GROUPS, 4, 77)) == before


def test_request_that_closes_its_connection_leaves_no_request_time_in_its_context(tmp_path: Path):
    async def scenario() -> None:
        async with held(tmp_path, 1.0) as (broker, client):
            with pytest.raises(Exception, match="API 3"):
                client.send(METADATA, 12, b"\xff")
            assert client.context.request_time is None and broker.services.quotas.counts_requests

    asyncio.run(scenario())
