"""Test the renewal of SASL sessions, and that a refused login is raised immediately."""

import asyncio
import threading
import time

import pytest

from oncelog.client import Admin, BlockingProducer, Consumer, Producer, complete
from oncelog.client.connection import BrokerConnection
from oncelog.client.security.scram import Derive
from oncelog.client.security.session import Security
from oncelog.client.settings import ADMIN, read_settings
from oncelog.client.view_source import view_of
from oncelog.wire.errors import KafkaError, NetworkException, SaslAuthenticationFailed
from oncelog.wire.security.secret import Secret

from ...present import present
from .listener import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE, Listener

PLAIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "geheim",
}
FIRST = [API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE]
AGAIN = [SASL_HANDSHAKE, SASL_AUTHENTICATE]
ALL_TOPICS = {"topics": None, "allow_auto_topic_creation": False}


def security(**values: str) -> Security:
    return present(Security.of(read_settings(ADMIN, {**PLAIN, **values}, {})))


async def connect(listener: Listener) -> BrokerConnection:
    return await BrokerConnection.open(
        listener.host, listener.port, timeout_ms=5_000, security=security()
    )


async def test_sasl_session_without_a_lifetime_authenticates_once():
    async with Listener().running() as listener:
        connection = await connect(listener)
        for _ in range(3):
            await connection.call(METADATA, ALL_TOPICS)
        connection.close()
        assert listener.asked == [[*FIRST, METADATA, METADATA, METADATA]]


async def test_sasl_session_with_an_ended_lifetime_is_renewed_before_other_requests():
    async with Listener(lifetime_ms=200).running() as listener:
        connection = await connect(listener)
        await asyncio.gather(*(connection.call(METADATA, ALL_TOPICS) for _ in range(3)))
        await asyncio.sleep(0.2)  # its lifetime is over, and no request was sent
        await asyncio.gather(*(connection.call(METADATA, ALL_TOPICS) for _ in range(3)))
        connection.close()
        assert listener.asked == [[*FIRST, *[METADATA] * 3, *AGAIN, *[METADATA] * 3]]


async def test_sasl_session_renewal_that_takes_long_delays_later_requests():
    async with Listener(lifetime_ms=100).running() as listener:
        connection = await connect(listener)
        listener.lifetime_ms = 0
        await asyncio.sleep(0.1)
        listener.hold.clear()
        waiting = [asyncio.create_task(connection.call(METADATA, ALL_TOPICS)) for _ in range(3)]
        async with asyncio.timeout(5):
            while listener.asked[0][-1] != SASL_AUTHENTICATE or len(listener.asked[0]) < 5:
                await asyncio.sleep(0.001)
        waiting.append(asyncio.create_task(connection.call(METADATA, ALL_TOPICS)))
        # the caller that began the renewal is cancelled during the renewal
        waiting.pop(0).cancel()
        await asyncio.sleep(0.01)
        assert listener.asked == [[*FIRST, *AGAIN]]
        listener.hold.set()
        await asyncio.gather(*waiting)
        connection.close()
        assert listener.asked == [[*FIRST, *AGAIN, *[METADATA] * 3]]


async def test_reauthentication_of_a_deleted_user_is_an_authentication_error():
    async with Listener(lifetime_ms=100).running() as listener:
        connection = await connect(listener)
        listener.users.clear()
        await asyncio.sleep(0.1)
        calls = (connection.call(METADATA, ALL_TOPICS) for _ in range(3))
        for problem in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(problem, SaslAuthenticationFailed), problem
            assert "refused user alice by PLAIN" in str(problem)
        assert not connection.is_open


async def test_connection_lost_during_a_renewal_raises_a_network_error():
    async with Listener(lifetime_ms=100).running() as listener:
        connection = await connect(listener)
        await asyncio.sleep(0.1)
        listener.hold.clear()
        call = asyncio.create_task(connection.call(METADATA, ALL_TOPICS))
        async with asyncio.timeout(5):
            while len(listener.asked[0]) < 5:
                await asyncio.sleep(0.001)
        for writer in listener._writers:
            writer.transport.abort()
        listener.hold.set()
        with pytest.raises(NetworkException):
            await call


@pytest.mark.parametrize("problem", [ValueError("no file of CAs"), OverflowError()])
async def test_session_renewal_that_fails_in_any_way_closes_the_connection(problem):
    """On an open connection every later request would fail in the middle of a SASL exchange."""
    async with Listener(lifetime_ms=100).running() as listener:
        made = security()
        connection = await BrokerConnection.open(
            listener.host, listener.port, timeout_ms=5_000, security=made
        )

        async def failing(connection: object) -> int:
            raise problem

        made.authenticate = failing  # type: ignore[method-assign]
        await asyncio.sleep(0.1)
        with pytest.raises(type(problem)):
            await connection.call(METADATA, ALL_TOPICS)
        assert not connection.is_open


def test_scram_password_is_derived_in_a_thread_and_once_for_all_connections(monkeypatch):
    calls: list[threading.Thread] = []
    compute = Derive.compute

    def counted(self: Derive) -> bytes:
        calls.append(threading.current_thread())
        return compute(self)

    monkeypatch.setattr(Derive, "compute", counted)

    async def work() -> None:
        made = security(**{"sasl.mechanism": "SCRAM-SHA-256"})
        wanted = Derive("sha256", Secret("geheim"), b"salt", 4096)
        found = await asyncio.gather(*(made._derive(wanted) for _ in range(5)))
        assert set(found) == {compute(wanted)}
        await made._derive(Derive("sha256", Secret("geheim"), b"other", 4096))

    asyncio.run(work())
    assert len(calls) == 2 and threading.main_thread() not in calls


async def produce(values: dict[str, str]) -> None:
    async with Producer(values) as producer:
        await (await producer.send("topic", b"value"))


async def transact(values: dict[str, str]) -> None:
    async with Producer(values, transactional_id="id") as producer:
        await producer.init_transactions()


async def read(values: dict[str, str]) -> None:
    async with Consumer(values) as consumer:
        consumer.assign([("topic", 0)])
        while True:
            await consumer.poll(100)


async def join(values: dict[str, str]) -> None:
    async with Consumer(values, group_id="group") as consumer:
        consumer.subscribe(["topic"])
        while True:
            await consumer.poll(100)


async def administer(values: dict[str, str]) -> None:
    async with Admin(values) as admin:
        await admin.create_topic("topic")


async def end_prepared(values: dict[str, str]) -> None:
    await complete(values, "oncelog-prepared-1:id:1:0:2", True)


CALLS = (produce, transact, read, join, administer, end_prepared)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
async def test_client_of_each_kind_raises_a_wrong_password_immediately(call):
    async with Listener().running() as listener, asyncio.timeout(10):
        at = {"bootstrap.servers": f"{listener.host}:{listener.port}"}
        with pytest.raises(SaslAuthenticationFailed, match="refused user alice by PLAIN"):
            await call({**at, **PLAIN, "sasl.password": "Schloss"})
        assert len(listener.asked) <= 2, "it was tried again and again"


async def test_blocking_client_raises_a_wrong_password_immediately():
    async with Listener().running() as listener:
        values = {"bootstrap.servers": f"{listener.host}:{listener.port}", **PLAIN}

        def program() -> None:
            with BlockingProducer({**values, "sasl.password": "Schloss"}) as producer:
                delivery = producer.send("topic", b"value")
                with pytest.raises(SaslAuthenticationFailed, match="refused user alice"):
                    delivery.result(timeout_s=10)

        await asyncio.to_thread(program)


@pytest.mark.parametrize(
    ("values", "has_sasl", "words"),
    [
        ({**PLAIN, "sasl.password": "Schloss"}, True, "refused user alice by PLAIN"),
        ({}, True, "asks for SASL: set security.protocol to SASL_PLAINTEXT"),
        (PLAIN, False, "does not authenticate by SASL"),
    ],
)
async def test_authentication_error_is_raised_immediately_without_a_retry(values, has_sasl, words):
    async with Listener(has_sasl=has_sasl).running() as listener:
        view = view_of({"bootstrap.servers": f"{listener.host}:{listener.port}", **values})
        began_s = time.monotonic()
        with pytest.raises(KafkaError, match=words) as failure:
            await view.retrying(view.refresh, timeout_ms=60_000)
        assert not failure.value.retriable
        assert time.monotonic() - began_s < 30  # of 60
        assert "Schloss" not in str(failure.value)
        await view.close()
