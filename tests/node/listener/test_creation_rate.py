"""Test the rates of new connections. A connection above the rate waits or is closed."""

import asyncio
import ssl
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.metadata.commands import AlterClientQuotas
from oncelog.coordinator.quotas.quota_table import CONNECTION_CREATION_RATE, DEFAULT, QuotaChange
from oncelog.node.listener import creation_rate
from oncelog.node.listener.creation_rate import (
    WAIT_MAX_MS,
    AddressRates,
    CreationRate,
    wait_ms,
)
from oncelog.wire.framing import encode_request_header
from oncelog.wire.messages import api_keys, control

from ...coordinator.metadata.metadata_cluster import MetadataCluster
from ..own_broker import OwnBroker, running
from .tls.certificates import Certificates

VERSIONS = control.encode_request(api_keys.API_VERSIONS, 0, {})
FRAME = encode_request_header(18, 0, 7, "c") + VERSIONS


def admit(rates: list[CreationRate], now_ms: float) -> float | None:
    """Return the wait of a new connection in milliseconds, or None if it would be too long."""
    found_ms = wait_ms(rates, now_ms)
    for rate in rates if found_ms is not None else ():
        rate.note(now_ms)
    return found_ms


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=200),
    st.integers(1, 50),
    st.integers(0, 2_000),
)
def test_connection_creation_never_exceeds_the_rate_and_one_burst(
    pauses_ms: list[int], rate: int, burst_ms: int
) -> None:
    limits, now_ms, begun_ms = [CreationRate(rate, burst_ms)], 0.0, list[float]()
    for pause_ms in pauses_ms:
        now_ms += pause_ms
        pause_ms = admit(limits, now_ms)
        if pause_ms is not None:
            assert 0 <= pause_ms <= WAIT_MAX_MS
            begun_ms.append(now_ms + pause_ms)
    assert begun_ms == sorted(begun_ms)
    for first, first_ms in enumerate(begun_ms):
        for count, last_ms in enumerate(begun_ms[first:], 1):
            assert count <= 1 + (last_ms - first_ms + burst_ms) * rate / 1000 + 1e-6


def test_connection_creation_rate_does_not_count_refused_connections() -> None:
    limits = [CreationRate(1, 0)]
    answers = [admit(limits, 0.0) for _ in range(1_000)]
    assert answers[:3] == [0.0, 1_000.0, 2_000.0]
    assert answers[11:] == [None] * 989
    assert admit(limits, 11_000.0) == 0.0


def test_connection_creation_uses_the_slower_of_two_rates() -> None:
    broker, listener = CreationRate(1_000, 0), CreationRate(1, 0)
    while admit([broker, listener], 0.0) is not None:
        pass
    assert broker.wait_ms(0.0) <= 20.0


async def answered_s(port: int, count: int, tls: ssl.SSLContext | None = None) -> list[float]:
    """Open `count` connections at once, and return the seconds until each got its first answer."""
    began_s = time.monotonic()

    async def ask() -> float:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        writer.write(len(FRAME).to_bytes(4, "big") + FRAME)
        await reader.readexactly(4)
        writer.transport.abort()
        return time.monotonic() - began_s

    return sorted(await asyncio.gather(*(ask() for _ in range(count))))


def settings(**more: str) -> dict[str, str]:
    return {
        "quota.window.num": "2",
        **{name.replace("_", "."): each for name, each in more.items()},
    }


@pytest.mark.uvloop
async def test_connection_creation_beyond_the_rate_is_delayed(tmp_path: Path) -> None:
    async with running(tmp_path, settings=settings(max_connection_creation_rate="4")) as broker:
        waited_s = await answered_s(broker.server.port, 12)
        assert waited_s[4] < waited_s[11] - 0.9  # the burst of a second waits for nothing
        assert waited_s[11] > 1.5
        assert waited_s[11] - waited_s[7] > 0.7  # one after the other


@pytest.mark.uvloop
async def test_connection_creation_rate_of_one_listener_does_not_affect_other_listeners(
    tmp_path: Path,
) -> None:
    more = {
        "listeners": "SLOW://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "SLOW:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "listener.name.slow.max.connection.creation.rate": "1",
    }
    async with running(tmp_path, settings=settings() | more) as broker:
        slow, quick = broker.server.ports["SLOW"], broker.server.ports["PLAINTEXT"]
        waiting = asyncio.create_task(answered_s(slow, 5))
        quick_s = await answered_s(quick, 5)
        slow_s = await waiting
        assert slow_s[-1] > 2.5
        assert quick_s[-1] < slow_s[-1] - 1


@pytest.mark.uvloop
async def test_tls_handshake_of_a_delayed_connection_is_delayed(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    keystore = str(tmp_path / "broker.pem")
    more = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": keystore}
    broker = OwnBroker(tmp_path, settings=settings(max_connection_creation_rate="2") | more)
    await broker.start()
    try:
        waited_s = await answered_s(broker.server.port, 7, certificates.client())
        assert waited_s[6] > 1.9
    finally:
        await broker.stop()


def limited(cluster: MetadataCluster, host: str, rate: float | None) -> None:
    change = QuotaChange(None, None, ((CONNECTION_CREATION_RATE, rate),), host)
    cluster.do(AlterClientQuotas((change,)))


def test_rate_of_an_address_is_its_own_quota_or_the_default_quota() -> None:
    cluster = MetadataCluster()
    rates = AddressRates(cluster.state, 0)
    assert rates.of("10.0.0.1") == []
    limited(cluster, DEFAULT, 1.0)
    limited(cluster, "10.0.0.1", 2.0)
    (own,), (other,) = rates.of("10.0.0.1"), rates.of("10.0.0.2")
    assert (own.rate, other.rate) == (2.0, 1.0)
    assert rates.of("10.0.0.1") == rates.of("::ffff:10.0.0.1") == [own], "the count is kept"
    limited(cluster, "10.0.0.1", 3.0)
    assert rates.of("10.0.0.1")[0].rate == 3.0
    for host in ("10.0.0.1", DEFAULT):
        limited(cluster, host, None)
    assert rates.of("10.0.0.1") == rates.of("10.0.0.2") == []


def test_rates_of_addresses_beyond_the_maximum_evict_the_least_recently_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(creation_rate, "RATES_MAX", 2)
    cluster = MetadataCluster()
    limited(cluster, DEFAULT, 1.0)
    rates = AddressRates(cluster.state, 0)
    first, second = rates.of("a"), rates.of("b")
    assert rates.of("a") == first
    rates.of("c")
    assert rates.of("a") == first
    assert rates.of("b") != second


@pytest.mark.uvloop
async def test_connection_creation_beyond_the_quota_of_an_address_is_delayed(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, settings=settings()) as broker:
        change = QuotaChange(None, None, ((CONNECTION_CREATION_RATE, 4.0),), "127.0.0.1")
        result = await broker.services.controller.submit(
            AlterClientQuotas((change,)), timeout_ms=30_000
        )
        assert result.error == 0
        waited_s = await answered_s(broker.server.port, 12)
        assert waited_s[4] < waited_s[11] - 0.9  # the burst of a second waits for nothing
        assert waited_s[11] > 1.5
